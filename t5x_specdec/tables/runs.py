# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables 2 and 4 from runs of ours: what `--json` of two programs printed.

`scripts/table2.py` measures a row of the paper's own, with its checkpoints, in
T5X; `t5x-specdec bench` whatever pair it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import json
import os
from typing import Any

from t5x_specdec import theory
from t5x_specdec.tables import paper

# How a row of Table 2 is measured.
COMMANDS = (
    'python scripts/table2.py --json '
    '--gin_file=t5x_specdec/configs/table2/ende_small_t0.gin ... > run.json',
    't5x-specdec bench --target demo --json > run.json',
)

Run = dict[str, Any]


def read(paths: Iterable[str | os.PathLike[str]]) -> list[Run]:
  """Reads runs; one of several gammas counts as several.

  Args:
    paths: files whose last line is what `bench --json` or `table2.py --json`
      printed.

  Returns:
    For each its file; name, of the paper's row that it measures, or None; pair,
    target and draft in words; machine; temperature; gamma; alpha; c; draft and
    verify, d and v of `theory.improvement`; tokens_per_target_call; expected,
    Theorem 3.8; with_costs, the same with d and v as measured; measured, the
    speed-up over T5X; against_alone, that over our own loop without a draft;
    step_ms of the target; and encode_ms, the encoder's share in a token, which
    a step gives to each row. What was not measured is None.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: a file holds no such line.
  """
  found = []
  for path in paths:
    path = os.fspath(path)
    with open(path, encoding='utf-8') as file:
      try:
        lines = file.read().strip().splitlines() or ['']
        result = json.loads(lines[-1])
      except ValueError:
        raise ValueError(f'--runs {path}: its last line is not JSON') from None
    if not isinstance(result, dict):
      result = {}
    if 'autoregressive' in result:
      found += [{'file': path} | run for run in _of_bench(result)]
    elif 'ms_per_token' in result:
      found.append({'file': path} | _of_table2(result))
    else:
      raise ValueError(
          f'--runs {path}: its last line comes neither from t5x-specdec bench '
          '--json nor from scripts/table2.py --json'
      )
  return found


def _expected(
    alpha: float | None, gamma: int, c: float | None
) -> float | None:
  if alpha is None or c is None:
    return None
  return float(theory.walltime_improvement(alpha, gamma, c))


def _of_bench(result: dict[str, Any]) -> list[Run]:
  """A run for each gamma of a benchmark."""
  machine, alone = result['machine'], result['autoregressive']
  encode = None
  if alone['decode_ms_per_token'] is not None:
    encode = alone['ms_per_token'] - alone['decode_ms_per_token']
    encode *= result['batch_size']
  pair = f'{result["target"]} with {result["draft"]}'
  if result['planted']:
    pair += f', planted at alpha {result["planted_alpha"]:g}'
  return [
      {
          'name': None,
          'pair': pair,
          'machine': f'{machine["cores"]} cores, {machine["model"]}',
          'temperature': result['temperature'],
          'gamma': row['gamma'],
          'alpha': row['alpha'],
          'c': row['c'],
          'draft': row['d'],
          'verify': row['v'],
          'tokens_per_target_call': row['tokens_per_target_call'],
          'expected': _expected(row['alpha'], row['gamma'], row['c']),
          'with_costs': row['exp'],
          'measured': row['speedup_vs_t5x'],
          'against_alone': row['speedup_vs_autoregressive'],
          'step_ms': alone['step_ms'],
          'encode_ms': encode,
      }
      for row in result['rows']
  ]


def _of_table2(result: dict[str, Any]) -> Run:
  """The run that a row of scripts/table2.py is."""
  ms = result['ms_per_token']
  printed = result.get('paper') or {}
  name = printed.get('row')
  return {
      'name': name,
      'pair': name or 'another pair in T5X',
      'machine': result['device'],
      'temperature': result['temperature'],
      'gamma': result['gamma'],
      'alpha': result['alpha'],
      'c': result['c'],
      'draft': None,
      'verify': None,
      'tokens_per_target_call': result['tokens_per_target_call'],
      'expected': result['expected'],
      'with_costs': None,
      'measured': result['measured'],
      'against_alone': ms['target'] / ms['speculative'],
      'step_ms': ms['target'],
      'encode_ms': None,
  }


def table_2(runs: Sequence[Run]) -> dict[str, Any]:
  """Speed-up over T5X, the paper's rows and then the runs of other pairs."""
  figures = ('gamma', 'alpha', 'measured', 'against_alone', 'machine')
  rows = []
  for row, ours in _paired(runs):
    printed = row and {name: getattr(row, name) for name in figures[:3]}
    measured = ours and {name: ours[name] for name in figures}
    rows.append(_named(row, ours) | {'paper': printed, 'ours': measured})
  return {
      'table': 2,
      'title': 'Speed-up over T5X',
      'differs': _differs(runs),
      'rows': rows,
  }


def table_4(runs: Sequence[Run]) -> dict[str, Any]:
  """Expected against measured.

  Ours of a row that was not measured is Theorem 3.8 of the paper's alpha, gamma
  and c, which makes sure that Exp means the same.
  """
  figures = ('gamma', 'alpha', 'c', 'expected', 'measured')
  rows = []
  for row, ours in _paired(runs):
    printed = row and {name: getattr(row, name) for name in figures}
    if ours is not None:
      more = ('with_costs', 'against_alone')
      found = {name: ours[name] for name in (*figures, *more)}
    else:
      assert row is not None
      expected = _expected(row.alpha, row.gamma, row.c)
      found = {'expected': expected, 'measured': None}
    rows.append(_named(row, ours) | {'paper': printed, 'ours': found})
  return {
      'table': 4,
      'title': 'Speed-up, expected (Exp) and measured (Emp)',
      'differs': f"{_differs(runs)}; ours of a row that was not run is Exp of "
      "the paper's own alpha, gamma and c",
      'rows': rows,
  }


def _paired(
    runs: Sequence[Run],
) -> list[tuple[paper.Run | None, Run | None]]:
  """The paper's rows with the runs of each; then what is not the paper's."""
  pairs: list[tuple[paper.Run | None, Run | None]] = []
  left = list(runs)
  for row in paper.TABLE_2:
    of_row = [
        run
        for run in left
        if run['name'] and run['name'].removesuffix('_public') == row.name
    ]
    left = [run for run in left if run not in of_row]
    pairs += [(row, run) for run in of_row or [None]]
  return pairs + [(None, run) for run in left]


def _named(row: paper.Run | None, run: Run | None) -> dict[str, Any]:
  """What a row is of."""
  if row is not None:
    return {
        'task': row.task,
        'draft': row.draft,
        'temperature': row.temperature,
        'run': run and run['file'],
    }
  assert run is not None
  return {
      'task': run['pair'],
      'draft': None,
      'temperature': run['temperature'],
      'run': run['file'],
  }


def _differs(runs: Sequence[Run]) -> str:
  """What must be said where the two columns stand side by side."""
  if not runs:
    return (
        f'the paper is {paper.SETTING}; nothing of ours was measured: see '
        '--runs'
    )
  machines = ' / '.join(dict.fromkeys(run['machine'] for run in runs))
  return f'the paper is {paper.SETTING}; ours ran on {machines}'
