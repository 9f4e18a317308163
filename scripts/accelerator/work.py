# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a block must read and compute, and what a machine can."""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp

from t5x_specdec.benchmarks import shapes
from t5x_specdec.parameters import T5Config


class Work(NamedTuple):
  """Bytes moved, and floating point operations."""

  bytes: float
  operations: float

  def floor(self, rates: Work) -> float:
    """Seconds that this cannot go under, at rates per second."""
    return max(self.bytes / rates.bytes, self.operations / rates.operations)


def block_work(
    config: T5Config, batch: int, width: int, inputs: int, slots: int
) -> Work:
  """What a decoder's block of `width` tokens a row must do.

  Weights and caches are read once; activations, a few thousandths, are left
  out, so the floor is one from below.
  """
  size = jnp.dtype(config.dtype).itemsize
  weights = shapes.step_bytes(config)
  heads = config.num_heads * config.head_dim * config.num_decoder_layers
  kept = 2 * batch * heads * (slots + inputs) * size
  products = 2 * batch * width * weights / size
  return Work(
      weights + kept, products + 4 * batch * width * heads * (slots + inputs)
  )


def measured_rates(dtype: Any) -> Work:
  """Bytes that a copy reads and writes, and operations of products, a second.

  A chain of each, so that the dispatch is not in it; the best of five.
  """
  small = jax.default_backend() == 'cpu'
  count, side = (2**26, 1024) if small else (2**30, 8192)
  numbers = jnp.ones([count // jnp.dtype(dtype).itemsize], dtype)
  matrix = jnp.full([side, side], 1 / side, dtype)
  copies = jax.jit(
      lambda x: lax.fori_loop(0, 8, lambda i, x: x + i.astype(dtype), x)
  )
  products = jax.jit(lambda x: lax.fori_loop(0, 8, lambda i, y: x @ y, x))
  return Work(
      8 * 2 * numbers.nbytes / _best(copies, numbers),
      8 * 2 * side**3 / _best(products, matrix),
  )


def _best(function: Callable[[Any], Any], argument: Any) -> float:
  jax.block_until_ready(function(argument))
  seconds = []
  for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(function(argument))
    seconds.append(time.perf_counter() - start)
  return min(seconds)
