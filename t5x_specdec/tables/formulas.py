# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Table 1, which follows from the formulas alone."""

from __future__ import annotations

from typing import Any

from t5x_specdec import theory
from t5x_specdec.tables import paper


def table_1() -> dict[str, Any]:
  """Operations and speed at c = c_hat = 0; see the package for the form."""
  rows = []
  for row in paper.TABLE_1:
    speed = theory.walltime_improvement(row.alpha, row.gamma, 0.0)
    operations = theory.operations_factor(row.alpha, row.gamma, 0.0)
    rows.append({
        'alpha': row.alpha,
        'gamma': row.gamma,
        'paper': {'operations': row.operations, 'speed': row.speed},
        'ours': {'operations': float(operations), 'speed': float(speed)},
    })
  return {
      'table': 1,
      'title': 'Arithmetic operations and speed, drafts for free (c = 0)',
      'differs': 'nothing: both are Theorems 3.11 and 3.8',
      'rows': rows,
  }
