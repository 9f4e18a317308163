# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Small random models, and stock T5X decoding of the same parameters.

The upper half needs no T5X. `Stock` at the end imports it when it is made.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import t5x_specdec
from t5x_specdec import parameters
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config

# Heads, head_dim, layers and lengths all differ, so that no two axes of a
# cache can be taken for each other.
_SMALL = T5Config(
    vocab_size=37,
    emb_dim=16,
    num_heads=3,
    num_encoder_layers=1,
    num_decoder_layers=2,
    head_dim=5,
    mlp_dim=24,
)
CONFIGS = {
    't5_1_0': dataclasses.replace(_SMALL, logits_via_embedding=True),
    't5_1_1': dataclasses.replace(_SMALL, mlp_activations=('gelu', 'linear')),
    'decoder_only': dataclasses.replace(
        _SMALL, num_encoder_layers=0, mlp_activations=('gelu', 'linear')
    ),
}
# An id that no model emits: decoding then never ends early.
NO_EOS = 10_000


def random_params(config: T5Config, seed: int) -> PyTree:
  """Parameters whose greedy texts vary, made by NumPy alone.

  With T5's initializers a small tied model repeats its last token for ever;
  here attention and feed-forward speak louder than the embedding.

  Args:
    config: the network's hyperparameters.
    seed: of NumPy's default generator.

  Returns:
    T5X parameter tree of float32 arrays.
  """
  rng = np.random.default_rng(seed)
  flat = {}
  for path, shape in parameters.param_shapes(config).items():
    module, leaf = path[-2:]
    noise = rng.standard_normal(shape, np.float32)
    if leaf == 'scale':
      gain = 4 if module == 'decoder_norm' else 1
      flat[path] = gain + np.float32(0.2) * noise
    elif leaf == 'rel_embedding':
      flat[path] = 2 * noise
    elif leaf == 'embedding':
      flat[path] = np.float32(0.25) * noise
      flat[path][0] *= 1.5  # id 0 is to be emitted, too
    else:
      gain = {'query': 0.4, 'out': 2.0, 'wo': 2.0}.get(module, 1.0)
      gain *= 0.5 if 'encoder_decoder_attention' in path else 1.0
      flat[path] = np.float32(gain * shape[0] ** -0.5) * noise
      if module == 'logits_dense':
        flat[path][:, 0] *= 1.5
  return parameters.unflatten(flat)


def perturbed(params: PyTree, seed: int, amount: float) -> PyTree:
  """Another model that partly agrees with this one.

  Args:
    params: T5X parameter tree of NumPy arrays.
    seed: of the noise.
    amount: standard deviation of the noise, as a share of each leaf's own.

  Returns:
    A tree of the same shapes.
  """
  rng = np.random.default_rng(seed)

  def add_noise(leaf):
    scale = np.float32(amount * np.sqrt(np.mean(np.square(leaf))))
    return leaf + scale * rng.standard_normal(leaf.shape, np.float32)

  return jax.tree.map(add_noise, params)


def random_inputs(
    rng: np.random.Generator, batch: int, length: int, vocab_size: int
) -> np.ndarray:
  """Encoder inputs of ragged lengths from 1 to `length`, int32."""
  ids = rng.integers(1, vocab_size, [batch, length], dtype=np.int32)
  lengths = rng.integers(1, length + 1, [batch, 1])
  return np.where(np.arange(length) < lengths, ids, 0)


def random_prompts(
    rng: np.random.Generator,
    batch: int,
    length: int,
    vocab_size: int,
    holes: bool = False,
) -> np.ndarray:
  """Prompts of ragged lengths from 0 to `length`, int32.

  Args:
    rng: source of everything random.
    batch: number of prompts.
    length: of the longest.
    vocab_size: ids are below it.
    holes: whether to free single tokens inside the prompts too.

  Returns:
    int32[batch, length], 0 where free.
  """
  ids = rng.integers(1, vocab_size, [batch, length], dtype=np.int32)
  lengths = rng.integers(0, length + 1, [batch, 1])
  if holes:
    ids *= rng.random([batch, length]) < 0.6
  return np.where(np.arange(length) < lengths, ids, 0)
