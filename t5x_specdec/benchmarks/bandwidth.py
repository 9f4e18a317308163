# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Worker: how fast this machine reads memory.

Decoding at batch 1 reads every weight once per step, so no decoder can take
less than its bytes over this. Several ways to read one array of 1 GiB, far
larger than any cache; the best of them counts. Case: 'read'.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.benchmarks import protocol

_SIDE = 16384  # float32[_SIDE, _SIDE]: 1 GiB
_TRIES = 3


def cores() -> int:
  """Cores that this process may run on."""
  return len(os.sched_getaffinity(0))


class BandwidthWorker:
  """Times kernels that read an array and do next to nothing else."""

  def start(self, **_) -> dict[str, Any]:
    """Makes the array."""
    make = jax.jit(lambda: jnp.full([_SIDE, _SIDE], 2.0**-14, jnp.float32))
    self._array = make().block_until_ready()
    self._kernels = self._jax_kernels()
    if jax.default_backend() == 'cpu':
      self._kernels |= self._numpy_kernels()
    return {}

  def _jax_kernels(self) -> dict[str, Callable[[], Any]]:
    row = jnp.ones([1, _SIDE], jnp.float32)
    functions = {
        'jax_sum': jax.jit(lambda x, _: jnp.sum(x)),
        'jax_max': jax.jit(lambda x, _: jnp.max(x)),
        'jax_matvec': jax.jit(lambda x, row: row @ x),
    }
    return {
        name: lambda f=f: f(self._array, row).block_until_ready()
        for name, f in functions.items()
    }

  def _numpy_kernels(self) -> dict[str, Callable[[], Any]]:
    # NumPy's loops and BLAS let go of the interpreter: one part per core.
    pool = futures.ThreadPoolExecutor(cores())
    parts = np.array_split(np.asarray(self._array).reshape(-1), cores())
    functions = {
        'numpy_sum': np.sum,
        'numpy_max': np.max,
        'numpy_dot': lambda x: np.dot(x, x),
    }
    return {
        name: lambda f=f: list(pool.map(f, parts))
        for name, f in functions.items()
    }

  def prepare(self, case: str) -> dict[str, Any]:
    """Runs everything once."""
    start = time.perf_counter()
    self.run(case)
    return {'seconds': time.perf_counter() - start}

  def run(self, case: str) -> dict[str, Any]:
    """GB/s (1e9 bytes) of each kernel, the best of a few tries."""
    assert case == 'read'
    speeds = {}
    for name, kernel in self._kernels.items():
      best = float('inf')
      for _ in range(_TRIES):
        start = time.perf_counter()
        kernel()
        best = min(best, time.perf_counter() - start)
      speeds[name] = self._array.nbytes / best / 1e9
    return {
        'seconds': self._array.nbytes / max(speeds.values()) / 1e9,
        'gb_per_s': speeds,
    }

  def finish(self) -> dict[str, Any]:
    """Peak memory in bytes."""
    return {'peak_bytes': protocol.peak_bytes(), 'peak_device_bytes': None}


def main() -> None:
  """Serves the parent."""
  protocol.serve(BandwidthWorker)


if __name__ == '__main__':
  main()
