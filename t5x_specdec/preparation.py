# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is done to a T5's parameters once, and not in every block.

What it returns is a tree that `network.T5` decodes from; to prepare it again
changes nothing.
"""

from __future__ import annotations

import dataclasses

import jax
from jax import lax

from t5x_specdec import stacking
from t5x_specdec.parameters import embedding
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config
from t5x_specdec.tree_checks import check_params

# Where a tied embedding stands once more for the logits, in the decoder.
_TIED_LOGITS = 'tied_logits'


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
  check_params(params, config, model)


def logits_kernel(params: PyTree, config: T5Config) -> jax.Array:
  """The matrix [emb_dim, vocab] of the logits, from prepared parameters."""
  layer = _TIED_LOGITS if config.logits_via_embedding else 'logits_dense'
  return params['decoder'][layer]['kernel']


def _has_tied_logits(params: PyTree) -> bool:
  return _TIED_LOGITS in params.get('decoder', {})
