# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The machine that figures were measured on, as Linux describes it."""

from __future__ import annotations

import os
import pathlib
import platform
from typing import Any


def _field(file: str, name: str) -> str | None:
  """The first value of a field in a file of /proc, None where there is none."""
  try:
    text = pathlib.Path(file).read_text(encoding='utf-8')
  except OSError:
    return None
  for line in text.splitlines():
    key, _, value = line.partition(':')
    if key.strip() == name:
      return value.strip()
  return None


def _memory(name: str) -> int:
  """A field of /proc/meminfo in bytes, 0 where there is none."""
  value = _field('/proc/meminfo', name)
  return int(value.split()[0]) * 1024 if value else 0


def free_bytes() -> int:
  """Memory that can be had without swapping, bytes."""
  return _memory('MemAvailable')


def describe() -> dict[str, Any]:
  """Cores this process may use, the processor's model, memory in bytes."""
  return {
      'cores': len(os.sched_getaffinity(0)),
      'model': _field('/proc/cpuinfo', 'model name') or platform.processor(),
      'memory_bytes': _memory('MemTotal'),
      'system': platform.platform(),
      'python': platform.python_version(),
  }
