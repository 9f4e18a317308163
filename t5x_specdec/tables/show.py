# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables for a person at a terminal, the paper's figure beside ours."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

# Keys of a row that say what it is of, and the figures to show, by table.
_COLUMNS: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    1: (('alpha', 'gamma'), ('operations', 'speed')),
    2: (('task', 'draft', 'temperature'), ('gamma', 'alpha', 'measured')),
    3: (('target', 'draft'), ('t0', 't1')),
    4: (('task', 'draft', 'temperature'), ('gamma', 'expected', 'measured')),
    5: (('draft', 'temperature'), ('1', '0.5', '0.3', '0.1')),
}
_NAMES = {
    'temperature': 'T',
    'expected': 'Exp',
    'measured': 'Emp',
    't0': 'T=0',
    't1': 'T=1',
    '1': 'l=1',
    '0.5': 'l=.5',
    '0.3': 'l=.3',
    '0.1': 'l=.1',
}
_FACTORS = ('operations', 'speed', 'measured', 'expected')
_TENTHS = ('measured', 'expected')


def show(table: dict[str, Any], console: Console) -> None:
  """Prints a table and what differs between its two columns.

  Args:
    table: see the package.
    console: where to.
  """
  of, figures = _COLUMNS[table['table']]
  console.print(f'Table {table["table"]}: {table["title"]}', soft_wrap=True)
  printed = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
  for name in of:
    # The first is what gives way where all is wider than the terminal.
    printed.add_column(_NAMES.get(name, name), no_wrap=name != of[0])
  for name in figures:
    for whose in ('paper', 'ours'):
      title = f'{_NAMES.get(name, name)}\n{whose}'
      printed.add_column(title, justify='right', no_wrap=True)
  for row in table['rows']:
    cells = [_name(row[name]) for name in of]
    for name in figures:
      for whose in ('paper', 'ours'):
        # As many digits as the paper prints.
        digits = 1 if whose == 'paper' and name in _TENTHS else 2
        cells.append(_cell(row[whose], name, len(figures) < 4, digits))
    printed.add_row(*cells)
  console.print(printed)
  for line in notes(table):
    console.print(line, soft_wrap=True)
  console.print()


def _name(value: Any) -> str:
  """What a row is of."""
  if value is None:
    return ''
  return f'{value:g}' if isinstance(value, float) else str(value)


def _cell(
    side: dict[str, Any] | None, name: str, interval: bool, digits: int
) -> str:
  """A figure, half its interval's width beside it where there is room."""
  value = (side or {}).get(name)
  if value is None:
    return '-'
  if isinstance(value, dict):
    half = (value['high'] - value['low']) / 2
    return f'{value["alpha"]:.3f}' + (f' ±{half:.3f}' if interval else '')
  if isinstance(value, int | str):
    return str(value)
  return f'{value:.{digits}f}' + ('x' if name in _FACTORS else '')


def notes(table: dict[str, Any]) -> list[str]:
  """What differs, and what a cell has no room for."""
  lines = [f'What differs: {table["differs"]}.']
  for row in table['rows']:
    ours = row['ours'] or {}
    if row.get('run'):
      rest = "the rest of Emp is that loop's over T5X"
      if ours['measured'] is None:
        rest = 'T5X was not timed'
      lines.append(
          f'{row["run"]}, gamma {ours["gamma"]}: over our own loop without a '
          f'draft {ours["against_alone"]:.2f}x; {rest}'
      )
    if table['table'] == 4 and ours.get('with_costs') is not None:
      lines.append(
          f'{row["run"]}, gamma {ours["gamma"]}: Exp counts the target\'s call '
          f'as one step; with what it took {ours["with_costs"]:.2f}x'
      )
    if table['table'] == 3 and row['draft'] == 'model':
      for temperature, entry in ours.items():
        judged, accepted = (
            f'{x["alpha"]:.3f} [{x["low"]:.3f}, {x["high"]:.3f}]'
            for x in (entry['judged_alpha'], entry['accepted'])
        )
        lines.append(
            f'{row["target"]}, T={temperature[1:]}, {entry["tokens"]:,} '
            f'tokens: of the drafts that speculation judged {accepted} stood; '
            f'Corollary 3.6 of the same {judged}'
        )
  return lines
