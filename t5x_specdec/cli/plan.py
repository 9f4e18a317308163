# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec plan`: how many tokens to draft, and what that is worth."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from t5x_specdec import calibration as calibrations
from t5x_specdec import planner
from t5x_specdec import theory
from t5x_specdec.calibration import Calibration
from t5x_specdec.cli.runner import number

# Settings of a calibration that figures depend on.
_SETTINGS = (
    'temperature', 'topk', 'topp', 'batch_size', 'input_len', 'output_len',
    'dtype',
)


def _costs(text: str) -> list[float]:
  try:
    return [float(part) for part in text.split(',')]
  except ValueError:
    raise argparse.ArgumentTypeError(
        f'{text!r} is not numbers with commas between them'
    ) from None


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'plan',
      help='the best gamma, from a calibration or from alpha and c',
      description=(
          'Says how many tokens to draft per target call, and what speed-up to '
          'expect: tokens per call over the cost of a round, Theorem 3.8 with '
          'measured costs where there are some. Where no gamma pays it says '
          'not to speculate. Give either calibrations, which `calibrate` '
          'writes, or --alpha and --c.'
      ),
  )
  parser.add_argument(
      '--calibration',
      action='append',
      metavar='FILE',
      help='from `calibrate`; several, for several drafts side by side',
  )
  parser.add_argument(
      '--alpha', type=float, help='acceptance rate, in [0, 1]'
  )
  parser.add_argument(
      '--c',
      type=float,
      help='time of one draft step over that of one target step',
  )
  parser.add_argument(
      '--c_hat',
      type=float,
      help='the same of arithmetic operations (default: --c)',
  )
  parser.add_argument(
      '--verify_cost',
      '--verify-cost',
      type=_costs,
      metavar='V1,V2,...',
      help='time of a target call on 2, 3, ... tokens over that of one step; '
      'gammas beyond these are not looked at (default: 1, as in the paper)',
  )
  parser.add_argument(
      '--max_gamma',
      type=int,
      metavar='N',
      help='largest gamma to look at, with --alpha (default: 20)',
  )
  parser.add_argument(
      '--verification',
      choices=('token', 'block'),
      default='block',
      help='how drafts will be judged; the best gamma is for this rule '
      '(default: %(default)s)',
  )
  return parser


def _calibrations(args: argparse.Namespace) -> list[Calibration]:
  """What the arguments name; raises ValueError."""
  numbers = ('alpha', 'c', 'c_hat', 'verify_cost', 'max_gamma')
  stated = [f'--{name}' for name in numbers if getattr(args, name) is not None]
  if args.calibration:
    if stated:
      raise ValueError(
          f'--calibration has what {", ".join(stated)} would say: give either'
      )
    return [calibrations.read(path) for path in args.calibration]
  if args.alpha is None or args.c is None:
    raise ValueError('give --calibration, or both --alpha and --c')
  if args.verify_cost and args.max_gamma:
    raise ValueError('--verify_cost already says up to which gamma to look')
  return [
      calibrations.given(
          args.alpha,
          args.c,
          verify=args.verify_cost,
          c_hat=args.c_hat,
          max_gamma=20 if args.max_gamma is None else args.max_gamma,
      )
  ]


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  # Names of models are no markup.
  console = Console(
      stderr=args.json, highlight=False, markup=False, emoji=False
  )
  given, plans = _calibrations(args), []
  for calibration in given:
    chosen, other = (
        planner.plan(calibration, rule)
        for rule in (
            args.verification,
            'token' if args.verification == 'block' else 'block',
        )
    )
    chosen['other_rule'] = {
        name: other[name] for name in ('rule', 'basis', 'gamma', 'speedup')
    }
    plans.append(chosen)
    _show(console, calibration, chosen)
  best = _best(plans)
  if len(plans) > 1:
    if unlike := _unlike(given):
      console.print(
          f'Not measured alike, in {", ".join(unlike)}.', soft_wrap=True
      )
    name = best['draft']
    # Drafts from two checkpoints may both be called `model`.
    if [plan['draft'] for plan in plans].count(name) > 1:
      name += f' of {args.calibration[plans.index(best)]}'
    console.print(f'Best: {name}. {_advice(best)}', soft_wrap=True)
  if args.json:
    print(json.dumps(best | {'plans': plans} if len(plans) > 1 else best))
  return 0


def _best(plans: list[dict[str, Any]]) -> dict[str, Any]:
  """The fastest of several drafts, their encoders included where known."""
  key = 'whole_call_speedup'
  if any(plan[key] is None for plan in plans):
    key = 'speedup'
  return max(plans, key=lambda plan: plan[key])


def _unlike(given: list[Calibration]) -> list[str]:
  """What calibrations that stand side by side should share, and do not."""
  found = []
  for name in ('target', 'machine', *_SETTINGS):
    first, *others = (
        one.settings.get(name) if name in _SETTINGS else getattr(one, name)
        for one in given
    )
    if any(other != first for other in others):
      found.append(name)
  return found


def _advice(plan: dict[str, Any]) -> str:
  """The decision in a sentence."""
  if plan['gamma'] == 0:
    return 'Do not speculate: no gamma is expected to be faster.'
  text = f'Draft {plan["gamma"]}: {plan["speedup"]:.2f}x'
  if plan['speedup_low'] is not None:
    text += f' [{plan["speedup_low"]:.2f}, {plan["speedup_high"]:.2f}]'
  text += f', operations {number(plan["operations"])}x.'
  if plan['gamma'] == plan['rows'][-1]['gamma']:
    text += ' No larger gamma was looked at.'
  return text


def _show(
    console: Console, calibration: Calibration, plan: dict[str, Any]
) -> None:
  """A table of all gammas, and what follows from it."""
  alpha = calibration.alpha
  text = f'{calibration.target} with {calibration.draft}: alpha '
  text += f'{alpha.value:.3f}'
  if alpha.low is not None:
    text += f' [{alpha.low:.3f}, {alpha.high:.3f}]'
  text += f', c {number(calibration.c, ".3f")}'
  if calibration.memory_bytes:
    weights = (
        f'{name} {size / 1e9:.2f} GB'
        for name, size in calibration.memory_bytes.items()
    )
    text += f', weights {", ".join(weights)}'
  console.print(text, soft_wrap=True)
  table = Table(
      'gamma', 'by tokens', 'by blocks', 'd', 'v', 'speed-up', '95%', 'ops',
      caption='by tokens, by blocks: tokens per target call',
  )
  by_token = planner.tokens_per_call(calibration, 'token')
  for i, row in enumerate(plan['rows']):
    interval = 'n/a'
    if row['speedup_low'] is not None:
      interval = f'{row["speedup_low"]:.2f}-{row["speedup_high"]:.2f}'
    table.add_row(
        f'{row["gamma"]}{" *" if row["gamma"] == plan["gamma"] else ""}',
        f'{by_token[i].value:.2f}',
        _by_blocks(calibration, i),
        f'{row["d"]:.2f}',
        f'{row["v"]:.2f}',
        f'{row["speedup"]:.2f}x',
        interval,
        f'{number(row["operations"])}x',
    )
  console.print(table)
  whole = plan['whole_call_speedup']
  told = f' Whole calls, encoder included: {whole:.2f}x.' if whole else ''
  console.print(
      f'{_advice(plan)}{told} (--verification {plan["rule"]}: {plan["basis"]})',
      soft_wrap=True,
  )


def _by_blocks(calibration: Calibration, i: int) -> str:
  """Tokens per call by blocks, or what is known of them."""
  low = planner.tokens_per_call(calibration, 'block')[i].value
  if planner.knows(calibration, 'block') or calibration.gammas[i] < 2:
    return f'{low:.2f}'
  high = theory.most_tokens_by_blocks(
      calibration.alpha.value, calibration.gammas[i]
  )
  return f'{low:.2f}-{max(low, float(high)):.2f}'
