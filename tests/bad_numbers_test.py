# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbers that go wrong: NaN, overflow, ties, extremes. Nothing goes silently.

What is not finite in a draft costs speed and nothing else; what is not finite
in the target is counted, row by row.
"""

import dataclasses

import helpers
from helpers import some_slow
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import parameters
from t5x_specdec import sampling
from t5x_specdec import T5
from t5x_specdec.testing import toys

VOCAB = laws.VOCAB


def counting(rows):
  """Tables whose text is 2 3 4 2 3 4 ..., by far the likeliest."""
  table = np.zeros([rows, VOCAB, VOCAB, VOCAB], np.float32)
  table[:, :, np.arange(VOCAB), [2, 2, 3, 4, 2]] = 100
  return table


@pytest.mark.parametrize('rule', ['token', 'block'])
@pytest.mark.parametrize('temperature', [0.0, 1.0])
@pytest.mark.parametrize('length, failing', [(9, True), (3, False)])
def test_a_target_that_is_not_finite_is_reported_row_by_row(
    rule, temperature, length, failing
):
  """From the token on that needs the logits, and not before."""
  target = draft = counting(5)
  target = target.copy()
  # After 3 4, where the fourth token is drawn.
  target[1, 3, 4] = np.nan
  target[2, 3, 4, 0] = np.nan
  target[3, 3, 4, 4] = np.inf
  target[4, 3, 4] = -np.inf
  decoder = toys.TableDecoder(VOCAB)
  result = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'table': target},
      {'table': draft},
      np.arange(5)[:, None],
      max_decode_len=9,
      # Traced: both lengths are one compilation.
      max_decode_steps=length,
      eos_id=VOCAB,
      gamma=3,
      temperature=temperature,
      topk=0,
      verification=rule,
  )
  tokens = np.asarray(result.tokens)[:, 0]
  assert tokens.min() >= 0 and tokens.max() < VOCAB
  text = np.where(np.arange(9) < length, np.resize([2, 3, 4], 9), 0)
  np.testing.assert_array_equal(tokens[0], text)
  np.testing.assert_array_equal(tokens[:, :3], [text[:3]] * 5)
  np.testing.assert_array_equal(
      np.asarray(result.stats.nonfinite)[:, 0] > 0, [False, *[failing] * 4]
  )
  assert np.all(np.isfinite(result.stats.overlap))


@pytest.mark.parametrize('rule', some_slow(['block'], ['token', 'block']))
@pytest.mark.parametrize('bad', some_slow([np.nan], [np.nan, np.inf]))
def test_a_draft_that_is_not_finite_leaves_the_law_alone(bad, rule):
  """After some of the tokens, in the first, a middle or the last draft."""
  target, draft = laws.toy_tables(1)
  draft = draft.copy()
  draft[..., 3, :] = bad
  draft[:, 2, :, 1] = bad
  outputs = laws.sample(
      (target, draft),
      gamma=3,
      samples=50_000,
      verification=rule,
      **laws.METHODS['plain'],
  )
  law = toys.enumerate_outputs(toys.exact_law(target[0], 1.0), laws.LENGTH)
  p_value, distance = laws.p_value(outputs, law)
  assert p_value > laws.FALSE_ALARM, (p_value, distance)


def t5(dtype, gain=1.0):
  """A small T5; its feed-forward outputs are `gain` times as large."""
  config = dataclasses.replace(helpers.CONFIGS['t5_1_1'], dtype=dtype)
  flat = parameters.flatten(helpers.random_params(config, 91))
  flat = {
      path: leaf * np.float32(gain if 'wo' in path else 1)
      for path, leaf in flat.items()
  }
  return T5(config), parameters.unflatten(flat)


def decode_t5(target, draft, temperature):
  inputs = helpers.random_inputs(np.random.default_rng(0), 6, 5, 37)
  inputs[2] = 0  # all of it is masked
  result = t5x_specdec.speculative_decode(
      target[0],
      draft[0],
      target[1],
      draft[1],
      inputs,
      max_decode_len=8,
      eos_id=helpers.NO_EOS,
      gamma=3,
      temperature=temperature,
      topk=1,
  )
  return jax.tree.map(np.asarray, result)


@pytest.mark.slow
def test_a_draft_that_overflows_in_float16_changes_no_text():
  """Beside a fully masked input, which is decoded like any other."""
  right = decode_t5(t5('float32'), t5('float16'), 0.0)
  assert np.mean(right.stats.accepted) > 2
  for temperature in (0.0, 1.0):
    wrong = decode_t5(t5('float32'), t5('float16', 1e6), temperature)
    np.testing.assert_array_equal(wrong.tokens, right.tokens)
    assert not np.any(wrong.stats.nonfinite)
  # At temperature 1 a law is asked for, and there is none.
  np.testing.assert_array_equal(wrong.stats.accepted, 0)


@pytest.mark.slow
def test_a_target_that_overflows_in_float16_says_so():
  for gain, failing in ((1.0, False), (1e6, True)):
    result = decode_t5(t5('float16', gain), t5('float16'), 1.0)
    assert np.all((result.tokens >= 0) & (result.tokens < 37))
    np.testing.assert_array_equal(result.stats.nonfinite > 0, failing)


@pytest.mark.parametrize('name', ['key', 'value'])
def test_what_the_cache_cannot_hold_is_said_by_its_token(name):
  """A key or value that overflows though the residual stream does not."""
  decoder, params = t5('float16')
  flat = parameters.flatten(params)
  (path,) = (
      path
      for path in flat
      if path[:2] == ('decoder', 'layers_0') and path[2] == 'self_attention'
      and path[3] == name
  )
  flat[path] = flat[path] * np.float32(1e5)
  inputs = jnp.ones([2, 3], jnp.int32)
  score = jax.jit(decoder.logits)
  logits = score(parameters.unflatten(flat), inputs, inputs)
  assert np.all(np.isnan(logits))
  assert np.all(np.isfinite(score(params, inputs, inputs)))


def method(temperature, topk=0, topp=0.0):
  temperature = jnp.asarray(temperature, jnp.float32)
  return sampling.Method(temperature, jnp.int32(topk), jnp.float32(topp))


law = jax.jit(sampling.law)


def test_logits_equal_everywhere():
  """Uniform, filters keep all, and the lowest id is the greedy one."""
  values = np.float32([0, 1e-40, 1, -7, 3e38, -3e38])
  logits = np.repeat(values[:, None], 11, axis=1)
  # Two zeros that are equal, and are not to be told apart by their bits.
  logits[0, ::2] = -0.0
  for filters in ({}, {'topk': 1}, {'topk': 4}, {'topp': 0.2}):
    for temperature in (1e-3, 1.0, 1e3):
      found = law(logits, method([temperature] * 6, **filters))
      np.testing.assert_allclose(found, 1 / 11, rtol=1e-5)
  found = law(logits, method([0.0] * 6))
  np.testing.assert_array_equal(found, [np.eye(11)[0]] * 6)


def test_denormal_logits():
  logits = np.float32([[1e-40, -1e-45, 3e-39, 0]])
  for filters in ({}, {'topp': 1.0}):
    found = law(logits, method([1.0], **filters))
    np.testing.assert_allclose(found, 0.25, rtol=1e-6)
  assert np.isfinite(law(logits, method([1e3], topk=2))).all()


def test_temperatures_from_the_least_to_the_largest():
  """Two logits that only a temperature near the limit can tell apart."""
  logits = np.float32([[0, 5e-5, -1, 4]]) - np.float32([[0, 0, 0, 6]])
  for temperature in (0, 1e-6, 1e-5, 1e-4, 1.01e-4, 1e-3, 0.1, 10, 1e3):
    want = toys.exact_law(logits, temperature)
    found = law(logits, method([temperature]))
    np.testing.assert_allclose(found, want, atol=1e-6, rtol=1e-5)
    greedy = temperature <= 1e-4
    assert (np.max(found) == 1) == greedy


@pytest.mark.slow
@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_a_vocabulary_of_more_than_sixteen_bits(temperature):
  vocab = 2**16 + 4_000
  text = np.array([[3, vocab - 1, 2**16, 2**16 + 1, 0, 2**16 - 1, 70]])
  wrong = text.copy()
  wrong[0, 3] = 1  # what 2^16 + 1 is in sixteen bits
  decoder = toys.ScriptDecoder(vocab)
  result = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'script': text},
      {'script': wrong},
      np.zeros([1, 1], np.int32),
      max_decode_len=7,
      gamma=6,
      temperature=temperature,
      topk=1,
  )
  np.testing.assert_array_equal(result.tokens[0, 0], text[0])
  assert result.stats.rounds[0, 0] == 2
  assert result.stats.accepted[0, 0] == 5


def test_filters_of_a_vocabulary_of_more_than_sixteen_bits():
  vocab, kept = 2**16 + 4_000, 2**16 + 7
  logits = np.random.default_rng(0).permutation(vocab).astype(np.float32) * 1e-4
  found = np.asarray(law(logits[None], method([1.0], topk=kept)))[0]
  np.testing.assert_array_equal(found > 0, logits >= np.sort(logits)[-kept])
