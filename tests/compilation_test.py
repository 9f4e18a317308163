# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""One compilation per shape; nothing else is compiled or left behind."""

import helpers
import jax
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import loop
from t5x_specdec import T5


@pytest.fixture
def compilations():
  """Counts what XLA compiles while the test runs."""
  count = []
  active = [True]

  def listen(event, duration, **kwargs):
    if active and event.endswith('backend_compile_duration'):
      count.append(event)

  jax.monitoring.register_event_duration_secs_listener(listen)
  yield count
  active.clear()


def test_one_compilation_for_ten_calls(compilations):
  """New keys, temperatures, filters, lengths and parameters (B51)."""
  config = helpers.CONFIGS['t5_1_1']
  rng = np.random.default_rng(0)
  before = loop.decode._cache_size()
  compiled_by_first_call = None
  for i in range(10):
    params = helpers.random_params(config, i)
    t5x_specdec.speculative_decode(
        T5(config),
        T5(config),
        params,
        helpers.random_params(config, i + 1),
        rng.integers(2, config.vocab_size, [2, 5]),
        max_decode_len=6,
        gamma=2,
        rng=jax.random.key(i),
        temperature=0.1 * i,
        topk=0 if i % 2 else i,
        topp=0.05 * i if i % 2 else 0.0,
        eos_id=i + 1,
        max_decode_steps=1 + i % 5,
    )
    if compiled_by_first_call is None:
      compiled_by_first_call = len(compilations)
  assert loop.decode._cache_size() == before + 1
  assert compiled_by_first_call > 0
  assert len(compilations) == compiled_by_first_call


def test_same_key_same_text_new_key_new_text():
  """The seed reaches every draw; at temperature 0 it does not matter (B08)."""
  config = helpers.CONFIGS['t5_1_1']
  params = helpers.random_params(config, 1)
  draft_params = helpers.random_params(config, 2)
  inputs = np.random.default_rng(1).integers(2, config.vocab_size, [2, 5])

  def decode(seed, temperature):
    result = t5x_specdec.speculative_decode(
        T5(config),
        T5(config),
        params,
        draft_params,
        inputs,
        max_decode_len=6,
        gamma=2,
        rng=jax.random.key(seed),
        temperature=temperature,
        topk=0,
        eos_id=helpers.NO_EOS,
        max_decode_steps=6,
    )
    return jax.tree.map(np.asarray, result)

  for temperature in (0.0, 1.0):
    once, again = decode(0, temperature), decode(0, temperature)
    for ours, theirs in zip(jax.tree.leaves(once), jax.tree.leaves(again)):
      np.testing.assert_array_equal(ours, theirs)
  assert np.any(decode(0, 1.0).tokens != decode(1, 1.0).tokens)
  np.testing.assert_array_equal(decode(0, 0.0).tokens, decode(1, 0.0).tokens)


@pytest.mark.slow
def test_row_keys_make_rows_independent_of_their_batch():
  config = helpers.CONFIGS['t5_1_1']
  params = helpers.random_params(config, 1)
  draft_params = helpers.random_params(config, 2)
  inputs = np.random.default_rng(1).integers(2, config.vocab_size, [4, 5])
  keys = jax.random.split(jax.random.key(5), 4)

  def decode(rows):
    result = t5x_specdec.speculative_decode(
        T5(config),
        T5(config),
        params,
        draft_params,
        inputs[rows],
        max_decode_len=12,
        gamma=3,
        row_keys=keys[rows],
        temperature=1.0,
        topk=0,
        num_decodes=2,
    )
    return np.asarray(result.tokens), np.asarray(result.stats.rounds)

  tokens, rounds = decode(np.arange(4))
  order = np.array([3, 1, 0, 2])
  permuted_tokens, permuted_rounds = decode(order)
  np.testing.assert_array_equal(permuted_tokens, tokens[order])
  np.testing.assert_array_equal(permuted_rounds, rounds[order])
  alone, _ = decode(np.array([2]))
  np.testing.assert_array_equal(alone[0], tokens[2])
