# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec tables`: the paper's tables and figures beside ours."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import json
import pathlib
import sys
from typing import Any

from rich.console import Console

from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.tables import acceptance
from t5x_specdec.tables import figures
from t5x_specdec.tables import formulas
from t5x_specdec.tables import measure
from t5x_specdec.tables import runs
from t5x_specdec.tables import show


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'tables',
      help="the paper's tables and figures beside ours",
      description=(
          'Prints Tables 1 to 5 of Leviathan et al. (2023), each figure of the '
          'paper beside ours: Table 1 from the formulas, 2 and 4 from --runs, '
          '3 and 5 measured here with the pair that ships with the package, '
          'which takes minutes.'
      ),
  )
  parser.add_argument(
      '--only',
      type=int,
      choices=(1, 2, 3, 4, 5),
      metavar='N',
      help='print this table alone',
  )
  parser.add_argument(
      '--runs',
      nargs='+',
      default=[],
      metavar='FILE',
      help='what `t5x-specdec bench --json` or `scripts/table2.py --json` '
      'printed, for Tables 2 and 4 and the figures',
  )
  parser.add_argument(
      '--tokens',
      type=int,
      default=10_000,
      metavar='N',
      help='at least so many are generated at each temperature for Tables 3 '
      'and 5 (default: %(default)s, as in the paper)',
  )
  parser.add_argument(
      '--gpt_pair',
      type=pathlib.Path,
      metavar='DIR',
      help='the pair of scripts/train_gpt_pair.py, its export folder, for '
      'Table 3',
  )
  parser.add_argument(
      '--figures',
      type=pathlib.Path,
      metavar='DIR',
      help='write Figures 2 to 5 as SVG there too; needs matplotlib',
  )
  return parser


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  if args.tokens < 1:
    raise ValueError(f'--tokens must be >= 1, got {args.tokens}')
  if args.gpt_pair is not None and args.only not in (None, 3):
    raise ValueError(f'--gpt_pair is for Table 3, not Table {args.only}')
  found = runs.read(args.runs)
  pairs = {}
  if args.only in (None, 3, 5):
    pairs[acceptance.DEMO] = measure.read(DEMO_PAIR)
  if args.gpt_pair is not None:
    pairs[acceptance.GPT] = measure.read(args.gpt_pair)
  drawn = figures.draw(args.figures, found) if args.figures else []
  measured = _Measured(pairs, args.tokens)
  makers: dict[int, Callable[[], dict[str, Any]]] = {
      1: formulas.table_1,
      2: lambda: runs.table_2(found),
      3: lambda: acceptance.table_3(measured.of(*pairs)),
      4: lambda: runs.table_4(found),
      5: lambda: acceptance.table_5(measured.of(acceptance.DEMO)),
  }
  # Names of files and models are no markup.
  console = Console(
      stderr=args.json, highlight=False, markup=False, emoji=False
  )
  tables = []
  for number in makers if args.only is None else [args.only]:
    tables.append(makers[number]())
    show.show(tables[-1], console)
  if not found and args.only in (None, 2, 4):
    console.print('A run for Tables 2 and 4, to be given by --runs:')
    for command in runs.COMMANDS:
      console.print(f'  {command}', soft_wrap=True)
  for path in drawn:
    console.print(f'wrote {path}', soft_wrap=True)
  if args.json:
    result: dict[str, Any] = {'tables': tables}
    if args.only is not None:
      (result,) = tables
    result['figures'] = [str(path) for path in drawn]
    print(json.dumps(result))
  return 0


class _Measured:
  """Measures each pair once, when a table first asks for it."""

  def __init__(self, pairs: dict[str, measure.Folder], tokens: int):
    self._pairs = pairs
    self._tokens = tokens
    self._found: dict[str, dict[int, measure.Agreement]] = {}

  def of(self, *names: str) -> dict[str, dict[int, measure.Agreement]]:
    for name in names:
      if name not in self._found:
        self._found[name] = {
            temperature: self._at(name, temperature) for temperature in (0, 1)
        }
    return {name: self._found[name] for name in names}

  def _at(self, name: str, temperature: int) -> measure.Agreement:
    print(
        f'{name}: {self._tokens:,} tokens at temperature {temperature} ...',
        file=sys.stderr,
        flush=True,
    )
    return measure.agreement(self._pairs[name], temperature, self._tokens)
