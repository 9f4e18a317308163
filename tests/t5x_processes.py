"""Runs T5X's scripts, or ours that read its gin files, as users do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from typing import Any

import t5x_specdec

_LAUNCHER = str(pathlib.Path(__file__).parent / 'launch_infer.py')


def _free_port() -> int:
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    return probe.getsockname()[1]


def _environment(folder: pathlib.Path, flags: str) -> dict[str, str]:
  root = str(pathlib.Path(t5x_specdec.__file__).parents[1])
  path = [str(folder), root, os.environ.get('PYTHONPATH', '')]
  return {
      **os.environ,
      'PYTHONPATH': os.pathsep.join(filter(None, path)),
      'XLA_FLAGS': f'--xla_backend_optimization_level=0 {flags}',
  }


def run(
    folder: pathlib.Path,
    command: Sequence[str],
    files: Sequence[str | pathlib.Path] = (),
    bindings: Mapping[str, Any] | None = None,
    *,
    devices: int = 1,
    processes: int = 1,
    xla_flags: str = '',
    status: int = 0,
) -> subprocess.CompletedProcess[str]:
  """Runs a script in a process of its own, or in several, on CPU devices.

  Args:
    folder: where it runs; its modules can be imported.
    command: arguments of the interpreter before gin's; those of infer.py where
      there are several processes.
    files: gin files, in order.
    bindings: gin's, by name.
    devices: virtual CPU devices of each process.
    processes: how many run it together.
    xla_flags: more flags for XLA.
    status: what every process is to end with.

  Returns:
    The first process, its output as text.
  """
  commands = [[
      *command,
      *(f'--gin_file={file}' for file in files),
      *(f'--gin.{key}={value!r}' for key, value in (bindings or {}).items()),
  ]]
  if processes > 1:
    address = f'127.0.0.1:{_free_port()}'
    commands = [
        [_LAUNCHER, address, str(processes), str(i), *commands[0]]
        for i in range(processes)
    ]
  if devices > 1:
    xla_flags += f' --xla_force_host_platform_device_count={devices}'
  with contextlib.ExitStack() as stack:
    # Not pipes: a process whose pipe is full waits for a reader.
    outputs = [
        [stack.enter_context(tempfile.TemporaryFile('w+')) for _ in range(2)]
        for _ in commands
    ]
    running = []
    for arguments, (stdout, stderr) in zip(commands, outputs):
      process = subprocess.Popen(
          [sys.executable, *arguments],
          cwd=folder,
          env=_environment(folder, xla_flags),
          stdout=stdout,
          stderr=stderr,
      )
      running.append(stack.enter_context(process))
      stack.callback(process.kill)
    done = []
    for process, files_of in zip(running, outputs):
      process.wait(timeout=600)
      for file in files_of:
        file.seek(0)
      texts = [file.read() for file in files_of]
      assert process.returncode == status, texts[1][-3000:]
      done.append(
          subprocess.CompletedProcess(process.args, status, *texts)
      )
  return done[0]


def lines(folder: pathlib.Path) -> list[dict[str, Any]]:
  """The lines of the JSONL that infer.py wrote to a folder."""
  (merged,) = folder.glob('*.jsonl-00000-of-00001')
  return [json.loads(line) for line in merged.read_text().splitlines()]
