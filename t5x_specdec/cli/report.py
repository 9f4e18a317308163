# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec report`: a run with `--trace` in, one page of HTML out."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any

from t5x_specdec.cli import lines as text_lines
from t5x_specdec.report import page
from t5x_specdec.report import run as runs


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'report',
      help='show what happened in a run, round by round, as a web page',
      description=(
          'Turns what `generate --trace` or `demo --trace --json` wrote into '
          'one self-contained page: each text with its accepted and rejected '
          "drafts and the target's own tokens, both laws of each, its calls on "
          'a timeline against standard decoding, acceptance by place and by '
          'round, and expected against measured speed.'
      ),
  )
  parser.add_argument(
      'run_file',
      metavar='RUN.jsonl',
      help='the JSON lines of the run; - for standard input',
  )
  parser.add_argument(
      '-o', '--output', required=True, metavar='FILE', help='HTML to write'
  )
  return parser


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  text_lines.check_output(args.output, args.run_file)
  lines = text_lines.read(args.run_file, 'RUN.jsonl')
  found = runs.parse(lines, args.run_file)
  name = pathlib.Path(args.run_file).name
  content = page.render(found, 'standard input' if name == '-' else name)
  # Half a surrogate pair, which JSON can hold, is no character.
  pathlib.Path(args.output).write_bytes(content.encode('utf-8', 'replace'))
  print(f'{args.output}: {len(found.texts)} texts', file=sys.stderr)
  if args.json:
    values = page.values(found)
    print(json.dumps({key: values[key] for key in values if key != 'texts'}))
  return 0
