# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Holds what `plan` predicts against what `bench` measures, on planted pairs.

Each pair is calibrated, which knows nothing of the runs that follow, then
benchmarked and compared, with the encoder's time and without. For an idle
machine:

  python scripts/check_plan.py

There are two predictions. One takes the tokens per call from Equation 1, which
is right for texts without end: a text of 512 tokens is off by some 5% by chance
alone (a standard deviation), one of 128 by 10%. The other takes those of the
text, as `calibrate` counts them where it decodes a sample; whole calls are held
against it, too. Exit status 1: that one is off by more than --tolerance.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

from t5x_specdec import calibration as calibrations
from t5x_specdec import planner
from t5x_specdec.calibration import Calibration
from t5x_specdec.cli import exits
from t5x_specdec.resampling import Estimate


def run(*arguments: str) -> dict:
  """A subcommand's JSON object; a process each, as a user runs them."""
  done = subprocess.run(
      [sys.executable, '-m', 't5x_specdec.cli.main', *arguments, '--json'],
      check=False,
      stdout=subprocess.PIPE,
      text=True,
  )
  if not done.stdout:
    raise RuntimeError(f'{arguments[0]} failed')
  return json.loads(done.stdout.splitlines()[-1])


def compare(calibration: Calibration, measured: dict) -> list[dict]:
  """Predictions beside measurements, one row per gamma."""
  runs = sorted(measured['rows'], key=lambda row: row['gamma'])
  tokens = [1.0, *(row['tokens_per_round'] for row in runs)]
  counted = dataclasses.replace(
      calibration, tokens={'token': [Estimate(x) for x in tokens]}
  )
  by_equation, by_text = (
      {row['gamma']: row for row in planner.plan(known)['rows']}
      for known in (calibration, counted)
  )
  rows = []
  for row in runs:
    equation, plan = by_equation[row['gamma']], by_text[row['gamma']]
    rows.append({
        'pair': f'{calibration.target}:{calibration.draft}',
        'alpha': calibration.alpha.value,
        'gamma': row['gamma'],
        'tokens': (equation['tokens'], plan['tokens']),
        'predicted': (equation['speedup'], plan['speedup']),
        'measured': row['emp'],
        'error_by_equation': equation['speedup'] / row['emp'] - 1,
        'error': plan['speedup'] / row['emp'] - 1,
        'whole_call_error': plan['whole_call_speedup']
        / row['speedup_vs_autoregressive']
        - 1,
    })
  return rows


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
      '--pair', nargs='+', default=['base:small', 'large:small']
  )
  parser.add_argument(
      '--alpha', type=float, nargs='+', default=[0.5, 0.75, 0.9]
  )
  parser.add_argument('--gamma', default='1,2,3,4,5,6,7,8')
  parser.add_argument('--output_len', default='512')
  parser.add_argument(
      '--repeats', default='3', help='of what is held against the plan'
  )
  parser.add_argument('--seed', default='0')
  parser.add_argument('--tolerance', type=float, default=0.1)
  parser.add_argument('--output', help='where the rows so far go as JSON')
  return parser


def _write(path: str | None, rows: list[dict]) -> None:
  if path is not None:
    text = json.dumps(rows, indent=1)
    pathlib.Path(path).write_text(text, encoding='utf-8')


def main(args: argparse.Namespace) -> int:
  pairs = [pair.split(':') for pair in args.pair]
  if any(len(pair) != 2 for pair in pairs):
    raise ValueError(f'--pair must be TARGET:DRAFT, got {" ".join(args.pair)}')
  rows = []
  _write(args.output, rows)  # where that fails, it fails at once
  print(
      '| pair | alpha | gamma | tokens: Equation 1, text | predicted: by these '
      '| measured | error: by these | whole calls |'
  )
  print('|---|---|---|---|---|---|---|---|')
  for (target, draft), alpha in itertools.product(pairs, args.alpha):
    common = [
        '--target', target, '--draft', draft, '--alpha', str(alpha),
        '--gamma', args.gamma, '--output_len', args.output_len,
        '--seed', args.seed,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
      path = str(pathlib.Path(folder) / 'calibration.json')
      run('calibrate', *common, '--output', path)
      calibration = calibrations.read(path)
    measured = run(
        'bench', *common, '--repeats', args.repeats, '--no_t5x', '--no_hf'
    )
    for row in compare(calibration, measured):
      rows.append(row)
      print(_line(row), flush=True)
    _write(args.output, rows)
  worst = max(rows, key=lambda row: abs(row['error']))
  within = sum(abs(row['error']) <= args.tolerance for row in rows)
  print(
      f'largest error: {worst["error"]:+.1%} ({worst["pair"]}, alpha '
      f'{worst["alpha"]}, gamma {worst["gamma"]}); within '
      f'{args.tolerance:.0%}: {within} of {len(rows)}'
  )
  return int(within < len(rows))


def _line(row: dict) -> str:
  """A row of the table."""
  both = '{:.2f}, {:.2f}'
  return (
      f'| {row["pair"]} | {row["alpha"]} | {row["gamma"]} '
      f'| {both.format(*row["tokens"])} | {both.format(*row["predicted"])} '
      f'| {row["measured"]:.2f} '
      f'| {row["error_by_equation"]:+.1%}, {row["error"]:+.1%} '
      f'| {row["whole_call_error"]:+.1%} |'
  )


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
