# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""95% intervals by resampling sentences."""

from collections.abc import Callable
from typing import Any

import numpy as np

_RESAMPLES = 1000


def interval(
    statistic: Callable[[np.ndarray], Any], count: int
) -> tuple[float, float]:
  """Returns the 95% bootstrap interval of a statistic of some sentences.

  Args:
    statistic: takes the indices of the sentences drawn, int64[count], returns a
      number.
    count: how many sentences there are.
  """
  rng = np.random.default_rng(0)
  values = [
      statistic(rng.integers(count, size=count)) for _ in range(_RESAMPLES)
  ]
  low, high = np.quantile(values, [0.025, 0.975])
  return float(low), float(high)


def ratio(
    top: np.ndarray, bottom: np.ndarray
) -> tuple[float, tuple[float, float]]:
  """Returns a ratio of two sums over sentences, and its interval.

  Args:
    top: number[sentences].
    bottom: number[sentences].
  """
  value = float(np.sum(top) / np.sum(bottom))
  return value, interval(
      lambda drawn: top[drawn].sum() / bottom[drawn].sum(), len(top)
  )
