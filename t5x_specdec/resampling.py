# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""95% intervals by resampling sentences.

Drafts of one sentence are not independent, so sentences are resampled whole: an
interval that took each draft for itself would be too narrow.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math
import numbers
from typing import Any

import numpy as np

_RESAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A figure and, where it was estimated from a sample, its 95% interval."""

  value: float
  low: float | None = None
  high: float | None = None

  def __post_init__(self):
    if (self.low is None) != (self.high is None):
      raise ValueError(f'half an interval: [{self.low}, {self.high}]')
    ends = [] if self.low is None else [self.low, self.high]
    for number in (self.value, *ends):
      if not isinstance(number, numbers.Real) or not math.isfinite(number):
        raise ValueError(f'an estimate must be finite, got {number!r}')


def interval(
    statistic: Callable[[np.ndarray], Any], count: int
) -> tuple[float, float]:
  """Returns the 95% bootstrap interval of a statistic of some sentences.

  Args:
    statistic: takes the indices of the sentences drawn, int64[count], returns a
      number.
    count: how many sentences there are.
  """
  values = [statistic(drawn) for drawn in _drawn(count)]
  low, high = np.quantile(values, [0.025, 0.975])
  return float(low), float(high)


def ratio(top: np.ndarray, bottom: np.ndarray) -> Estimate:
  """Returns a ratio of two sums over sentences.

  Args:
    top: number[sentences], e.g. `Stats.overlap`.
    bottom: number[sentences], e.g. `Stats.judged`; not all 0.

  Returns:
    The ratio; of one sentence alone without an interval.
  """
  top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
  value = float(top.sum() / bottom.sum())
  if len(top) < 2:
    return Estimate(value)
  drawn = _drawn(len(top))
  tops, bottoms = top[drawn].sum(axis=1), bottom[drawn].sum(axis=1)
  kept = bottoms > 0
  low, high = np.quantile(tops[kept] / bottoms[kept], [0.025, 0.975])
  return Estimate(value, float(low), float(high))


def _drawn(count: int) -> np.ndarray:
  """Indices of sentences, int64[resamples, count], the same every time."""
  rng = np.random.default_rng(0)
  return rng.integers(count, size=[_RESAMPLES, count])
