# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Matrix products in bfloat16 with float32 sums, in a form that CPUs do fast.

XLA's CPU backend uses the AMX units only where bfloat16 operands, not
transposed on the contracted side, give a float32 result: four times as fast as
float32 there. JAX's own gradient of `x @ kernel` never has that form, so the
network in training multiplies with one that brings its own.
"""

import jax
from jax import lax
import jax.numpy as jnp

from t5x_specdec import network

OPERANDS = jnp.bfloat16


def _dot(x: jax.Array, y: jax.Array, contract: tuple[int, int]) -> jax.Array:
  dims = (((contract[0],), (contract[1],)), ((), ()))
  x, y = x.astype(OPERANDS), y.astype(OPERANDS)
  return lax.dot_general(x, y, dims, preferred_element_type=jnp.float32)


@jax.custom_vjp
def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
  """Returns `x @ kernel`, float32[m, n], from operands rounded to bfloat16.

  Args:
    x: float32[m, k].
    kernel: float32[k, n].
  """
  return _dot(x, kernel, (1, 0))


def _forward(x, kernel):
  return multiply(x, kernel), (x, kernel)


def _backward(saved, grad):
  x, kernel = saved
  # The barrier keeps XLA from folding the transposition back into the product.
  turned = lax.optimization_barrier(x.astype(OPERANDS).T)
  return _dot(grad, kernel, (1, 1)), _dot(turned, grad, (1, 0))


multiply.defvjp(_forward, _backward)


class T5(network.T5):
  """The package's network with fast products in teacher forcing."""

  def _dense(self, layer, x, dtype=None):
    del dtype  # `multiply` always sums in float32
    flat = multiply(x.reshape(-1, x.shape[-1]), layer['kernel'])
    return flat.reshape(*x.shape[:-1], -1)
