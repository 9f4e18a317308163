# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which network a parameter tree is of, read off its names and shapes."""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

import numpy as np

from t5x_specdec import stacking
from t5x_specdec.parameters import flatten
from t5x_specdec.parameters import Path
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config
from t5x_specdec.tree_checks import check_params


def _depth(flat: Mapping[Path, tuple[int, ...]], stack: str) -> int:
  """Number of layers of a stack, which if stacked are along axis 1."""
  scale = flat.get((stack, stack, 'pre_mlp_layer_norm', 'scale'))
  if scale is not None:
    return scale[-1]
  layers = {p[1] for p in flat if len(p) > 1 and p[0] == stack}
  return sum(name.startswith('layers_') for name in layers)


def config_from_params(params: PyTree, *, dtype: Any = 'float32') -> T5Config:
  """Reads the hyperparameters off a parameter tree.

  A T5X checkpoint does not hold its gin, but its shapes determine every field
  that decoding needs. Two matrices in the feed-forward's input mean T5 1.1's
  ('gelu', 'linear'), one means T5 1.0's ('relu',). Layers are stacked along
  axis 1, as T5X does by default, or not at all.

  Args:
    params: parameter tree; leaves need only a `shape`.
    dtype: activation dtype of the returned config.

  Returns:
    A config whose `param_shapes` are those of the tree.

  Raises:
    ValueError: if the tree is not that of a T5X T5 model.
  """
  flat = {path: tuple(np.shape(x)) for path, x in flatten(params).items()}
  stacked = stacking.is_stacked(params)
  first = ('decoder', 'decoder' if stacked else 'layers_0')
  layer = {
      path[2:]: shape[:1] + shape[2:] if stacked else shape
      for path, shape in flat.items()
      if path[:2] == first
  }
  bias = ('relpos_bias', 'rel_embedding')
  scalable = bias in layer
  decoder_only = not any(path[0] == 'encoder' for path in flat)
  root = ('decoder',) if decoder_only else ()
  try:
    vocab_size, emb_dim = flat[(*root, 'token_embedder', 'embedding')]
    num_heads = (layer[bias] if scalable else flat['decoder', *bias])[0]
    query = layer['self_attention', 'query', 'kernel']
    mlp_dim = layer['mlp', 'wo', 'kernel'][0]
  except (KeyError, IndexError, ValueError) as error:
    names = ', '.join('/'.join(path) for path in list(flat)[:3])
    raise ValueError(
        f'not the parameter tree of a T5X T5 model: no {error}; it starts with '
        f'{names}'
    ) from None
  gated = ('mlp', 'wi_0', 'kernel') in layer
  config = T5Config(
      vocab_size=vocab_size,
      dtype=dtype,
      emb_dim=emb_dim,
      num_heads=num_heads,
      num_encoder_layers=_depth(flat, 'encoder'),
      num_decoder_layers=_depth(flat, 'decoder'),
      head_dim=math.prod(query[1:]) // num_heads,
      mlp_dim=mlp_dim,
      mlp_activations=('gelu', 'linear') if gated else ('relu',),
      logits_via_embedding=('decoder', 'logits_dense', 'kernel') not in flat,
      scalable=scalable,
      scan_axis=1 if stacked else None,
  )
  try:
    check_params(params, config, 'checkpoint')
  except ValueError as error:
    if not stacked:
      raise
    raise ValueError(
        f'{error}; stacked layers are read where they are along axis 1, the '
        'default of param_scan_axis'
    ) from None
  return config
