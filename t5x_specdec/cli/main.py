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
import os
import sys

from t5x_specdec.cli import bench
from t5x_specdec.cli import calibrate
from t5x_specdec.cli import certify
from t5x_specdec.cli import demo
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
    sub.add_argument(
        '--debug',
        action='store_true',
        help='on an error print the traceback instead of one line',
    )
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
  try:
    status = args.run(args)
    # A disk that is full is found here, and not at exit.
    sys.stdout.flush()
    return status
  # RuntimeError is what JAX raises where memory is not enough.
  except (ValueError, OSError, MemoryError, RuntimeError) as error:
    if args.debug:
      raise
    _discard_output()
    # The reader, `head` say, has had enough; nothing more can be printed.
    if isinstance(error, BrokenPipeError):
      return 1
    reason = str(error).splitlines() or [type(error).__name__]
    print(f't5x-specdec: error: {reason[0]}', file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print('t5x-specdec: interrupted', file=sys.stderr)
    return 130


def _discard_output() -> None:
  """Gives up what standard output does not take; it would fail at exit."""
  try:
    sys.stdout.flush()
  except OSError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == '__main__':
  sys.exit(main())
