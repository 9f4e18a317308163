# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec calibrate`: measures what `plan` needs to know of a pair."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.status import Status

from t5x_specdec import planner
from t5x_specdec import validation
from t5x_specdec.benchmarks import calibrate
from t5x_specdec.cli import bench
from t5x_specdec.cli import lines as text_lines
from t5x_specdec.cli import options


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'calibrate',
      help='measure a pair on this machine, for `plan`',
      description=(
          'Measures the cost of drafting and of verification for each gamma on '
          'this machine and, unless the pair is planted and --alpha known, '
          'alpha and the tokens per target call on a sample of inputs, by both '
          'rules of verification. Run it on an idle machine. Writes one JSON '
          'file, which `plan` reads.'
      ),
  )
  bench.add_pair(parser)
  options.add_sampling(parser, gammas=True)
  parser.set_defaults(gamma=list(calibrate.GAMMAS))
  group = parser.add_argument_group('measurement')
  group.add_argument(
      '-o', '--output', required=True, metavar='FILE', help='JSON to write'
  )
  group.add_argument(
      '--repeats',
      type=int,
      default=5,
      help='of each cost; medians are taken (default: %(default)s)',
  )
  group.add_argument(
      '--lines',
      type=int,
      default=48,
      metavar='N',
      help="of the sample: the first of --input, or as many of the demo's "
      'held-out sentences (default: %(default)s)',
  )
  return parser


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  names = ('batch_size', 'input_len', 'output_len', 'repeats', 'lines')
  for name in names:
    if getattr(args, name) < 1:
      raise ValueError(f'--{name} must be >= 1, got {getattr(args, name)}')
  for gamma in args.gamma:
    if isinstance(gamma, str):
      raise ValueError(
          f'--gamma {gamma}: what calibrate measures is for numbers of drafts'
      )
  validation.check_method(args.temperature, args.topk, args.topp, 1)
  text_lines.check_output(args.output, None)
  workload = bench.make_workload(args, demo_lines=args.lines)
  planted = workload.expected is not None
  batches = -(-args.lines // args.batch_size)
  console = Console(stderr=True)
  with Status('', console=console) as status:
    calibration = calibrate.calibrate(
        calibrate.pair(workload),
        workload.inputs[:batches],
        output_len=args.output_len,
        gammas=tuple(sorted(args.gamma)),
        temperature=args.temperature,
        topk=args.topk,
        topp=args.topp,
        alpha=args.alpha if planted else None,
        repeats=args.repeats,
        seed=args.seed,
        verification=args.verification,
        names=(
            str(args.target),
            str(args.draft or ('small' if planted else args.target)),
        ),
        tell=status.update,
    )
  calibration.write(args.output)
  best = planner.plan(calibration, args.verification)
  print(
      f'{args.output}: alpha {calibration.alpha.value:.3f}, c '
      f'{calibration.c:.3f}; best gamma {best["gamma"]}, '
      f'{best["speedup"]:.2f}x expected',
      file=sys.stderr,
  )
  if args.json:
    print(json.dumps(calibration.json()))
  return 0
