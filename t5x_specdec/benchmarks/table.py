# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of a benchmark for a person at a terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

_COLUMNS = {
    'gamma': ('gamma', ''),
    'tokens': ('tokens_per_target_call', '.2f'),
    'ms/round': ('ms_per_round', '.1f'),
    'x alone': ('speedup_vs_autoregressive', '.2f'),
    'x T5X': ('speedup_vs_t5x', '.2f'),
    'x HF': ('speedup_vs_hf', '.2f'),
    'c': ('c', '.3f'),
    'd': ('d', '.2f'),
    'v': ('v', '.2f'),
    'Exp': ('exp', '.2f'),
    'Emp': ('emp', '.2f'),
    'Emp/Exp': ('emp_over_exp', '.2f'),
}
_ALONE = {
    'ours, target alone': 'autoregressive',
    'stock T5X': 't5x',
    'Hugging Face': 'hf',
}


def number(value: float | None, form: str) -> str:
  """A figure, '-' where there is none."""
  return '-' if value is None else format(value, form)


def _spread(entry: dict[str, Any]) -> list[str]:
  low, high = entry['quartiles_ms_per_token']
  return [
      number(entry['ms_per_token'], '.2f'),
      f'{low:.2f} to {high:.2f}',
      number(entry['compile_seconds'], '.1f'),
      {True: 'yes', False: 'NO', None: '-'}[entry['identical']],
  ]


def show(result: dict[str, Any], console: Console) -> None:
  """Prints two tables and what stands below them.

  Args:
    result: from `results.report`, with `bench`'s settings.
    console: where to.
  """
  times = Table(title='Time of the whole call', box=box.SIMPLE_HEAD)
  times.add_column('')
  for name in ('ms/token', 'quartiles', 'compile s', 'same text'):
    times.add_column(name, justify='right')
  for name, key in _ALONE.items():
    if result[key] is not None:
      times.add_row(name, *_spread(result[key]))
  for row in result['rows']:
    gamma = row['gamma']
    times.add_row(f'ours, gamma {gamma}', *_spread(row))
    if row['hf_assisted'] is not None:
      times.add_row(f'HF assisted, {gamma}', *_spread(row['hf_assisted']))
  console.print(times)

  table = Table(
      title='Tokens per target call, speed-ups, and what steps cost',
      box=box.SIMPLE_HEAD,
      padding=0,  # 80 columns are all used
  )
  for name in _COLUMNS:
    table.add_column(name, justify='right', no_wrap=True)
  for row in result['rows']:
    table.add_row(*(number(row[k], form) for k, form in _COLUMNS.values()))
  console.print(table)
  if result['loops']:
    console.print(_loops(result['loops']))
  for line in notes(result):
    console.print(line, soft_wrap=True)


def _loops(loops: list[dict[str, Any]]) -> Table:
  """Time per round of loops, and against the one that is named first."""
  table = Table(title='Ways to choose and to judge', box=box.SIMPLE_HEAD)
  for name in ('gamma', 'loop', 'tokens', 'ms/round', f'x {loops[0]["loop"]}'):
    table.add_column(name, justify='right')
  first: dict[int, float | None] = {}
  for row in loops:
    base = first.setdefault(row['gamma'], row['ms_per_round'])
    both = base and row['ms_per_round']
    table.add_row(
        str(row['gamma']),
        row['loop'],
        number(row['tokens_per_target_call'], '.2f'),
        number(row['ms_per_round'], '.2f'),
        number(row['ms_per_round'] / base if both else None, '.3f'),
    )
  return table


def notes(result: dict[str, Any]) -> list[str]:
  """What is said in sentences."""
  bandwidth, logits = result['bandwidth'], result['logits']
  lines = [
      f'weights read at {number(bandwidth["weights_gb_per_s"], ".1f")} GB/s, '
      f'memory at {number(bandwidth["read_gb_per_s"], ".1f")} GB/s: '
      f'{number(bandwidth["share"], ".0%")}',
      'peak memory: '
      + ', '.join(
          f'{name} {value / 2**30:.1f} GiB'
          for name, value in result['peak_memory_bytes'].items()
      ),
      'logits of random weights differ by at most '
      + ', '.join(
          f'{number(value, ".1e")} ({name})'
          for name, value in logits['differences'].items()
      ),
      f'{result["machine"]["cores"]} cores, {result["machine"]["model"]}; '
      f'XLA_FLAGS: {result["xla_flags"] or "none"}; repeats '
      + ('interleaved' if result['interleaved'] else 'one process at a time'),
  ]
  for row in result['rows']:
    if row['gamma'] == 'auto':
      # One number, whatever it is: all rounds were at it.
      rounds = row['rounds_by_gamma']
      chosen = rounds.index(max(rounds))
      told = '' if chosen else ': drafts do not pay here, decoded plainly'
      lines.append(f'gamma auto is {chosen}{told}')
    if ragged := row['ragged']:
      lines.append(
          f'gamma {row["gamma"]}: {ragged["tokens"]} tokens in '
          f'{ragged["rounds"]} rounds, the slowest row alone '
          f'{ragged["slowest_rounds"]}; {ragged["tokens_per_second"]:.1f} '
          f'tokens/s, {ragged["share"]:.0%} of what its rounds predict'
      )
  lines += [f'not measured: {k} ({v})' for k, v in result['absent'].items()]
  lines += [f'ERROR in {k}: {v}' for k, v in result['errors'].items()]
  return lines + failures(result)


def failures(result: dict[str, Any]) -> list[str]:
  """What makes the figures worthless, one sentence each."""
  lines = []
  logits = result['logits']
  if not logits['agree']:
    lines.append(
        'FAILED: logits differ by more than the tolerance '
        f'{logits["tolerance"]}: these are not the same models'
    )
  if result['planted'] and result['identical'] is False:
    lines.append('FAILED: texts are not those that were planted')
  for row in result['rows']:
    ragged = row['ragged']
    if ragged and ragged['rounds'] != ragged['slowest_rounds']:
      lines.append(
          f'FAILED: gamma {row["gamma"]} took {ragged["rounds"]} rounds, its '
          f'slowest row alone takes {ragged["slowest_rounds"]}'
      )
  return lines
