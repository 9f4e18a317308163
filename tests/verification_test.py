# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The two rules of verification beside each other, in whole decodes."""

import functools

from helpers import some_slow
import jax
import laws
import numpy as np
import pytest
from scipy import stats

import t5x_specdec
from t5x_specdec.testing import toys

both_rules = pytest.mark.parametrize(
    'rule', some_slow(['block'], ['token', 'block'])
)


@functools.cache
def decode(rule, gamma=4, temperature=1.0):
  """Twenty thousand texts of the toy pair, of 16 tokens and never an EOS."""
  return laws.toy_texts(
      20_000,
      max_decode_len=16,
      gamma=gamma,
      temperature=temperature,
      rng=jax.random.key(4),
      verification=rule,
  )


def per_row(result, numerator, denominator):
  """Mean and standard error of a ratio of counters over independent rows."""
  top = getattr(result.stats, numerator)[:, 0].astype(np.float64)
  bottom = getattr(result.stats, denominator)[:, 0]
  ratio = top.sum() / bottom.sum()
  error = np.std(top - ratio * bottom) / len(top) ** 0.5 / bottom.mean()
  return ratio, error


@pytest.mark.slow
def test_block_takes_fewer_calls():
  token, block = decode('token'), decode('block')
  (slow, error), (fast, other) = (
      per_row(result, 'emitted', 'rounds') for result in (token, block)
  )
  assert fast - slow > 5 * np.hypot(error, other)


@pytest.mark.slow
def test_alpha_is_the_same_by_either_rule():
  """Corollary 3.6's mean of sum(min(p, q)); what was accepted is not."""
  token, block = decode('token'), decode('block')
  (alpha, error), (other_alpha, other) = (
      per_row(result, 'overlap', 'judged') for result in (token, block)
  )
  assert abs(alpha - other_alpha) < 4 * np.hypot(error, other)
  rate, error = per_row(token, 'accepted', 'judged')
  assert abs(rate - alpha) < 4 * error
  rate, error = per_row(block, 'accepted', 'judged')
  assert rate - alpha > 5 * error
  histograms = [np.sum(r.stats.histogram, axis=(0, 1)) for r in (token, block)]
  shares = [h / h.sum() for h in histograms]
  assert np.abs(shares[0] - shares[1]).max() > 0.01


@pytest.mark.parametrize('gamma', some_slow([4], [1, 4]))
def test_one_rule_at_temperature_0(gamma):
  token, block = (decode(rule, gamma, 0.0) for rule in ('token', 'block'))
  for ours, theirs in zip(jax.tree.leaves(token), jax.tree.leaves(block)):
    np.testing.assert_array_equal(ours, theirs)


def test_one_law_of_rounds_at_gamma_1():
  token, block = (decode(rule, 1) for rule in ('token', 'block'))
  (slow, error), (fast, other) = (
      per_row(result, 'emitted', 'rounds') for result in (token, block)
  )
  assert abs(fast - slow) < 4 * np.hypot(error, other)


@both_rules
def test_a_target_that_fails_after_a_token_keeps_the_law_before_it(rule):
  """And the failure is counted as often as without drafts (B39)."""
  target, draft = laws.toy_tables(11)
  samples = laws.SAMPLES // 4
  target = target.copy()
  target[:, :, 4] = np.nan
  decoder = toys.TableDecoder(laws.VOCAB)
  inputs = np.zeros([samples, 1], np.int32)
  options = {'max_decode_len': 4, 'eos_id': laws.VOCAB, 'topk': 0}
  alone = t5x_specdec.autoregressive_decode(
      decoder, {'table': target}, inputs, rng=jax.random.key(5), **options
  )
  ours = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'table': target},
      {'table': draft},
      inputs,
      gamma=3,
      rng=jax.random.key(6),
      verification=rule,
      **options,
  )
  law = toys.exact_law(target[0, 0, 0], 1.0)
  expected = law * samples
  found = np.bincount(np.asarray(ours.tokens)[:, 0, 0], minlength=laws.VOCAB)
  assert stats.chisquare(found, expected).pvalue > laws.FALSE_ALARM
  failed = [np.asarray(r.stats.nonfinite) > 0 for r in (alone, ours)]
  flagged = [np.mean(rows) for rows in failed]
  error = np.sqrt(2 * 0.25 / samples)
  assert abs(flagged[0] - flagged[1]) < 5 * error
  assert flagged[0] > 0.1


def test_an_unknown_rule_is_refused():
  decoder = toys.TableDecoder(laws.VOCAB)
  with pytest.raises(ValueError, match=r"\['block', 'token'\], got 'blocks'"):
    t5x_specdec.speculative_decode(
        decoder,
        decoder,
        {'table': np.zeros([1, 5, 5, 5], np.float32)},
        {'table': np.zeros([1, 5, 5, 5], np.float32)},
        np.zeros([1, 1], np.int32),
        max_decode_len=4,
        verification='blocks',
    )
