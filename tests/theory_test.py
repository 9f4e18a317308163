# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Formulas against enumeration, simulation and what the paper prints."""

import itertools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec import acceptance
from t5x_specdec import sampling
from t5x_specdec import theory

P, Q = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])


def enumerated(p, q, gamma, rule):
  """Expected accepted drafts, summed over drafts and outcomes by definition."""
  total = 0.0
  for draft in itertools.product(range(len(q)), repeat=gamma):
    mass = np.prod(q[list(draft)])
    if not mass:
      continue
    if rule == 'token':
      stands = np.minimum(1, p[list(draft)] / q[list(draft)])
      total += mass * np.sum(np.cumprod(stands))
      continue
    r = [1.0]
    for x in draft:
      r.append(min(1.0, r[-1] * p[x] / q[x]))
    left = 1.0
    for i in range(gamma, 0, -1):
      z = np.sum(np.maximum(0, r[i] * p - q)) if i < gamma else 0.0
      h = r[gamma]
      if i < gamma:
        h = z / (z + 1 - r[i]) if z + 1 - r[i] else 1.0
      total += mass * left * h * i
      left *= 1 - h
  return total


def test_the_papers_check_value():
  """Ten ninths by tokens, eleven by blocks, at gamma 2."""
  assert enumerated(P, Q, 2, 'token') == pytest.approx(10 / 9)
  assert enumerated(P, Q, 2, 'block') == pytest.approx(11 / 9)
  alpha = theory.acceptance_rate(P, Q)
  assert theory.expected_tokens(alpha, 2) - 1 == pytest.approx(10 / 9)
  found = theory.expected_tokens_by_blocks(P, Q, 2)
  assert found - 1 == pytest.approx(11 / 9, abs=1e-12)


@pytest.mark.parametrize('rule, want', [('token', 10 / 9), ('block', 11 / 9)])
def test_the_check_value_by_simulation(rule, want):
  rows, gamma = 400_000, 2
  drafts = np.random.default_rng(0).choice(2, p=Q, size=[rows, gamma])
  verdict = acceptance.RULES[rule](
      jnp.broadcast_to(jnp.float32(P), [rows, gamma + 1, 2]),
      jnp.broadcast_to(jnp.float32(Q), [rows, gamma, 2]),
      jnp.asarray(drafts),
      jnp.full([rows], gamma),
      sampling.row_keys(jax.random.key(1), rows),
      sampling.row_keys(jax.random.key(2), rows),
  )
  accepted = np.asarray(verdict.accepted)
  error = accepted.std() / rows**0.5
  assert abs(accepted.mean() - want) < 4 * error
  # And what the two tell apart is many errors wide.
  assert error < 1 / 90 / 4


def test_monte_carlo_agrees_with_the_recursion():
  rng = np.random.default_rng(3)
  p, q = rng.dirichlet([0.5] * 6), rng.dirichlet([0.5] * 6)
  drafts = rng.choice(6, p=q, size=[200_000, 4])
  mean, error = theory.estimated_tokens_by_blocks((p / q)[drafts])
  exact = theory.expected_tokens_by_blocks(p, q, 4)
  assert abs(mean - exact) < 4 * error
  assert error < 0.01


laws = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8).filter(
    lambda weights: sum(weights) > 1e-3
)


@settings(max_examples=200, deadline=None)
@given(laws, st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_blocks_are_never_behind_and_equal_at_gamma_1(weights, seed, gamma):
  p = np.array(weights) / sum(weights)
  rng = np.random.default_rng(seed)
  q = rng.dirichlet(np.full(len(p), rng.choice([0.1, 1.0, 10.0])))
  alpha = float(np.minimum(p, q).sum())
  by_tokens = sum(alpha**i for i in range(gamma + 1))
  by_blocks = theory.expected_tokens_by_blocks(p, q, gamma)
  assert by_blocks >= by_tokens - 1e-6
  assert by_blocks <= gamma + 1 + 1e-6
  if gamma == 1:
    assert by_blocks == pytest.approx(by_tokens)
  if len(p) ** gamma <= 512:
    found = 1 + enumerated(p, q, gamma, 'block')
    assert by_blocks == pytest.approx(found)


def test_equation_1_and_theorem_3_8():
  """Table 2's first row: alpha .75, gamma 7, c .02 gives 3.2X."""
  assert theory.expected_tokens(0.5, 1) == pytest.approx(1.5)
  assert theory.expected_tokens(1.0, 4) == 5
  assert round(float(theory.walltime_improvement(0.75, 7, 0.02)), 1) == 3.2
