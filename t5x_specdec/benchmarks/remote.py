# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A worker's process, seen from the parent."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from t5x_specdec.benchmarks import protocol
from t5x_specdec.benchmarks.protocol import Array

_ALONE = pathlib.Path(__file__).parent / 'alone.py'
_PACKAGE = pathlib.Path(__file__).parents[2]


class WorkerError(ChildProcessError):
  """What a worker raised, or that it died.

  Attributes:
    missing: the module that its interpreter lacks, where that was the reason.
    dead: whether the process is gone.
  """

  def __init__(self, message: str, missing: str | None, dead: bool):
    super().__init__(message)
    self.missing = missing
    self.dead = dead


class Remote:
  """A worker in a process of its own; a context that ends it.

  Args:
    module: of the worker, in this package.
    python: the interpreter, by default the parent's own.
    without_package: whether to start the module without the rest of
      `t5x_specdec`: its interpreter then needs no JAX.
    environment: variables to set.
  """

  def __init__(
      self,
      module: str,
      *,
      python: str | None = None,
      without_package: bool = False,
      environment: dict[str, str] | None = None,
  ):
    start = ['-m', f't5x_specdec.benchmarks.{module}']
    if without_package:
      start = [str(_ALONE), module]
    self._log = tempfile.TemporaryFile()
    # The parent may run from a checkout that is not installed.
    path = os.pathsep.join(
        filter(None, [os.environ.get('PYTHONPATH'), str(_PACKAGE)])
    )
    # Both pipes are asked for, so neither is None wherever that is ignored.
    self._process = subprocess.Popen(
        [python or sys.executable, *start],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=self._log,
        env=os.environ | {'PYTHONPATH': path} | (environment or {}),
    )

  def __enter__(self) -> Remote:
    return self

  def __exit__(self, *_) -> None:
    self._process.kill()
    self._process.wait()
    for stream in (self._process.stdin, self._process.stdout, self._log):
      try:
        stream.close()  # type: ignore
      except BrokenPipeError:
        pass

  def ask(self, op: str, array: Array | None = None, **fields) -> None:
    """Sends a message without waiting for its answer."""
    try:
      protocol.send(self._process.stdin, {'op': op, **fields}, array)  # type: ignore
    except BrokenPipeError:
      raise self._death() from None

  def answer(self) -> tuple[dict[str, Any], Array | None]:
    """Waits for the answer; raises WorkerError where it is an error."""
    try:
      received = protocol.receive(self._process.stdout)  # type: ignore
    except EOFError:
      received = None
    if received is None:
      raise self._death()
    message, array = received
    if 'error' in message:
      raise WorkerError(message['error'], message['missing'], dead=False)
    return message, array

  def call(self, op: str, array: Array | None = None, **fields):
    """Sends a message and returns the fields of its answer."""
    self.ask(op, array, **fields)
    return self.answer()[0]

  def _death(self) -> WorkerError:
    """What is known of a process that ended: its status and last line."""
    status = self._process.wait()
    self._log.seek(0)
    lines = self._log.read().decode(errors='replace').strip().splitlines()
    last = lines[-1] if lines else 'no message'
    return WorkerError(f'ended with status {status}: {last}', None, dead=True)
