# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown."""

from __future__ import annotations

from typing import Any


def _cell(x: Any) -> str:
  if isinstance(x, float):
    return f'{x:.3g}'
  return '-' if x is None else str(x)


def show(rows: list[dict[str, Any]]) -> None:
  """Prints rows with the columns of the first."""
  names = list(rows[0])
  print('| ' + ' | '.join(names) + ' |', '|---' * len(names) + '|', sep='\n')
  for row in rows:
    cells = ' | '.join(_cell(row[name]) for name in names)
    print(f'| {cells} |', flush=True)
