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
from t5x_specdec.benchmarks import table
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
    For each its file; name, of the paper's row that it measures, or None;
    beside, that of the paper's row which another pair is likest, or None; pair,
    target and draft in words; machine; temperature; gamma; alpha; c; draft and
    verify, d and v of `theory.improvement`; tokens_per_target_call; expected,
    Theorem 3.8; with_costs, the same with d and v as measured; measured, the
    speed-up over T5X; against_alone, that over our own loop without a draft;
    step_ms of the target; and encode_ms, the encoder's share in a token, which
    a step gives to each row. What was not measured is None.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: a file holds no such line, or one of a benchmark that failed.
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
    try:
      found += [{'file': path} | run for run in _runs(result)]
    except ValueError as error:
      raise ValueError(f'--runs {path}: {error}') from None
    except (KeyError, TypeError, AttributeError) as error:
      raise ValueError(
          f'--runs {path}: its last line is not all that was printed: {error!r}'
      ) from None
  return found


def _runs(result: dict[str, Any]) -> list[Run]:
  """What one line holds."""
  if 'autoregressive' in result:
    return _of_bench(result)
  if 'ms_per_token' in result:
    return [_of_table2(result)]
  raise ValueError(
      'its last line comes neither from t5x-specdec bench --json nor from '
      'scripts/table2.py --json'
  )


def _expected(
    alpha: float | None, gamma: int | str, c: float | None
) -> float | None:
  if alpha is None or c is None or isinstance(gamma, str):
    return None
  return float(theory.walltime_improvement(alpha, gamma, c))


def _of_bench(result: dict[str, Any]) -> list[Run]:
  """A run for each gamma of a benchmark."""
  if failed := table.failures(result):
    raise ValueError(failed[0])
  machine, alone = result['machine'], result['autoregressive']
  encode = None
  if alone['decode_ms_per_token'] is not None:
    encode = alone['ms_per_token'] - alone['decode_ms_per_token']
    encode *= result['batch_size']
  return [
      {
          'name': None,
          'beside': _likest(result),
          'pair': _pair(result),
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


def _pair(result: dict[str, Any]) -> str:
  """Target and draft of a benchmark, in words."""
  target, draft = result['target'], result['draft_kind']
  if target == 'demo':
    return 'demo pair' if draft == 'model' else f'demo with {draft}'
  if draft == 'model':
    draft = result['draft']
  planted = result['planted_alpha']
  at = '' if planted is None else f', planted at alpha {planted:g}'
  return f'{target} with {draft}{at}'


def _likest(result: dict[str, Any]) -> str | None:
  """The paper's row to set a benchmark beside: its task's, or its draft's."""
  if result['draft_kind'] != 'model':
    return None
  rows = [x for x in paper.TABLE_2 if x.temperature == result['temperature']]
  if result['target'] == 'demo':
    rows = [x for x in rows if (x.task, x.draft) == ('ende', 'small')]
  elif result['planted']:
    rows = [x for x in rows if x.draft == result['draft']]
    rows.sort(key=lambda row: abs(row.alpha - result['planted_alpha']))
  else:
    rows = []
  return rows[0].name if rows else None


def _of_table2(result: dict[str, Any]) -> Run:
  """The run that a row of scripts/table2.py is."""
  ms = result['ms_per_token']
  printed = result.get('paper') or {}
  name = printed.get('row')
  return {
      'name': name,
      'beside': None,
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
  """The paper's rows with the runs of each, then the runs of other pairs."""
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
  beside = {row.name: row for row in paper.TABLE_2}
  return pairs + [(beside.get(run['beside']), run) for run in left]


def _named(row: paper.Run | None, run: Run | None) -> dict[str, Any]:
  """What a row is of."""
  if row is not None and (run is None or run['name'] is not None):
    return {
        'task': row.task,
        'draft': row.draft,
        'temperature': row.temperature,
        'run': run and run['file'],
        'beside': None,
    }
  assert run is not None
  return {
      'task': run['pair'],
      'draft': None,
      'temperature': run['temperature'],
      'run': run['file'],
      'beside': run['beside'],
  }


def _differs(runs: Sequence[Run]) -> str:
  """What must be said where the two columns stand side by side."""
  if not runs:
    return (
        f'the paper is {paper.SETTING}; nothing of ours was measured: see '
        '--runs'
    )
  machines = ' / '.join(dict.fromkeys(run['machine'] for run in runs))
  text = f'the paper is {paper.SETTING}; ours ran on {machines}'
  for pair, beside in dict.fromkeys((x['pair'], x['beside']) for x in runs):
    if beside is not None:
      text += f'; {pair} is none of its, and stands beside its {beside}'
  return text
