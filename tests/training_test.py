# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training multiplies in its own way, and must be of the same network."""

import importlib
import pathlib

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec.network import T5

_SCRIPTS = pathlib.Path(t5x_specdec.__file__).parents[1] / 'scripts'


@pytest.mark.slow
@pytest.mark.parametrize('name', ['t5_1_0', 'decoder_only'])
def test_logits_and_gradients_are_the_networks(name, monkeypatch):
  """Once operands are not rounded to bfloat16; tied logits or not."""
  monkeypatch.syspath_prepend(str(_SCRIPTS))
  fast = importlib.import_module('demo_training.fast')
  monkeypatch.setattr(fast, 'OPERANDS', jnp.float32)
  config = helpers.CONFIGS[name]
  params = helpers.random_params(config, helpers.SEEDS[name])
  rng = np.random.default_rng(0)
  inputs = None
  if not config.decoder_only:
    inputs = rng.integers(1, config.vocab_size, [3, 7])
  tokens = rng.integers(1, config.vocab_size, [3, 6])
  weights = rng.standard_normal([3, 6, config.vocab_size])

  def loss(params, network):
    return jnp.sum(network.logits(params, inputs, tokens) * weights)

  found, wanted = [], []
  for results, network in ((found, fast.T5(config)), (wanted, T5(config))):
    compiled = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    results += jax.tree.leaves(compiled(params, network))
  assert len(found) == len(wanted) > 5
  for ours, theirs in zip(found, wanted):
    assert np.linalg.norm(theirs) > 0
    difference = np.linalg.norm(ours - theirs)
    assert difference < 1e-4 * np.linalg.norm(theirs)
