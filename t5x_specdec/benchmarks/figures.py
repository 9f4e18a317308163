# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Medians of a sitting's times."""

from __future__ import annotations

from typing import Any

import numpy as np

from t5x_specdec.benchmarks.sitting import Record


def ratio(numerator: float | None, denominator: float | None) -> float | None:
  """A quotient; None where a part is missing or nothing was left of it."""
  if numerator is None or denominator is None or denominator <= 0:
    return None
  return numerator / denominator


def without(whole: float | None, part: float | None) -> float | None:
  """A difference; None where one of the two is missing."""
  if whole is None or part is None:
    return None
  return whole - part


class Figures:
  """Medians of a record, in milliseconds."""

  def __init__(self, record: Record):
    self._record = record

  def median(self, name: str, case: str) -> float | None:
    """Milliseconds of a run, or of a step of a part; None if not measured."""
    seconds = self._record.seconds.get((name, case))
    return 1e3 * float(np.median(seconds)) if seconds else None

  def per_token(self, name: str, case: str, tokens: int) -> dict[str, Any]:
    """ms_per_token with its quartiles, and the time to compile."""
    seconds = self._record.seconds[name, case]
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    first = self._record.first[name, case]
    return {
        'ms_per_token': 1e3 * middle / tokens,
        'quartiles_ms_per_token': [1e3 * low / tokens, 1e3 * high / tokens],
        # The first run compiles, and then runs.
        'compile_seconds': max(first - middle, 0.0),
    }
