# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scanned layers: all layers of a stack in one tree, along an axis of it.

`examples/scalable_t5` keeps {encoder,decoder}/{encoder,decoder}/... where
unscanned layers are {encoder,decoder}/layers_i/...; here are both ways.
"""

from collections.abc import Mapping
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp

# A stack's layers, when stacked, are under the stack's own name once more.
_STACKS = ('encoder', 'decoder')


def is_stacked(params: Mapping[str, Any]) -> bool:
  """Whether the layers of a parameter tree are stacked, by its names."""
  return 'decoder' in params.get('decoder', {})


def stacked_shape(
    shape: tuple[int, ...], depth: int, axis: int
) -> tuple[int, ...]:
  """The shape of `depth` arrays of one shape stacked along an axis of theirs.

  Args:
    shape: of one layer's array.
    depth: number of layers.
    axis: where the result has them; negative counts from its end.

  Returns:
    `shape` with `depth` inserted.
  """
  position = axis % (len(shape) + 1)
  return (*shape[:position], depth, *shape[position:])


def unstack(params: Mapping[str, Any], axis: int) -> dict[str, Any]:
  """Takes stacked layers apart.

  Args:
    params: T5X parameter tree; stacks that are not stacked are left alone.
    axis: of every stacked array, the layers.

  Returns:
    The tree of the same network unscanned; every layer a copy.
  """
  result = dict(params)
  for name in _STACKS:
    if name not in params.get(name, {}):
      continue
    stack = dict(params[name])
    layers = stack.pop(name)
    for i in range(jax.tree.leaves(layers)[0].shape[axis]):
      stack[f'layers_{i}'] = jax.tree.map(
          lambda x, i=i: lax.index_in_dim(x, i, axis, keepdims=False), layers
      )
    result[name] = stack
  return result


def stack(params: Mapping[str, Any], axis: int) -> dict[str, Any]:
  """The inverse of `unstack`."""
  result = dict(params)
  for name in _STACKS:
    rest = dict(params[name])
    depth = sum(key.startswith('layers_') for key in rest)
    layers = [rest.pop(f'layers_{i}') for i in range(depth)]
    rest[name] = jax.tree.map(lambda *x: jnp.stack(x, axis), *layers)
    result[name] = rest
  return result
