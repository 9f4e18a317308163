# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec`: one subcommand per file of this folder.

With `--json` the last line on standard output is one JSON object and all else
goes to standard error. Exit status: 0 done, 1 standard output was closed, or
`bench` found frameworks that do not agree, or `certify` a check that fails; 2
bad input or an output that cannot be written, 130 interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import sys

from t5x_specdec.cli import bench
from t5x_specdec.cli import calibrate
from t5x_specdec.cli import certify
from t5x_specdec.cli import demo
from t5x_specdec.cli import exits
from t5x_specdec.cli import generate
from t5x_specdec.cli import ngram
from t5x_specdec.cli import plan
from t5x_specdec.cli import report
from t5x_specdec.cli import tables
from t5x_specdec.version import __version__

_COMMANDS = (
    generate,
    demo,
    certify,
    report,
    bench,
    calibrate,
    plan,
    tables,
    ngram,
)


def parser() -> argparse.ArgumentParser:
  """The parser of the whole command line."""
  top = argparse.ArgumentParser(
      prog='t5x-specdec',
      description=(
          'Speculative decoding for T5X: the same outputs as the target model '
          'alone, in fewer calls of it.'
      ),
  )
  top.add_argument('--version', action='version', version=__version__)
  subparsers = top.add_subparsers(
      title='subcommands', metavar='SUBCOMMAND', required=True
  )
  for command in _COMMANDS:
    sub = command.add_parser(subparsers)
    sub.add_argument(
        '--json',
        action='store_true',
        help='print one JSON object as the last line of standard output, and '
        'everything else to standard error',
    )
    exits.add_debug(sub)
    sub.set_defaults(run=command.run)
  return top


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a subcommand.

  Args:
    argv: arguments, default those of the process.

  Returns:
    The exit status.
  """
  args = parser().parse_args(argv)
  return exits.run(lambda: args.run(args), 't5x-specdec', args.debug)


if __name__ == '__main__':
  sys.exit(main())
