# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec generate`: lines of text in, JSONL of predictions out."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Any, TextIO

from t5x_specdec.cli import lines as text_lines
from t5x_specdec.cli import options
from t5x_specdec.cli import runner
from t5x_specdec.cli import setup


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'generate',
      help='decode lines of text with a target and a draft',
      description=(
          'Decodes each line of the input with the target model, sped up by '
          'the draft, and writes one JSON line each: line, input, truncated, '
          'prediction, and aux with scores (nats) and statistics. A summary '
          'follows on standard error.'
      ),
  )
  options.add_pair(parser)
  options.add_sampling(parser)
  options.add_calibration(parser)
  group = parser.add_argument_group('input and output')
  group.add_argument(
      '--input',
      default='-',
      metavar='FILE',
      help='text, one input a line; - for standard input (default: -)',
  )
  group.add_argument(
      '--output',
      metavar='FILE',
      help='where the JSON lines go (default: standard output; with --json, '
      "into the object's `predictions`)",
  )
  group.add_argument(
      '--batch_size',
      type=int,
      default=8,
      help='inputs decoded together (default: %(default)s)',
  )
  group.add_argument(
      '--max_input_len',
      type=int,
      default=512,
      metavar='TOKENS',
      help='longer inputs are cut, and marked (default: %(default)s)',
  )
  group.add_argument(
      '--max_decode_len',
      type=int,
      default=128,
      metavar='TOKENS',
      help='most tokens to generate (default: %(default)s)',
  )
  group.add_argument(
      '--num_decodes',
      type=int,
      default=1,
      metavar='N',
      help='decodes per input, in order of rising score (default: 1)',
  )
  group.add_argument(
      '--compare',
      action='store_true',
      help='decode everything with the target alone too; report its time and, '
      'at temperature 0, whether the texts are identical',
  )
  group.add_argument(
      '--trace',
      action='store_true',
      help="add each round's drafts, their probabilities, how many stood, and "
      "the target's own token after them to every JSON line, and how long the "
      'parts of a decode take here: what `report` reads',
  )
  return parser


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  lines = text_lines.read(args.input)
  text_lines.check_output(args.output, args.input)
  pair = setup.load(args)
  runner.check(pair, args)
  args.times = args.trace
  # Else compilation would be timed.
  args.repeats = int(args.compare or args.times)
  predictions: list[dict[str, Any]] = []
  with contextlib.ExitStack() as stack:
    out = _open_output(args, stack)

    def write(record: dict[str, Any]) -> None:
      if out is None:
        predictions.append(record)
      else:
        out.write(json.dumps(record, ensure_ascii=False) + '\n')
        out.flush()

    summary = runner.decode_lines(pair, lines, args, write)
  print(runner.describe(summary), file=sys.stderr)
  if args.json:
    if args.output is None:
      summary['predictions'] = predictions
    print(json.dumps(summary, ensure_ascii=False))
  return 0


def _open_output(
    args: argparse.Namespace, stack: contextlib.ExitStack
) -> TextIO | None:
  """Where JSON lines go; None where they go into the JSON object."""
  if args.output is not None:
    return stack.enter_context(open(args.output, 'w', encoding='utf-8'))
  return None if args.json else sys.stdout
