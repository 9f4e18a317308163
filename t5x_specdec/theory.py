# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Formulas of the paper. Array-valued: arguments broadcast, NumPy or JAX.

Numbers are those of Leviathan et al. (2023). Where an argument is a JAX array,
traced or not, so is the result; otherwise it is NumPy's, in float64.

Equation 1 and all that follows from it count on acceptances that are
independent and of one rate alpha. Under block verification the expected tokens
are no function of alpha: see `survival_by_blocks`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any


def _namespace(*arrays: Array) -> Any:
  """`jax.numpy` where one of them is JAX's, else `numpy`."""
  return jnp if any(isinstance(x, jax.Array) for x in arrays) else np


def divergence(p: Array, q: Array) -> Array:
  """Definition 3.2: D_LK(p, q), the sum over x of |p(x) - (p(x) + q(x)) / 2|.

  Args:
    p: a law, [..., vocab].
    q: another, likewise.

  Returns:
    [...], in [0, 1]: 0 for equal laws, 1 for laws without a token in common.
  """
  xp = _namespace(p, q)
  return xp.sum(xp.abs(p - (p + q) / 2), axis=-1)


def acceptance_rate(p: Array, q: Array, lenience: Array = 1.0) -> Array:
  """Theorem 3.5: beta = 1 - D_LK(p, q), the sum over x of min(p(x), q(x)).

  Args:
    p: the target's law, [..., vocab].
    q: the draft's, likewise.
    lenience: l of Appendix A.5, in (0, 1], [...]: the sum is of min(p / l, q).

  Returns:
    [...].
  """
  xp = _namespace(p, q, lenience)
  bound = p / xp.asarray(lenience)[..., None]
  return xp.sum(xp.minimum(bound, q), axis=-1)


def alpha(p: Array, q: Array, lenience: Array = 1.0) -> Array:
  """Corollary 3.6: alpha = E(beta), over contexts that count alike.

  Args:
    p: the target's law in each context, [..., vocab].
    q: the draft's, likewise.
    lenience: l of Appendix A.5, in (0, 1].

  Returns:
    A number in [0, 1].
  """
  return _namespace(p, q, lenience).mean(acceptance_rate(p, q, lenience))


def expected_tokens(alpha: Array, gamma: Array) -> Array:
  """Equation 1: expected tokens per target call.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.

  Returns:
    (1 - alpha^(gamma + 1)) / (1 - alpha), and gamma + 1 at alpha = 1.
  """
  xp = _namespace(alpha, gamma)
  alpha, gamma = xp.asarray(alpha), xp.asarray(gamma)
  inside = (alpha > 0) & (alpha < 1)
  base = xp.where(inside, alpha, 0.5)
  # As 1 - alpha^(gamma + 1) it would lose all its digits near alpha = 1.
  tokens = -xp.expm1((gamma + 1) * xp.log(base)) / (1 - base)
  return xp.where(inside, tokens, xp.where(alpha >= 1, gamma + 1.0, 1.0))


def tokens_law(alpha: Array, gamma: int) -> Array:
  """The law whose mean Equation 1 is: a geometric one, cut at gamma + 1.

  Args:
    alpha: acceptance rate in [0, 1], [...].
    gamma: drafts per round, >= 0.

  Returns:
    [..., gamma + 1], the probability of 1, 2, ..., gamma + 1 tokens per call.
  """
  xp = _namespace(alpha)
  at_least = xp.asarray(alpha)[..., None] ** xp.arange(gamma + 1)
  return law_of_survival(at_least)


def law_of_survival(at_least: Array) -> Array:
  """From the chances that at least i drafts stand to those of i + 1 tokens.

  Args:
    at_least: [..., gamma + 1], for i = 0 (certain) to gamma.

  Returns:
    [..., gamma + 1], the probability of 1, 2, ..., gamma + 1 tokens per call.
  """
  xp = _namespace(at_least)
  over = xp.zeros_like(at_least[..., :1])
  return at_least - xp.concatenate([at_least[..., 1:], over], axis=-1)


def improvement(tokens: Array, draft: Array, verify: Array) -> Array:
  """Theorem 3.8 with what a round really costs, and whatever rule it follows.

  Args:
    tokens: expected tokens per target call.
    draft: d, time of the whole draft phase, over one target step's; the paper's
      is gamma c.
    verify: v, time of the target's call on gamma + 1 tokens, likewise; 1 in the
      paper.

  Returns:
    tokens / (d + v), the expected speed-up against the target alone.
  """
  return tokens / (draft + verify)


def walltime_improvement(alpha: Array, gamma: Array, c: Array) -> Array:
  """Theorem 3.8: expected speed-up against decoding with the target alone.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.
    c: time of one draft step over time of one target step.

  Returns:
    (1 - alpha^(gamma + 1)) / ((1 - alpha) (gamma c + 1)).
  """
  return improvement(expected_tokens(alpha, gamma), gamma * c, 1)


def guaranteed_improvement(alpha: Array, c: Array) -> Array:
  """Corollary 3.9: what the best gamma reaches at least.

  Args:
    alpha: acceptance rate in [0, 1].
    c: time of one draft step over time of one target step.

  Returns:
    (1 + alpha) / (1 + c) where alpha > c, which gamma = 1 gives; elsewhere 1,
    since then no gamma improves, and one does not speculate.
  """
  xp = _namespace(alpha, c)
  return xp.maximum((1 + alpha) / (1 + xp.asarray(c)), 1.0)


def operations_factor(alpha: Array, gamma: Array, c_hat: Array) -> Array:
  """Theorem 3.11: arithmetic operations against those of the target alone.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.
    c_hat: operations of one draft step over those of one target step, per
      token.

  Returns:
    (1 - alpha) (gamma c_hat + gamma + 1) / (1 - alpha^(gamma + 1)).
  """
  return (gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma)


def best_gamma(alpha: Array, c: Array, max_gamma: int = 64) -> Array:
  """Section 3.5: the gamma that maximizes Theorem 3.8, found by trying all.

  Args:
    alpha: acceptance rate in [0, 1].
    c: time of one draft step over time of one target step, >= 0.
    max_gamma: the largest gamma tried. With c = 0 more drafts never hurt, and
      it is the answer.

  Returns:
    Integers in [0, max_gamma], 0 where it does not pay to speculate; of equal
    ones the smallest.
  """
  xp = _namespace(alpha, c)
  alpha, c = xp.asarray(alpha)[..., None], xp.asarray(c)[..., None]
  gammas = xp.arange(max_gamma + 1)
  speeds = walltime_improvement(alpha, gammas, c)
  # What differs by rounding is equal.
  good = speeds >= xp.max(speeds, axis=-1, keepdims=True) * (1 - 1e-6)
  return xp.argmax(good, axis=-1)


def oracle_improvement(alpha: Array, c: Array) -> Array:
  """Section 3.5: speed-up of a gamma that knows the next rejection.

  Every round drafts just the tokens that will stand: 1 / (1 - alpha) tokens per
  call, and a draft for each but one. Where a draft step is no cheaper than a
  target step the oracle drafts nothing.

  Args:
    alpha: acceptance rate in [0, 1].
    c: time of one draft step over time of one target step, >= 0.

  Returns:
    1 / (1 - alpha + alpha min(c, 1)); infinite at alpha = 1, c = 0.
  """
  xp = _namespace(alpha, c)
  cost = 1 - alpha + alpha * xp.minimum(c, 1.0)
  free = cost <= 0
  return xp.where(free, xp.inf, 1 / xp.where(free, 1.0, cost))


def oracle_ratio(alpha: Array, c: Array, max_gamma: int = 64) -> Array:
  """Section 3.5: what that oracle gains over the best fixed gamma.

  Args:
    alpha: acceptance rate in [0, 1].
    c: time of one draft step over time of one target step, >= 0.
    max_gamma: as for `best_gamma`.

  Returns:
    A factor >= 1; up to about 1.6 for alpha and c as in the paper.
  """
  fixed = walltime_improvement(alpha, best_gamma(alpha, c, max_gamma), c)
  return oracle_improvement(alpha, c) / fixed


def survival_by_blocks(p: np.ndarray, q: np.ndarray, gamma: int) -> np.ndarray:
  """Chances that drafts stand under block verification, exactly.

  For laws that do not depend on the context. At least i drafts stand with
  probability E(r_i) over drafts from q (arXiv 2403.10444). The law of r_i is
  carried along value by value: a value that several texts share is kept once.

  Args:
    p: float[vocab], the target's law.
    q: float[vocab], the draft's.
    gamma: drafts per round, >= 0.

  Returns:
    float64[gamma + 1], the probability that at least i drafts stand.
  """
  p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
  ratio, q = p[q > 0] / q[q > 0], q[q > 0]
  r, mass, at_least = np.ones(1), np.ones(1), [1.0]
  for _ in range(gamma):
    longer = np.minimum(1.0, r[:, None] * ratio)
    r, kind = np.unique(longer, return_inverse=True)
    mass = np.bincount(kind.ravel(), weights=(mass[:, None] * q).ravel())
    at_least.append(float(mass @ r))
  return np.array(at_least)


def expected_tokens_by_blocks(
    p: np.ndarray, q: np.ndarray, gamma: int
) -> float:
  """Expected tokens per target call under block verification, exactly.

  Args:
    p: float[vocab], the target's law, whatever the context.
    q: float[vocab], the draft's.
    gamma: drafts per round, >= 0.

  Returns:
    A number in [1, gamma + 1]; with Equation 1 at alpha = sum(min(p, q)) for
    comparison, which it is never below.
  """
  return float(survival_by_blocks(p, q, gamma).sum())


def most_tokens_by_blocks(alpha: Array, gamma: Array) -> Array:
  """What no pair of this alpha exceeds under block verification.

  At least i drafts stand with probability E(r_i), and given r the next one's
  mean is sum(min(q, r p)), which is at most r: so E(r_i) <= E(r_1) = alpha.
  Equation 1 is the bound from below; alpha alone does not tell where between
  the two a pair is.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.

  Returns:
    1 + gamma alpha.
  """
  return 1 + gamma * alpha


def estimated_tokens_by_blocks(ratios: np.ndarray) -> tuple[float, float]:
  """The same by Monte Carlo, for laws that depend on the context.

  Args:
    ratios: float[samples, gamma], p_i(x_i) / q_i(x_i) along drafts x from q.

  Returns:
    The mean and its standard error, of samples that are independent.
  """
  r, tokens = np.ones(len(ratios)), np.ones(len(ratios))
  for ratio in np.asarray(ratios, np.float64).T:
    r = np.minimum(1.0, r * ratio)
    tokens += r
  return float(tokens.mean()), float(tokens.std() / len(tokens) ** 0.5)
