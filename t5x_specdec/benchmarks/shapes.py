# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sizes of T5 1.1 by name, and the bytes that decoding must read."""

from __future__ import annotations

import math

import jax.numpy as jnp

from t5x_specdec import parameters
from t5x_specdec.parameters import T5Config

_VOCABULARY = 32128


def _t5_1_1(width: int, heads: int, layers: int, mlp: int) -> T5Config:
  return T5Config(
      vocab_size=_VOCABULARY,
      emb_dim=width,
      num_heads=heads,
      num_encoder_layers=layers,
      num_decoder_layers=layers,
      head_dim=64,
      mlp_dim=mlp,
      mlp_activations=('gelu', 'linear'),
      logits_via_embedding=False,
  )


# As in T5X's examples/t5/t5_1_1/*.gin; 'tiny' is for tests, and not T5X's.
SIZES = {
    'tiny': T5Config(
        vocab_size=512,
        emb_dim=128,
        num_heads=3,
        num_encoder_layers=2,
        num_decoder_layers=2,
        head_dim=16,
        mlp_dim=96,
        mlp_activations=('gelu', 'linear'),
    ),
    'small': _t5_1_1(512, 6, 8, 1024),
    'base': _t5_1_1(768, 12, 12, 2048),
    'large': _t5_1_1(1024, 16, 24, 2816),
    'xl': _t5_1_1(2048, 32, 24, 5120),
    'xxl': _t5_1_1(4096, 64, 24, 10240),
}


def parameter_count(config: T5Config) -> int:
  """Number of parameters of a model."""
  return sum(map(math.prod, parameters.param_shapes(config).values()))


def parameter_bytes(config: T5Config) -> int:
  """Bytes of a model whose parameters have the dtype of its activations."""
  return parameter_count(config) * jnp.dtype(config.dtype).itemsize


def step_bytes(config: T5Config) -> int:
  """Bytes of weights that one step of autoregressive decoding must read.

  The decoder without what it needs once per text (the projections of the
  encoder's output to keys and values) and the logits layer, which is the
  embedding where they are tied. Caches, a few rows of the embedding and
  activations are left out: the bound is one from below.

  Args:
    config: the network's hyperparameters.

  Returns:
    Bytes, the parameters having the dtype of the activations.
  """
  shapes = parameters.param_shapes(config)
  count = 0
  for path, shape in shapes.items():
    once = path[-3:-1] in (
        ('encoder_decoder_attention', 'key'),
        ('encoder_decoder_attention', 'value'),
    )
    if path[0] == 'decoder' and path[-1] != 'embedding' and not once:
      count += math.prod(shape)
  if config.logits_via_embedding:
    count += math.prod(shapes[parameters.embedding_path(config)])
  return count * jnp.dtype(config.dtype).itemsize
