# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Formulas of the paper. Array-valued: arguments broadcast, NumPy or JAX."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = Any


def expected_tokens(alpha: Array, gamma: Array) -> Array:
  """Equation 1: expected tokens per target call.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.

  Returns:
    (1 - alpha^(gamma + 1)) / (1 - alpha), and gamma + 1 at alpha = 1.
  """
  certain = alpha == 1
  beta = jnp.where(certain, 0.5, alpha)
  tokens = (1 - beta ** (gamma + 1)) / (1 - beta)
  return jnp.where(certain, gamma + 1.0, tokens)


def walltime_improvement(alpha: Array, gamma: Array, c: Array) -> Array:
  """Theorem 3.8: expected speed-up against decoding with the target alone.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.
    c: time of one draft step over time of one target step.

  Returns:
    (1 - alpha^(gamma + 1)) / ((1 - alpha) (gamma c + 1)).
  """
  return expected_tokens(alpha, gamma) / (gamma * c + 1)


def oracle_improvement(alpha: Array, c: Array) -> Array:
  """Section 3.5: expected speed-up of an oracle that knows the next rejection.

  It drafts just what will be accepted, 1 / (1 - alpha) - 1 tokens a round on
  average, so no choice of gamma is faster.

  Args:
    alpha: acceptance rate in [0, 1], drafts being accepted independently.
    c: time of one draft step over time of one target step, in [0, 1].

  Returns:
    1 / (1 - alpha + alpha c).
  """
  return 1 / (1 - alpha + alpha * c)


def oracle_runs(rounds: Iterable[tuple[int, int]]) -> list[int]:
  """Accepted drafts between one rejection and the next, along a text.

  A round whose drafts were all accepted ends where it had no more of them and
  not at a rejection. The oracle is given the benefit of the doubt: the target's
  own token after them counts as one more draft that would have stood.

  Args:
    rounds: drafted and accepted drafts of each round of one text, in order, as
      in `trace.Trace.rounds`.

  Returns:
    The length of each run; after it the target's own token stands. A run may be
    0 long. They and one token each make up the text, except that EOS may have
    ended it with an accepted draft.
  """
  runs, run = [], 0
  for drafted, accepted in rounds:
    run += accepted
    if accepted < drafted:
      runs.append(run)
      run = 0
    else:
      run += 1
  # What is left ends with the target's own token of the last round.
  return [*runs, run - 1] if run else runs


def oracle_walltime(runs: Array, c: Array) -> Array:
  """Time in which the oracle of Section 3.5 decodes a recorded text.

  Args:
    runs: int[n], from `oracle_runs`.
    c: time of one draft step over time of one target step; from 1 on drafts
      never pay, and the oracle has none.

  Returns:
    In target steps: one per run, and c per draft.
  """
  runs = np.asarray(runs)
  return len(runs) + np.minimum(c, 1.0) * np.sum(runs)


def acceptance_rate(p: Array, q: Array) -> Array:
  """Theorem 3.5: beta = 1 - D_LK(p, q), the sum over x of min(p(x), q(x)).

  Args:
    p: the target's law, [..., vocab].
    q: the draft's, likewise.

  Returns:
    [...].
  """
  return jnp.sum(jnp.minimum(p, q), axis=-1)


def expected_tokens_by_blocks(
    p: np.ndarray, q: np.ndarray, gamma: int
) -> float:
  """Expected tokens per target call under block verification, exactly.

  For laws that do not depend on the context. At least i drafts stand with
  probability E(r_i) over drafts from q (arXiv 2403.10444), so the expectation
  is 1 + E(r_1) + ... + E(r_gamma). The law of r_i is carried along value by
  value: a value that several texts share is kept once.

  Args:
    p: float[vocab], the target's law.
    q: float[vocab], the draft's.
    gamma: drafts per round, >= 0.

  Returns:
    A number in [1, gamma + 1]; with Equation 1 at alpha = sum(min(p, q)) for
    comparison, which it is never below.
  """
  p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
  ratio, q = p[q > 0] / q[q > 0], q[q > 0]
  r, mass, tokens = np.ones(1), np.ones(1), 1.0
  for _ in range(gamma):
    longer = np.minimum(1.0, r[:, None] * ratio)
    r, kind = np.unique(longer, return_inverse=True)
    mass = np.bincount(kind.ravel(), weights=(mass[:, None] * q).ravel())
    tokens += float(mass @ r)
  return tokens


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
