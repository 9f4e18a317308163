# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Holds what `plan` predicts against what `bench` measures, on planted pairs.

Each pair is calibrated once, which knows nothing of the runs that follow; then
each alpha is benchmarked and compared, with the encoder's time and without. For
an idle machine:

  python scripts/check_plan.py

Texts are finite: `tokens` has tokens per call as Equation 1 expects them and as
the text had them, so that the error of the costs alone shows, too. Exit status
1: a prediction is off by more than --tolerance.
"""

import argparse
import dataclasses
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


def compare(
    calibration: Calibration, alpha: float, measured: dict
) -> list[dict]:
  """Predictions beside measurements, one row per gamma."""
  known = dataclasses.replace(calibration, alpha=Estimate(alpha))
  predicted = {row['gamma']: row for row in planner.plan(known)['rows']}
  rows = []
  for row in measured['rows']:
    plan = predicted[row['gamma']]
    cost = plan['d'] + plan['v']
    rows.append({
        'pair': f'{calibration.target}:{calibration.draft}',
        'alpha': alpha,
        'gamma': row['gamma'],
        'tokens': (plan['tokens'], row['tokens_per_round']),
        'predicted': plan['speedup'],
        'measured': row['emp'],
        'error': plan['speedup'] / row['emp'] - 1,
        'costs_error': row['tokens_per_round'] / cost / row['emp'] - 1,
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
      '| pair | alpha | gamma | tokens | predicted | measured | error |'
      ' of costs | whole calls |'
  )
  print('|---|---|---|---|---|---|---|---|---|')
  for target, draft in pairs:
    common = [
        '--target', target, '--draft', draft, '--gamma', args.gamma,
        '--output_len', args.output_len, '--seed', args.seed,
    ]
    with tempfile.TemporaryDirectory() as folder:
      path = str(pathlib.Path(folder) / 'calibration.json')
      run('calibrate', *common, '--alpha', '0.5', '--output', path)
      calibration = calibrations.read(path)
    for alpha in args.alpha:
      measured = run(
          'bench', *common, '--repeats', args.repeats, '--alpha', str(alpha),
          '--no_t5x', '--no_hf',
      )  # fmt: skip
      for row in compare(calibration, alpha, measured):
        rows.append(row)
        expected, had = row['tokens']
        print(
            f'| {row["pair"]} | {alpha} | {row["gamma"]} '
            f'| {expected:.2f}, {had:.2f} '
            f'| {row["predicted"]:.2f}x | {row["measured"]:.2f}x '
            f'| {row["error"]:+.1%} | {row["costs_error"]:+.1%} '
            f'| {row["whole_call_error"]:+.1%} |',
            flush=True,
        )
      _write(args.output, rows)
  worst = max(rows, key=lambda row: abs(row['error']))
  print(
      f'largest error: {worst["error"]:+.1%} ({worst["pair"]}, alpha '
      f'{worst["alpha"]}, gamma {worst["gamma"]})'
  )
  return int(abs(worst['error']) > args.tolerance)


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
