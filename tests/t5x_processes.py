"""Runs T5X's scripts, or ours that read its gin files, as users do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import os
import pathlib
import subprocess
import sys
from typing import Any

import t5x_specdec


def run(
    folder: pathlib.Path,
    command: Sequence[str],
    files: Sequence[str | pathlib.Path],
    bindings: Mapping[str, Any],
    status: int = 0,
) -> subprocess.CompletedProcess:
  """Runs a script in a process of its own, on one CPU device.

  Args:
    folder: where it runs; its modules can be imported.
    command: arguments of the interpreter before gin's.
    files: gin files, in order.
    bindings: by name.
    status: what the process is to end with.

  Returns:
    The process, its output as text.
  """
  root = str(pathlib.Path(t5x_specdec.__file__).parents[1])
  path = [str(folder), root, os.environ.get('PYTHONPATH', '')]
  done = subprocess.run(
      [
          sys.executable,
          *command,
          *(f'--gin_file={file}' for file in files),
          *(f'--gin.{key}={value!r}' for key, value in bindings.items()),
      ],
      cwd=folder,
      env={
          **os.environ,
          'PYTHONPATH': os.pathsep.join(filter(None, path)),
          'XLA_FLAGS': '--xla_backend_optimization_level=0',
      },
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == status, done.stderr[-3000:]
  return done
