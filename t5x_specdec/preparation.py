# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is done to a T5's parameters once, and not in every block.

What it returns is a tree that `network.T5` decodes from; to prepare it again
changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp

from t5x_specdec import parameters
from t5x_specdec import stacking
from t5x_specdec.parameters import embedding
from t5x_specdec.parameters import Path
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config
from t5x_specdec.tree_checks import check_params

# Where a tied embedding stands once more for the logits, in the decoder.
_TIED_LOGITS = 'tied_logits'
# What a matrix [out, in] is called that was a 'kernel' [in, out].
_TRANSPOSED = 'transposed'
# Multiplied with the encoder's output, once and in one block.
_ENCODED = tuple(
    ('encoder_decoder_attention', name) for name in ('key', 'value')
)


def prepare(params: PyTree, config: T5Config) -> PyTree:
  """Casts the matrices to the activation dtype, once and not per step.

  The embedding and the logits layer keep their own dtype: T5X computes logits
  in float32, and a float32 matrix must not be rounded for it. A tied embedding
  is laid out once more the way logits read it: on a CPU the product of a block
  with the rows of a matrix takes twice that with its columns. Stacked layers
  are taken apart, which is a copy of them.

  Decoding calls this itself, every time; whoever decodes many short texts with
  a small model, or does not want that copy in every call and beside the stacked
  layers in memory, can do it once and pass on what it returns.

  Args:
    params: T5X parameter tree, or what this returned.
    config: the network's hyperparameters.

  Returns:
    The same tree, unscanned, matrices in `config.dtype`, and the tied logits
    layer.
  """
  if config.scan_axis is not None:
    params = stacking.unstack(params, config.scan_axis)

  def cast(path, leaf):
    names = {entry.key for entry in path}
    keep = {'token_embedder', 'logits_dense', _TIED_LOGITS} & names
    return leaf if keep else leaf.astype(config.dtype)

  params = jax.tree_util.tree_map_with_path(cast, params)
  if not config.logits_via_embedding or _has_tied_logits(params):
    return params
  # The barrier keeps XLA from folding the transposition into the product.
  kernel = lax.optimization_barrier(embedding(params, config).T)
  decoder = {**params['decoder'], _TIED_LOGITS: {'kernel': kernel}}
  return {**params, 'decoder': decoder}


def lay_out(params: PyTree, config: T5Config) -> PyTree:
  """Prepares, and transposes the decoder's matrices: for CPUs, once for good.

  XLA's CPU kernels read a matrix [out, in] faster than [in, out], for a block
  of a few tokens more than twice as fast (docs/performance.md). To transpose
  them costs as much time as some ten tokens, which is why decoding, which
  prepares in every call, does not do it by itself.

  Args:
    params: T5X parameter tree, or what `prepare` or this returned.
    config: the network's hyperparameters.

  Returns:
    A tree that decodes as that of `prepare` does.
  """
  flat = parameters.flatten(prepare(params, config))
  transpose(flat)
  return parameters.unflatten(flat)


def pays_to_lay_out(params: PyTree) -> bool:
  """Whether `lay_out` makes this machine faster: large models, on a CPU.

  What fits a CPU's caches gains nothing.

  Args:
    params: parameter tree.

  Returns:
    True for 2^29 bytes and more where JAX computes on the CPU.
  """
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
  return jax.default_backend() == 'cpu' and size >= 2**29


def ready(params: PyTree, config: T5Config) -> PyTree:
  """Prepares, and lays out where that pays: for a model that is kept.

  Args:
    params: T5X parameter tree.
    config: the network's hyperparameters.

  Returns:
    A tree on the device, to be decoded from again and again.
  """
  params = jax.jit(functools.partial(prepare, config=config))(params)
  return lay_out(params, config) if pays_to_lay_out(params) else params


def transpose(flat: dict[Path, Any]) -> None:
  """Does what `lay_out` does to the leaves of `prepare`'s tree, in their dict.

  One at a time, so that whoever keeps no other reference to them has one leaf
  twice in memory and not all.

  Args:
    flat: leaves by path. A matrix that the decoder multiplies blocks with goes
      and comes back [out, in] under a name of its own.
  """
  for path in tuple(flat):
    shape = _transposed_shape(path, flat[path].shape)
    if shape is not None:
      leaf = flat.pop(path).reshape(shape[::-1]).T
      flat[*path[:-1], _TRANSPOSED] = jax.block_until_ready(leaf)


def dense(params: PyTree, x: jax.Array, dtype: Any = None) -> jax.Array:
  """A block times a layer's matrix, laid out or not.

  Args:
    params: the layer's, from `prepare` or `lay_out`.
    x: [..., in].
    dtype: to sum in, and of the result; by default that of x.

  Returns:
    [..., out], in one axis where a kernel has several.
  """
  if _TRANSPOSED in params:
    matrix, axis = params[_TRANSPOSED], 1
  else:
    matrix, axis = params['kernel'].reshape(x.shape[-1], -1), 0
  common = jnp.promote_types(x.dtype, matrix.dtype)
  return lax.dot_general(
      x.astype(common),
      matrix.astype(common),
      (((x.ndim - 1,), (axis,)), ((), ())),
      preferred_element_type=dtype,
  )


def _transposed_shape(
    path: Path, shape: tuple[int, ...]
) -> tuple[int, int] | None:
  """Shape [out, in] that a leaf has in a laid out tree, None if it stays."""
  if path[0] != 'decoder' or path[-1] != 'kernel':
    return None
  if path[-3:-1] in _ENCODED:
    return None
  size = math.prod(shape)
  fan_in = size // shape[-1] if path[-2] == 'out' else shape[0]
  return size // fan_in, fan_in


def _untransposed(params: PyTree, config: T5Config) -> PyTree:
  """A laid out tree with shapes as before; what is of another size stays."""
  flat = parameters.flatten(params)
  for path, shape in parameters.param_shapes(config).items():
    other = (*path[:-1], _TRANSPOSED)
    if other in flat and flat[other].shape == _transposed_shape(path, shape):
      flat[path] = jax.ShapeDtypeStruct(shape, flat.pop(other).dtype)
  return parameters.unflatten(flat)


def check(params: PyTree, config: T5Config, model: str) -> None:
  """Checks that a tree, prepared or not, is the one the config describes.

  Args:
    params: parameter tree; leaves need only a `shape`.
    config: the network's hyperparameters.
    model: how to call the model in messages, 'target' or 'draft'.

  Raises:
    ValueError: naming the model and up to three offending paths.
  """
  if config.logits_via_embedding and _has_tied_logits(params):
    decoder = dict(params['decoder'])
    del decoder[_TIED_LOGITS]
    params = {**params, 'decoder': decoder}
  if 'layers_0' in params.get('decoder', {}):  # as `prepare` leaves them
    config = dataclasses.replace(config, scan_axis=None)
    params = _untransposed(params, config)
  check_params(params, config, model)


def logits_layer(params: PyTree, config: T5Config) -> PyTree:
  """The layer [emb_dim, vocab] of the logits, from prepared parameters."""
  tied = config.logits_via_embedding
  return params['decoder'][_TIED_LOGITS if tied else 'logits_dense']


def _has_tied_logits(params: PyTree) -> bool:
  return _TIED_LOGITS in params.get('decoder', {})
