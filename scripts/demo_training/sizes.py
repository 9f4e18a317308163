# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The demo pair's hyperparameters and what one decode step of each costs."""

import dataclasses
import math

from t5x_specdec import parameters

CONTEXT = 64  # the most tokens of a side, EOS included

_TARGET = parameters.T5Config(
    vocab_size=4096,
    emb_dim=256,
    num_heads=4,
    num_encoder_layers=2,
    num_decoder_layers=4,
    head_dim=64,
    mlp_dim=1024,
    mlp_activations=('gelu', 'linear'),
    logits_via_embedding=True,
)
# Its decode step takes an eighth of the target's multiplications, exactly.
_DRAFT = dataclasses.replace(
    _TARGET,
    emb_dim=128,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_dim=256,
)
_CONFIGS = {'target': _TARGET, 'draft': _DRAFT}
MODELS = tuple(_CONFIGS)


def config(model: str, vocab_size: int) -> parameters.T5Config:
  """Returns the network of 'target' or 'draft'.

  Args:
    model: which of the two.
    vocab_size: rows of the embedding.
  """
  return dataclasses.replace(_CONFIGS[model], vocab_size=vocab_size)


def count(network: parameters.T5Config) -> int:
  """Returns the number of parameters."""
  return sum(map(math.prod, parameters.param_shapes(network).values()))


def step_cost(network: parameters.T5Config) -> int:
  """Returns the multiplications of one decode step, attention apart.

  Keys and values of the cross-attention are projected once, not per step.
  """
  cost = network.vocab_size * network.emb_dim
  for path, shape in parameters.param_shapes(network).items():
    cross = 'encoder_decoder_attention' in path and path[-2] in ('key', 'value')
    if path[0] == 'decoder' and path[-1] == 'kernel' and not cross:
      cost += math.prod(shape)
  return cost
