# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the workers that run on JAX share: weights, versions, memory."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

import jax

from t5x_specdec import parameters
from t5x_specdec.benchmarks import protocol
from t5x_specdec.benchmarks.protocol import Array
from t5x_specdec.benchmarks.protocol import Job
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config


def versions(*packages: str) -> dict[str, str]:
  """Installed versions; 'unknown' for a package on the path only."""
  found = {}
  for package in packages:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = 'unknown'
  return found


class JaxWorker:
  """Base of `worker_ours` and `worker_t5x`; methods are the operations.

  Attributes:
    job: what to decode.
    configs: of the models, by their names 'target' and 'draft'.
  """

  packages = ('jax', 'jaxlib')

  def __init__(self):
    self.job: Any = None
    self.configs: dict[str, T5Config] = {}
    self._leaves: dict[str, dict[parameters.Path, jax.Array]] = {}

  def start(self, job: dict[str, Any]) -> dict[str, Any]:
    """Takes the job; says what runs it."""
    self.job = Job(**job)
    self.configs = {'target': T5Config(**self.job.target)}
    if self.job.draft is not None:
      self.configs['draft'] = T5Config(**self.job.draft)
    return {
        'platform': jax.default_backend(),
        'device': jax.devices()[0].device_kind,
        'versions': versions(*self.packages),
        'xla_flags': os.environ.get('XLA_FLAGS', ''),
    }

  def leaf(self, model: str, path: list[str], array: Array) -> None:
    """Takes one parameter, in place of an earlier one of that name."""
    # Not aliased: the runtime's own memory is what a user's weights lie in.
    leaf = jax.device_put(array.numpy(), may_alias=False)
    self._leaves.setdefault(model, {})[tuple(path)] = leaf.block_until_ready()

  def params(self, model: str) -> PyTree:
    """The T5X tree of a model."""
    return parameters.unflatten(self._leaves[model])

  def ready(self) -> None:
    """All weights are those that are timed."""

  def finish(self) -> dict[str, Any]:
    """Peak memory, in bytes; that of the device only where JAX knows it."""
    stats = jax.devices()[0].memory_stats() or {}
    return {
        'peak_bytes': protocol.peak_bytes(),
        'peak_device_bytes': stats.get('peak_bytes_in_use'),
    }
