# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Planted weights made on the device, leaf by leaf."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import parameters
from t5x_specdec.parameters import T5Config


# One compilation per shape, not per leaf.
@functools.partial(jax.jit, static_argnames=('shape', 'dtype'))
def _normal(key, scale, *, shape, dtype):
  return jax.random.normal(key, shape, dtype) * scale.astype(dtype)


@jax.jit
def _plant(embedding, predecessor):
  table = embedding.astype(jnp.float32)
  table /= jnp.linalg.norm(table, axis=1, keepdims=True)
  return table[predecessor].T.astype(embedding.dtype)


def planted_params(config: T5Config, seed: int) -> Any:
  """Random parameters on the device, decoder outputs zero: see `planted`."""
  key, flat = jax.random.key(seed), {}
  for i, (path, shape) in enumerate(parameters.param_shapes(config).items()):
    if path[-1] == 'scale':
      flat[path] = jnp.ones(shape, config.dtype)
    elif path[0] == 'decoder' and path[-2] in ('out', 'wo'):
      flat[path] = jnp.zeros(shape, config.dtype)
    else:
      scale = 1.0 if path[-1] == 'embedding' else shape[0] ** -0.5
      if path[-2] == 'query':
        # T5 folds the attention scale into this initializer.
        scale *= config.head_dim**-0.5
      flat[path] = _normal(
          jax.random.fold_in(key, i),
          jnp.float32(scale),
          shape=shape,
          dtype=config.dtype,
      )
  return parameters.unflatten(flat)


def with_successor(params: Any, successor: np.ndarray) -> Any:
  """The same parameters with a logits layer that plants these successors."""
  table = params['token_embedder']['embedding']
  kernel = _plant(table, jnp.asarray(np.argsort(successor)))
  decoder = {**params['decoder'], 'logits_dense': {'kernel': kernel}}
  return {**params, 'decoder': decoder}
