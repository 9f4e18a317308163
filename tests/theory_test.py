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
  judgement = acceptance.RULES[rule](
      jnp.broadcast_to(jnp.float32(P), [rows, gamma + 1, 2]),
      jnp.broadcast_to(jnp.float32(Q), [rows, gamma, 2]),
      jnp.asarray(drafts),
      jnp.full([rows], gamma),
      sampling.row_keys(jax.random.key(1), rows),
  )
  accepted = np.asarray(judgement.accepted)
  error = accepted.std() / rows**0.5
  assert abs(accepted.mean() - want) < 4 * error
  # And what the two tell apart is many errors wide.
  assert error < 1 / 90 / 4
  # Not only the mean: the law of tokens per call, too.
  law = theory.tokens_law(theory.acceptance_rate(P, Q), gamma)
  if rule == 'block':
    law = theory.law_of_survival(theory.survival_by_blocks(P, Q, gamma))
  found = np.bincount(accepted, minlength=gamma + 1) / rows
  assert np.all(np.abs(found - law) < 5 * np.sqrt(law * (1 - law) / rows))


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
  assert by_blocks <= theory.most_tokens_by_blocks(alpha, gamma) + 1e-6
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


# What the paper prints: alpha, gamma, and the two factors of Table 1.
TABLE_1 = [
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
]
# Table 4: alpha, gamma, c, and the column Exp.
TABLE_4 = [
    (0.75, 7, 0.02, 3.2),
    (0.80, 7, 0.04, 3.3),
    (0.82, 7, 0.11, 2.5),
    (0.62, 7, 0.02, 2.3),
    (0.68, 5, 0.04, 2.4),
    (0.71, 3, 0.11, 2.0),
    (0.65, 5, 0.02, 2.4),
    (0.73, 5, 0.04, 2.6),
    (0.74, 3, 0.11, 2.0),
    (0.53, 5, 0.02, 1.9),
    (0.55, 3, 0.04, 1.8),
    (0.56, 3, 0.11, 1.6),
]


def test_table_1():
  """c = c_hat = 0; every printed figure, for arrays as for numbers."""
  alphas, gammas, operations, speeds = np.array(TABLE_1).T
  speed = theory.walltime_improvement(alphas, gammas, 0.0)
  factor = theory.operations_factor(alphas, gammas, 0.0)
  np.testing.assert_array_equal(np.round(speed, 2), speeds)
  np.testing.assert_array_equal(np.round(factor, 2), operations)
  for alpha, gamma, operation, speed in TABLE_1:
    found = theory.operations_factor(alpha, gamma, 0.0)
    assert round(float(found), 2) == operation
    found = theory.walltime_improvement(alpha, gamma, 0.0)
    assert round(float(found), 2) == speed


def test_table_4():
  """Within what two printed digits of alpha and c leave open."""
  alphas, gammas, costs, printed = np.array(TABLE_4).T
  found = theory.walltime_improvement(alphas, gammas, costs)
  assert np.abs(found - printed).max() < 0.07


rates = st.floats(0.0, 1.0)
costs = st.floats(0.0, 1.2)


@settings(max_examples=200, deadline=None)
@given(rates, costs)
def test_the_best_gamma_is_best_and_as_good_as_promised(alpha, c):
  """Figure 3 by trying all; Corollary 3.9."""
  largest = 40
  best = int(theory.best_gamma(alpha, c, largest))
  speeds = [
      sum(alpha**i for i in range(gamma + 1)) / (gamma * c + 1)
      for gamma in range(largest + 1)
  ]
  assert speeds[best] == pytest.approx(max(speeds), rel=2e-6)
  promised = float(theory.guaranteed_improvement(alpha, c))
  assert max(speeds) >= promised * (1 - 1e-12)
  if alpha > c:
    assert promised == pytest.approx((1 + alpha) / (1 + c))
  else:
    assert promised == 1
    # No gamma improves at all.
    assert max(speeds) <= 1 + 1e-12
  oracle = float(theory.oracle_improvement(alpha, c))
  assert oracle >= max(speeds) * (1 - 1e-12)


def test_figure_3():
  """Best gamma rises with alpha and falls with c; hand-checked places."""
  alphas = np.linspace(0.3, 0.9, 61)[:, None]
  found = theory.best_gamma(alphas, np.array([0.01, 0.02, 0.05, 0.1]))
  assert np.all(np.diff(found, axis=0) >= 0)
  assert np.all(np.diff(found, axis=1) <= 0)
  # 1.8 / 1.5 at gamma 1 against 2.44 / 2 at 2 and 2.952 / 2.5 at 3.
  assert theory.best_gamma(0.8, 0.5) == 2
  assert theory.best_gamma(0.5, 0.6) == 0
  assert theory.best_gamma(0.5, 0.0, 9) == 9
  np.testing.assert_array_equal(theory.best_gamma(alphas, alphas), 0)


def test_the_oracle_by_simulation():
  """Rounds whose draft ends just where the target would reject."""
  rng = np.random.default_rng(0)
  alpha, c = 0.8, 0.1
  drafts = rng.geometric(1 - alpha, 200_000) - 1
  speed = np.sum(drafts + 1) / np.sum(1 + c * drafts)
  assert theory.oracle_improvement(alpha, c) == pytest.approx(speed, rel=0.01)
  assert theory.oracle_improvement(alpha, 2.0) == 1  # it drafts nothing
  assert theory.oracle_improvement(1.0, 0.0) == np.inf


def test_the_oracle_gains_about_sixty_percent_at_most():
  """Section 3.5, over the alphas and costs of the paper's tables."""
  alphas, costs = np.meshgrid(np.linspace(0.5, 0.9, 41), [0.02, 0.04, 0.11])
  ratios = theory.oracle_ratio(alphas, costs)
  assert np.all(ratios >= 1)
  assert 1.5 < ratios.max() < 1.65


@pytest.mark.parametrize('alpha', [0.0, 0.3, 0.75, 0.99, 1.0])
def test_the_law_of_tokens_by_simulation(alpha):
  """Algorithm 1 on independent acceptances, against Equation 1 and its law."""
  rows, gamma = 200_000, 5
  rng = np.random.default_rng(1)
  stands = rng.random([rows, gamma]) < alpha
  tokens = 1 + np.sum(np.cumprod(stands, axis=1), axis=1)
  law = theory.tokens_law(alpha, gamma)
  assert law.sum() == pytest.approx(1)
  counts = np.bincount(tokens, minlength=gamma + 2)[1:]
  error = np.sqrt(law * (1 - law) / rows)
  assert np.all(np.abs(counts / rows - law) <= 5 * error + 1e-12)
  mean = law @ np.arange(1, gamma + 2)
  assert mean == pytest.approx(float(theory.expected_tokens(alpha, gamma)))


def test_expected_tokens_near_certainty_in_float32():
  """As 1 - alpha^(gamma + 1) it would be off by a percent."""
  alpha = np.float32(1 - 2.0**-20)
  exact = sum(float(alpha) ** i for i in range(8))
  found = jax.jit(theory.expected_tokens)(alpha, 7)
  assert float(found) == pytest.approx(exact, rel=1e-5)


def test_formulas_broadcast_under_jit():
  """Traced arrays give what NumPy gives."""
  alphas, costs = np.array([[0.1], [0.7], [1.0]]), np.array([0.02, 0.5])
  for formula in (
      lambda a, c: theory.walltime_improvement(a, 4, c),
      lambda a, c: theory.operations_factor(a, 4, c),
      theory.guaranteed_improvement,
      theory.best_gamma,
      theory.oracle_ratio,
      lambda a, c: theory.tokens_law(a * (1 - c), 3),
  ):
    here, there = formula(alphas, costs), jax.jit(formula)(alphas, costs)
    assert isinstance(here, np.ndarray)
    np.testing.assert_allclose(here, there, rtol=1e-5)


@settings(max_examples=100, deadline=None)
@given(laws, st.integers(0, 2**32 - 1), st.floats(0.01, 1.0))
def test_divergence_and_lenient_acceptance(weights, seed, lenience):
  """Theorem 3.5: what D_LK leaves; A.5: as drawing from q and judging."""
  p = np.array(weights) / sum(weights)
  q = np.random.default_rng(seed).dirichlet(np.ones(len(p)))
  rate = theory.acceptance_rate(p, q)
  assert rate == pytest.approx(1 - theory.divergence(p, q))
  judged = np.sum(q * np.minimum(1, p / (lenience * q)), where=q > 0)
  assert theory.acceptance_rate(p, q, lenience) == pytest.approx(judged)
  both = theory.alpha(np.stack([p, q]), np.stack([q, q]), lenience)
  assert both == pytest.approx((judged + 1) / 2)


def test_survival_under_block_verification():
  """At gamma 2 it is the check value's: 2/3, then 11/9 - 2/3."""
  at_least = theory.survival_by_blocks(P, Q, 2)
  np.testing.assert_allclose(at_least, [1, 2 / 3, 5 / 9])
  np.testing.assert_allclose(
      theory.law_of_survival(at_least), [1 / 3, 1 / 9, 5 / 9]
  )
