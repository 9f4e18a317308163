# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""How a program ends: what went wrong in one line, and an exit status."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import os
import sys


def add_debug(parser: argparse.ArgumentParser) -> None:
  """Declares `--debug`."""
  parser.add_argument(
      '--debug',
      action='store_true',
      help='on an error print the traceback instead of one line',
  )


def run(function: Callable[[], int | None], name: str, debug: bool) -> int:
  """Runs a program.

  Args:
    function: the program; returns its exit status, None for 0.
    name: of the program, before what is said of errors.
    debug: raises them instead.

  Returns:
    The exit status: the function's; 1 where standard output was closed, 2 for
    bad input or an output that cannot be written, 130 where interrupted.
  """
  try:
    status = function()
    # A disk that is full is found here, and not at exit.
    sys.stdout.flush()
    return status or 0
  # RuntimeError is what JAX raises where memory is not enough.
  except (ValueError, OSError, MemoryError, RuntimeError) as error:
    if debug:
      raise
    _discard_output()
    # The reader, `head` say, has had enough; nothing more can be printed.
    if isinstance(error, BrokenPipeError):
      return 1
    reason = str(error).splitlines() or [type(error).__name__]
    print(f'{name}: error: {reason[0]}', file=sys.stderr)
    return 2
  except KeyboardInterrupt:
    print(f'{name}: interrupted', file=sys.stderr)
    return 130


def _discard_output() -> None:
  """Gives up what standard output does not take; it would fail at exit."""
  try:
    sys.stdout.flush()
  except OSError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_script(
    parser: argparse.ArgumentParser,
    function: Callable[[argparse.Namespace], int | None],
) -> int:
  """Runs a script by its arguments, with `--debug` among them; see `run`."""
  add_debug(parser)
  args = parser.parse_args()
  return run(lambda: function(args), parser.prog, args.debug)
