# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec generate`: lines of text in, JSONL of predictions out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import contextlib
import json
import os
import sys
from typing import Any

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
      '--resume',
      action='store_true',
      help='go on after the last whole line of --output, where an earlier run '
      'of the same command was cut off; its last lines are decoded again, and '
      'must be the same. Without this the file is overwritten',
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
  done, end = [], 0
  if args.resume:
    if args.output is None:
      raise ValueError('--resume needs --output')
    done, end = text_lines.finished(args.output, lines)
  pair = setup.load(args)
  runner.check(pair, args)
  args.times = args.trace
  # Else compilation would be timed.
  args.repeats = int(args.compare or args.times)
  predictions: list[dict[str, Any]] = []
  with contextlib.ExitStack() as stack:
    if args.output is not None:
      write = _appender(args.output, end, stack)
    elif args.json:
      write = predictions.append
    else:
      write = _print

    def write_new(record: dict[str, Any]) -> None:
      if record['line'] > len(done):
        write(record)
      elif record['prediction'] != done[record['line'] - 1].get('prediction'):
        measured = isinstance(args.gamma, str) and args.calibration is None
        hint = (
            f', or --gamma {args.gamma} measured other costs: with '
            '--calibration it goes by the same ones'
        )
        raise ValueError(
            f'--resume: line {record["line"]} of --output {args.output} is not '
            'what is decoded now; other models or options wrote it'
            f'{hint if measured else ""}'
        )

    # From the start of the batch of the last line: batches are as they were.
    start = max(len(done) - 1, 0) // args.batch_size * args.batch_size
    summary = runner.decode_lines(pair, lines, args, write_new, start)
  if args.resume:
    summary['resumed_after'] = len(done)
  print(runner.describe(summary), file=sys.stderr)
  if args.json:
    if args.output is None:
      summary['predictions'] = predictions
    print(json.dumps(summary, ensure_ascii=False))
  return 0


def _line(record: dict[str, Any]) -> str:
  return json.dumps(record, ensure_ascii=False) + '\n'


def _print(record: dict[str, Any]) -> None:
  sys.stdout.write(_line(record))
  sys.stdout.flush()


def _appender(
    path: str, end: int, stack: contextlib.ExitStack
) -> Callable[[dict[str, Any]], None]:
  """Opens the output; what is returned writes a record as a line.

  A line is written by one call and buffered nowhere, so that a run that is
  killed leaves whole lines, but for the last.

  Args:
    path: of the file.
    end: bytes of it to keep; 0 empties it at once. Else nothing is cut off
      before there is a record to write in its place.
    stack: closes it.
  """
  mode = 'r+b' if end else 'wb'
  file = stack.enter_context(open(path, mode, buffering=0))
  if end:
    file.seek(end)

  def append(record: dict[str, Any]) -> None:
    left = memoryview(_line(record).encode('utf-8'))
    try:
      if end and file.tell() == end:
        file.truncate()
      while left:
        left = left[file.write(left) :]
    except OSError as error:
      raise OSError(error.errno, os.strerror(error.errno or 0), path) from None

  return append
