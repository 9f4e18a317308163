# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of samples against an exact law, their effect sizes and their power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import math
from typing import Any

import numpy as np
from scipy import optimize
from scipy import stats

# Expected count from which the chi-square law is near enough.
_LEAST_EXPECTED = 10.0
# Probability of finding the effects that are called detectable.
POWER = 0.9


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What one test of a hypothesis found.

  Attributes:
    p_value: probability of as much or more, were the hypothesis true.
    effect: how far off it is, in the unit of the test; for one with a
      non-central law Cohen's w, the root of statistic / samples.
    samples: what the test counted.
    detectable: level -> the smallest effect that a test at this level finds
      with probability `POWER`.
  """

  p_value: float
  effect: float
  samples: int
  detectable: Callable[[float], float]


def _from_chi_square(statistic: float, freedom: int, samples: int) -> Outcome:
  """The outcome of a test whose effect shifts the chi-square law."""

  def detectable(level: float) -> float:
    return smallest_effect(level, freedom, samples)

  return Outcome(
      p_value=float(stats.chi2.sf(statistic, freedom)),
      effect=math.sqrt(max(statistic - freedom, 0.0) / max(samples, 1)),
      samples=samples,
      detectable=detectable,
  )


def smallest_effect(level: float, freedom: int, samples: int) -> float:
  """Cohen's w that a chi-square test finds with probability `POWER`.

  Laws at a total variation distance of d are at least w = 2 d apart.

  Args:
    level: of the test.
    freedom: its degrees of freedom.
    samples: how many it sees.

  Returns:
    The w; inf without samples.
  """
  if not samples:
    return math.inf
  critical = stats.chi2.isf(level, freedom)

  def lacks(shift):
    return float(stats.ncx2.sf(critical, freedom, shift)) - POWER

  return math.sqrt(_root(lacks, 1e-6, 1e6) / samples)


def _root(f: Callable[[float], Any], low: float, high: float) -> float:
  """Where a function of different signs at both ends is 0."""
  found: Any = optimize.brentq(f, low, high)
  return float(found)


def chi_square(observed: np.ndarray, expected: np.ndarray) -> Outcome:
  """Chi-square test of counts.

  Rare cells are pooled with their neighbours in rarity until none expects fewer
  than `_LEAST_EXPECTED`: the statistic of rarer ones has a longer tail than the
  chi-square law, and would fail right decoders.

  Args:
    observed: int[cells].
    expected: float[cells], of the same sum.

  Returns:
    The outcome; p value 0.0 where something was observed that has no
    probability.
  """
  observed = np.asarray(observed, np.float64)
  statistic, freedom = _pooled_statistic(observed, np.asarray(expected))
  return _from_chi_square(statistic, freedom, int(observed.sum()))


def chi_squares(
    tables: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Outcome:
  """One test of several independent tables of counts; see `chi_square`."""
  found = [_pooled_statistic(*table) for table in tables]
  return _from_chi_square(
      sum(statistic for statistic, _ in found),
      sum(freedom for _, freedom in found),
      int(sum(observed.sum() for observed, _ in tables)),
  )


def _pooled_statistic(
    observed: np.ndarray, expected: np.ndarray
) -> tuple[float, int]:
  """The statistic and its degrees of freedom, at least 1."""
  if np.any(observed[expected <= 0] > 0):
    return math.inf, 1
  order = np.argsort(expected, kind='stable')
  starts, total = [0], 0.0
  for i, count in enumerate(expected[order]):
    if total >= _LEAST_EXPECTED:
      starts.append(i)
      total = 0.0
    total += count
  if total < _LEAST_EXPECTED and len(starts) > 1:
    starts.pop()
  if len(starts) == 1:
    return 0.0, 1
  expected = np.add.reduceat(expected[order], starts)
  found = np.add.reduceat(observed[order].astype(np.float64), starts)
  return float(np.sum((found - expected) ** 2 / expected)), len(found) - 1


def joint_table(
    outputs: np.ndarray, law: dict[tuple[int, ...], float]
) -> tuple[np.ndarray, np.ndarray]:
  """Whole outputs as counts beside what their exact law expects.

  Args:
    outputs: int[samples, length].
    law: {output: probability}.

  Returns:
    Two float64[cells], observed and expected; the last cell is for outputs
    without a probability.
  """
  texts, counts = np.unique(outputs, axis=0, return_counts=True)
  index = {text: i for i, text in enumerate(law)}
  observed = np.zeros(len(law) + 1)
  for text, count in zip(texts.tolist(), counts):
    observed[index.get(tuple(text), len(law))] += count
  expected = np.array([*law.values(), 0.0]) * len(outputs)
  return observed, expected


def normal(total: float, variance: float, samples: int) -> Outcome:
  """Test that a sum of terms of known variance has mean 0.

  Args:
    total: the sum.
    variance: of the sum, were the hypothesis true.
    samples: how many terms.

  Returns:
    The outcome, its effect the mean over the terms' standard deviation.
  """
  if variance <= 0:
    return _from_chi_square(0.0 if total == 0 else math.inf, 1, samples)
  return _from_chi_square(total**2 / variance, 1, samples)


def paired(differences: np.ndarray) -> Outcome:
  """Student's t test that independent differences have mean 0.

  Args:
    differences: float[samples].

  Returns:
    The outcome, its effect the mean over the standard deviation.
  """
  samples = len(differences)
  deviation = float(np.std(differences, ddof=1)) if samples > 1 else 0.0
  if not deviation:
    return Outcome(1.0, 0.0, samples, lambda level: math.inf)
  t = float(np.mean(differences)) / deviation * math.sqrt(samples)

  def detectable(level: float) -> float:
    critical = stats.t.isf(level / 2, samples - 1)

    def lacks(effect):
      shift = effect * math.sqrt(samples)
      return float(stats.nct.sf(critical, samples - 1, shift)) - POWER

    return _root(lacks, 0.0, 20.0)

  return Outcome(
      p_value=float(2 * stats.t.sf(abs(t), samples - 1)),
      effect=abs(t) / math.sqrt(samples),
      samples=samples,
      detectable=detectable,
  )


def smallest_of(outcomes: Sequence[Outcome]) -> tuple[Outcome, int]:
  """One outcome of several independent tests: the worst, and which it is.

  Args:
    outcomes: at least one.

  Returns:
    The worst, its p value that of the smallest of as many, and its index.
  """
  count = len(outcomes)
  worst = min(range(count), key=lambda i: outcomes[i].p_value)
  outcome = outcomes[worst]
  return (
      dataclasses.replace(
          outcome,
          p_value=float(-np.expm1(count * np.log1p(-outcome.p_value)))
          if outcome.p_value < 1
          else 1.0,
          detectable=lambda level: outcome.detectable(level / count),
      ),
      worst,
  )


def shared_noise(groups: Sequence[np.ndarray]) -> Outcome:
  """Test that the standard normal numbers within each group are independent.

  Were they correlated, their sum would vary more than as many numbers do.

  Args:
    groups: float[n] each; groups with fewer than two are left out.

  Returns:
    The outcome, its effect the mean correlation between two of a group.
  """
  groups = [group for group in groups if len(group) > 1]
  sizes = np.array([len(group) for group in groups], np.float64)
  sums = np.array([group.sum() for group in groups])
  freedom = max(len(groups), 1)
  statistic = float(np.sum(sums**2 / sizes)) if groups else 0.0
  pairs = float(np.sum(sizes - 1))

  def detectable(level: float) -> float:
    if not pairs:
      return math.inf
    inflation = stats.chi2.isf(level, freedom) / stats.chi2.isf(POWER, freedom)
    return float((inflation - 1) * freedom / pairs)

  return Outcome(
      p_value=float(stats.chi2.sf(statistic, freedom)),
      effect=(statistic - freedom) / pairs if pairs else 0.0,
      samples=int(sizes.sum()),
      detectable=detectable,
  )
