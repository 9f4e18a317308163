# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1's steps 3 and 4 and block verification, by value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec import acceptance
from t5x_specdec import sampling


def keys(rows, seed=0):
  return sampling.row_keys(jax.random.key(seed), rows)


both_rules = pytest.mark.parametrize('rule', acceptance.RULES)


def accept(rule, p, q, drafts, lengths=None, seed=0):
  """Accepts with fresh keys; lengths default to all drafts."""
  rows, gamma = drafts.shape
  lengths = jnp.full([rows], gamma) if lengths is None else lengths
  judgement = acceptance.RULES[rule](
      p, q, drafts, lengths, keys(rows, 2 * seed)
  )
  return judgement.conclude(keys(rows, 2 * seed + 1))


def normalized(rng, *shape):
  law = rng.gamma(0.5, size=shape).astype(np.float32) + np.float32(1e-6)
  return law / law.sum(-1, keepdims=True)


@both_rules
def test_two_tokens_by_hand(rule):
  """Draft (.8, .2), target (.6, .4): never .75/.25 (B02)."""
  rows = 200_000
  p = jnp.broadcast_to(jnp.array([0.6, 0.4]), [rows, 2, 2])
  q = jnp.broadcast_to(jnp.array([0.8, 0.2]), [rows, 1, 2])
  drafts = jax.random.bernoulli(jax.random.key(9), 0.2, [rows, 1])
  verdict = accept(rule, p, q, drafts.astype(jnp.int32))
  accepted = np.asarray(verdict.accepted)
  assert abs(accepted.mean() - 0.8) < 4 * np.sqrt(0.16 / rows)
  np.testing.assert_allclose(verdict.overlap, 0.8, rtol=1e-6)
  # The residual (0, .2) leaves one token.
  np.testing.assert_array_equal(
      np.asarray(verdict.next_token)[accepted == 0], 1
  )
  first = np.where(accepted == 1, drafts[:, 0], verdict.next_token)
  assert abs(first.mean() - 0.4) < 4 * np.sqrt(0.24 / rows)


@both_rules
@pytest.mark.parametrize('seed', range(5))
def test_impossible_tokens_are_rejected_and_never_drawn(rule, seed):
  rng = np.random.default_rng(seed)
  rows, gamma, vocab = 500, 3, 8
  p = normalized(rng, rows, gamma + 1, vocab)
  p[..., ::2] = 0
  q = normalized(rng, rows, gamma, vocab)
  drafts = jnp.asarray(rng.integers(0, 4, [rows, gamma]) * 2)
  verdict = accept(rule, p, q, drafts, seed=seed)
  np.testing.assert_array_equal(verdict.accepted, 0)
  assert np.all(np.asarray(verdict.next_token) % 2 == 1)


@both_rules
def test_lengths_bound_what_is_accepted(rule):
  rng = np.random.default_rng(0)
  p = normalized(rng, 4, 4, 6)
  q = p[:, :3]
  drafts = jnp.asarray(rng.integers(0, 6, [4, 3]))
  lengths = jnp.array([0, 1, 2, 3])
  verdict = accept(rule, p, q, drafts, lengths)
  np.testing.assert_array_equal(verdict.accepted, lengths)


@both_rules
def test_unreal_draft_leaves_p_whole(rule):
  """After a draft of length 0 the next token is drawn from p, not p - q."""
  rows = 100_000
  p = jnp.broadcast_to(jnp.array([0.5, 0.5]), [rows, 2, 2])
  q = jnp.broadcast_to(jnp.array([1.0, 0.0]), [rows, 1, 2])
  drafts = jnp.zeros([rows, 1], jnp.int32)
  verdict = accept(rule, p, q, drafts, jnp.zeros([rows], jnp.int32))
  mean = np.asarray(verdict.next_token).mean()
  assert abs(mean - 0.5) < 4 * np.sqrt(0.25 / rows)


@both_rules
def test_one_hot_q_is_what_none_means(rule):
  rng = np.random.default_rng(1)
  p = normalized(rng, 300, 4, 7)
  drafts = jnp.asarray(rng.integers(0, 7, [300, 3]))
  implied = accept(rule, p, None, drafts)
  stated = accept(rule, p, jax.nn.one_hot(drafts, 7), drafts)
  for ours, theirs in zip(jax.tree.leaves(implied), jax.tree.leaves(stated)):
    np.testing.assert_array_equal(ours, theirs)


@both_rules
@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_draft_law_that_is_not_finite_rejects_and_counts_as_zero(rule, bad):
  rows = 50_000
  rng = np.random.default_rng(2)
  p = np.broadcast_to(normalized(rng, 4), [rows, 2, 4])
  q = np.full([rows, 1, 4], 0.25, np.float32)
  q[:, 0, 3] = bad
  drafts = jnp.zeros([rows, 1], int)
  verdict = accept(rule, jnp.asarray(p), jnp.asarray(q), drafts)
  np.testing.assert_array_equal(verdict.accepted, 0)
  assert np.all(np.isfinite(verdict.overlap))
  frequencies = np.bincount(verdict.next_token, minlength=4) / rows
  np.testing.assert_allclose(frequencies, p[0, 0], atol=0.01)


@both_rules
def test_target_law_that_is_not_finite_stays_in_range(rule):
  p = np.full([3, 3, 5], np.nan, np.float32)
  q = np.full([3, 2, 5], 0.2, np.float32)
  verdict = accept(rule, jnp.asarray(p), jnp.asarray(q), jnp.zeros([3, 2], int))
  np.testing.assert_array_equal(verdict.accepted, 0)
  assert np.all((verdict.next_token >= 0) & (verdict.next_token < 5))
  assert np.all(np.isfinite(verdict.overlap))


def residual(p, q):
  """Algorithm 1's, in which p counts whole."""
  return acceptance.residual(p, q, jnp.ones(len(p)))


def test_residual_of_a_part_of_p():
  p = jnp.array([[0.5, 0.3, 0.2]] * 2)
  q = jnp.array([[0.1, 0.3, 0.6]] * 2)
  found = acceptance.residual(p, q, jnp.array([0.5, 0.1]))
  np.testing.assert_allclose(found[0], [0.15, 0.0, 0.0], atol=1e-7)
  np.testing.assert_array_equal(found[1], p[1])  # nothing is left


def test_residual_keeps_its_precision():
  """Against float64, over seven decades of p and ratios up to 1 (B10)."""
  p = np.logspace(-6, -1, 26)[:, None].astype(np.float32)
  ratio = np.concatenate([np.logspace(-8, -2, 13), [0.1, 0.5, 0.9, 0.99]])
  q = (p.astype(np.float64) * ratio).astype(np.float32)
  exact = p.astype(np.float64) - q
  got = residual(jnp.broadcast_to(p, q.shape), jnp.asarray(q))
  np.testing.assert_allclose(got, exact, rtol=1e-5)
  # Ratios within 1e-7 of 1: the difference of two floats is exact there.
  near = np.nextafter(p, np.float32(0))
  got = residual(jnp.asarray(p.T), jnp.asarray(near.T))
  np.testing.assert_array_equal(got[0], (p - near)[:, 0])
  assert np.all(np.asarray(got) >= 0)


def test_residual_of_equal_laws_is_p():
  """p == q exactly, or nowhere smaller: no NaN, nothing outside p (B12)."""
  p = jnp.array([[0.5, 0.5, 0.0], [0.1, 0.0, 0.9]])
  np.testing.assert_array_equal(residual(p, p), p)
  above = jnp.nextafter(p, jnp.float32(2)) * (p > 0)
  np.testing.assert_array_equal(residual(p, above), p)


def test_greedy_counts_leading_agreement():
  best = jnp.array([[4, 5, 6, 7]] * 4)
  drafts = jnp.array([[4, 5, 6], [4, 9, 6], [9, 5, 6], [4, 5, 9]])
  verdict = acceptance.accept_greedy(best, drafts, jnp.full([4], 3))
  np.testing.assert_array_equal(verdict.accepted, [3, 1, 0, 2])
  np.testing.assert_array_equal(verdict.next_token, [7, 5, 4, 6])
  shorter = acceptance.accept_greedy(best, drafts, jnp.array([2, 2, 2, 2]))
  np.testing.assert_array_equal(shorter.accepted, [2, 1, 0, 2])
  np.testing.assert_array_equal(shorter.next_token, [6, 5, 4, 6])
