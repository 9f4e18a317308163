# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Appendix A.5: what lenience loses is bounded; what it gains is as said."""

import functools
from typing import Any

from helpers import some_slow
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from scipy import stats

import t5x_specdec
from t5x_specdec import acceptance
from t5x_specdec import sampling
from t5x_specdec import theory
from t5x_specdec import validation
from t5x_specdec.testing import toys

LENIENCES = (0.5, 0.1)
P = np.array([0.45, 0.30, 0.15, 0.07, 0.03])
Q = np.array([0.10, 0.05, 0.25, 0.20, 0.40])


def lenient_law(p, q, lenience):
  """The law of a token after one draft, from the rule as A.5 states it."""
  stands = np.minimum(1, p / (lenience * q))
  rest = np.maximum(0, p - lenience * q)
  rejected = 1 - np.sum(q * stands)
  if rest.sum():
    rest = rest / rest.sum()
  return q * stands + rejected * rest


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**32 - 1), st.floats(0.01, 1.0))
def test_no_token_exceeds_p_over_l(vocab, seed, lenience):
  """The bound that the docstring proves, and that the law is one."""
  rng = np.random.default_rng(seed)
  p, q = rng.dirichlet(np.ones(vocab)), rng.dirichlet(np.full(vocab, 0.3))
  law = lenient_law(p, np.maximum(q, 1e-12), lenience)
  assert law.sum() == pytest.approx(1)
  assert np.all(law <= p / lenience + 1e-9)


def first_tokens(lenience, rows=100_000):
  """Tokens after one draft from Q each, and the verdicts."""
  drafts = np.random.default_rng(0).choice(len(Q), p=Q, size=[rows, 1])
  judgement = acceptance.judge_tokens(
      jnp.broadcast_to(jnp.float32(P), [rows, 2, len(P)]),
      jnp.broadcast_to(jnp.float32(Q), [rows, 1, len(Q)]),
      jnp.asarray(drafts),
      jnp.ones([rows], jnp.int32),
      sampling.row_keys(jax.random.key(1), rows),
      lenience,
  )
  verdict = judgement.conclude(sampling.row_keys(jax.random.key(2), rows))
  accepted = np.asarray(verdict.accepted)
  tokens = np.where(accepted == 1, drafts[:, 0], verdict.next_token)
  return tokens, accepted, np.asarray(verdict.overlap)


def chance(tokens, law):
  counts = np.bincount(tokens, minlength=len(law))
  return stats.chisquare(counts, law * len(tokens)).pvalue


@pytest.mark.parametrize('lenience', LENIENCES)
def test_a_token_has_the_lenient_law(lenience):
  tokens, accepted, overlap = first_tokens(lenience)
  rate = np.sum(np.minimum(P / lenience, Q))
  error = np.sqrt(rate * (1 - rate) / len(tokens))
  assert abs(accepted.mean() - rate) <= 5 * error + 1e-6
  np.testing.assert_allclose(overlap, rate, rtol=1e-5)
  law = lenient_law(P, Q, lenience)
  assert np.all(law <= P / lenience)
  assert chance(tokens, law) > laws.FALSE_ALARM
  # It is not the target's, so that the flag is no decoration.
  assert chance(tokens, P) < laws.DETECTED


def test_a_residual_of_plain_p_is_found(monkeypatch):
  """And would break the bound: what q has too much of gets p on top."""
  monkeypatch.setattr(acceptance, 'residual', lambda p, q, scale: p)
  tokens, _, _ = first_tokens(0.5)
  assert chance(tokens, lenient_law(P, Q, 0.5)) < laws.DETECTED
  share = np.bincount(tokens, minlength=len(P)) / len(tokens)
  assert np.any(share > P / 0.5 + 0.005)


@functools.cache
def decode(lenience, temperature=1.0, rows=20_000, **options):
  """Texts of the toy pair, of 12 tokens and never an EOS."""
  if temperature == 'mixed':
    temperature = np.resize(np.float32([0.0, 1.0]), rows)
  return laws.toy_texts(
      rows,
      max_decode_len=12,
      gamma=3,
      temperature=temperature,
      rng=jax.random.key(4),
      verification='token',
      lenience=lenience,
      **options,
  )


def contexts(tokens):
  """The token before the last, the last, and the next, for all positions."""
  text = np.pad(tokens[:, 0], ((0, 0), (2, 0)))
  return text[:, :-2], text[:, 1:-1], text[:, 2:]


@pytest.mark.parametrize('lenience', some_slow([0.5], LENIENCES))
def test_every_token_of_a_text_is_bounded(lenience):
  """Given the text before it, also behind other lenient ones."""
  law = toys.exact_law(laws.toy_tables(9)[0][0], 1.0)
  counts = np.zeros(law.shape)
  np.add.at(counts, contexts(decode(lenience).tokens), 1)
  seen = counts.sum(axis=-1, keepdims=True)
  share = counts / np.maximum(seen, 1)
  error = np.sqrt(share * (1 - share) / np.maximum(seen, 1)) + 1 / (seen + 1)
  assert np.all((share <= law / lenience + 5 * error) | (seen < 200))
  # The target's own probability is exceeded somewhere, by far.
  assert np.any((share > law + 10 * error) & (seen >= 200))


@pytest.mark.slow
def test_alpha_is_as_in_table_5():
  """Corollary 3.6 with p / l: measured, it rises as lenience falls."""
  alphas = []
  for lenience in (1.0, *LENIENCES):
    counters = decode(lenience).stats
    judged = counters.judged[:, 0]
    alpha = counters.overlap.sum() / judged.sum()
    rate = counters.accepted.sum() / judged.sum()
    residuals = counters.accepted[:, 0] - rate * judged
    error = residuals.std() / len(judged) ** 0.5 / judged.mean()
    assert abs(rate - alpha) < 5 * error
    # The contexts that were judged are not listed; the first one is known.
    alphas.append(alpha)
  assert np.all(np.diff(alphas) > 0.02)


@pytest.mark.parametrize('lenience', some_slow([0.5], LENIENCES))
def test_alpha_of_one_context(lenience):
  """Where every context has one law, alpha is that sum(min(p / l, q))."""
  vocab = len(P)
  decoder = toys.TableDecoder(vocab)
  p, q = (
      {'table': np.tile(np.log(law), (1, vocab, vocab, 1)).astype(np.float32)}
      for law in (P, Q)
  )
  result = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      p,
      q,
      np.zeros([5000, 1], np.int32),
      max_decode_len=20,
      eos_id=vocab,
      gamma=2,
      topk=0,
      verification='token',
      lenience=lenience,
  )
  summary = result.stats.summary()
  alpha = float(theory.acceptance_rate(P, Q, lenience))
  assert summary['alpha'] == pytest.approx(alpha, rel=1e-4)
  error = np.sqrt(alpha * (1 - alpha) / summary['judged'])
  assert abs(summary['alpha_empirical'] - alpha) <= 5 * error + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize('lenience', LENIENCES)
def test_greedy_texts_are_near_the_best(lenience):
  law = toys.exact_law(laws.toy_tables(9)[0][0], 1.0)
  # At temperature 0 all rows of one input are one; inputs differ by prompt.
  prompts = np.arange(laws.VOCAB, dtype=np.int32)[1:, None]
  options = {'rows': laws.VOCAB - 1, 'temperature': 0.0, 'prompts': prompts}
  # Arrays are no key of a cache.
  result = decode.__wrapped__(lenience, **options)
  before, last, token = (x[:, 1:] for x in contexts(result.tokens))
  p, best = law[before, last, token], law[before, last].max(axis=-1)
  assert np.all(p >= lenience * best * (1 - 1e-6))
  np.testing.assert_array_equal(result.scores, 0.0)
  exact = decode.__wrapped__(1.0, **options)
  assert np.any(exact.tokens != result.tokens)
  assert exact.stats.rounds.sum() > result.stats.rounds.sum()


def test_a_near_best_draft_stands_down_to_its_bound():
  """p is (.5, .3, .2): .3 stands for l = .5 and not for .7; drafts that are
  not real never do."""
  logits = jnp.log(jnp.tile(jnp.array([0.5, 0.3, 0.2]), (3, 3, 1)))
  drafts = jnp.array([[1, 0], [2, 0], [1, 1]])
  lengths = jnp.array([2, 2, 1])
  verdict = acceptance.accept_near_best(logits, drafts, lengths, 0.5)
  np.testing.assert_array_equal(verdict.accepted, [2, 0, 1])
  np.testing.assert_array_equal(verdict.next_token, 0)
  verdict = acceptance.accept_near_best(logits, drafts, lengths, 0.7)
  np.testing.assert_array_equal(verdict.accepted, [0, 0, 0])
  failed = jnp.full([1, 3, 3], jnp.nan)
  verdict = acceptance.accept_near_best(failed, drafts[:1], lengths[:1], 0.5)
  np.testing.assert_array_equal(verdict.accepted, 0)


@pytest.mark.slow
def test_greedy_rows_among_others_follow_their_own_rule():
  mixed, greedy = decode(0.3, 'mixed', 64), decode(0.3, 0.0, 64)
  for ours, theirs in zip(jax.tree.leaves(mixed), jax.tree.leaves(greedy)):
    np.testing.assert_array_equal(ours[::2], theirs[::2])


@pytest.mark.slow
def test_one_is_exact_and_says_so():
  plain = t5x_specdec.speculative_decode
  decoder = toys.TableDecoder(laws.VOCAB)
  target, draft = laws.toy_tables(9)
  arguments = (decoder, decoder, {'table': target}, {'table': draft})
  inputs = np.zeros([50, 1], np.int32)
  options: dict[str, Any] = {'max_decode_len': 8, 'topk': 0, 'gamma': 2}
  for rule in ('token', 'block'):
    options['verification'] = rule
    silent = plain(*arguments, inputs, **options)
    stated = plain(*arguments, inputs, lenience=1, **options)
    assert silent.stats.lenient is None
    assert silent.stats.summary()['exact'] is True
    assert jax.tree.structure(silent) == jax.tree.structure(stated)
    for ours, theirs in zip(jax.tree.leaves(silent), jax.tree.leaves(stated)):
      np.testing.assert_array_equal(ours, theirs)


def test_a_lenient_run_says_so():
  result = decode(0.5)
  assert result.stats.summary()['exact'] is False
  np.testing.assert_array_equal(result.stats.lenient, result.stats.rounds)
  assert 'lenient' in result.stats.counters()
  assert 'lenient' not in decode(1.0).stats.counters()


@pytest.mark.parametrize(
    'bad', [0.0, -1, 1.5, np.nan, np.inf, 1e-40, 'half', True, None]
)
def test_what_is_no_lenience_is_refused(bad):
  with pytest.raises(ValueError, match=r'lenience must be .* in \(0, 1\]'):
    decode.__wrapped__(bad, rows=2)


def test_at_the_smallest_lenience_every_draft_stands():
  least = float(np.finfo(np.float32).eps)
  assert validation.checked_lenience(least, 'token') == least
  _, accepted, overlap = first_tokens(least, rows=1000)
  assert np.all(accepted == 1)
  np.testing.assert_allclose(overlap, 1.0, rtol=1e-5)


def test_a_traced_lenience_is_refused():
  with pytest.raises(ValueError, match='lenience must be a number'):
    jax.jit(lambda lenience: decode.__wrapped__(lenience, rows=2))(0.5)


def test_blocks_are_not_judged_leniently():
  decoder = toys.TableDecoder(laws.VOCAB)
  target, draft = laws.toy_tables(9)
  with pytest.raises(ValueError, match="needs verification='token', got 'blo"):
    t5x_specdec.speculative_decode(
        decoder,
        decoder,
        {'table': target},
        {'table': draft},
        np.zeros([1, 1], np.int32),
        max_decode_len=4,
        lenience=0.5,
    )
