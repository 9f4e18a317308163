# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs of one sitting, run in turns on the same weights."""

from __future__ import annotations

from collections.abc import Iterator
import time
from typing import Any

import jax
import numpy as np

from accelerator import weights
from accelerator.cells import arguments
from accelerator.cells import Cell
from accelerator.cells import cell_work
from accelerator.cells import Setting
from accelerator.work import Work
from t5x_specdec.testing import planted


class Sitting:
  """Weights on the device, and what was measured with them."""

  def __init__(self, setting: Setting, alphas: list[float], repeats: int):
    self._setting, self._repeats = setting, repeats
    vocab = setting.target.vocab_size
    pairs = {alpha: planted.successors(vocab, alpha, 0) for alpha in alphas}
    self._successor = next(iter(pairs.values()))[0]
    target = weights.planted_params(setting.target, 1)
    self._target = weights.with_successor(target, self._successor)
    draft = weights.planted_params(setting.draft, 2)
    self._drafts = {
        alpha: weights.with_successor(draft, successors)
        for alpha, (_, successors) in pairs.items()
    }
    jax.block_until_ready((self._target, self._drafts))
    # By cell and alpha: seconds and rounds of the short and the full texts.
    self._seconds: dict[Any, list[float]] = {}
    self._rounds: dict[Any, int] = {}
    self._tokens: dict[Any, int] = {}
    self.wrong: list[str] = []

  def measure(self, programs: dict[Cell, Any]) -> None:
    """Runs cells of one batch in turns, with every draft and length."""
    lengths = self._lengths()
    for repeat in range(1 + self._repeats):  # the first one warms up
      for cell, program in programs.items():
        alphas = self._drafts if cell.gamma else [None]
        for alpha in alphas:
          for length in lengths:
            seconds = self._run(cell, program, alpha, length)
            if repeat:
              name = cell, alpha, length
              self._seconds.setdefault(name, []).append(seconds)

  def _lengths(self) -> tuple[int, int]:
    return self._setting.outputs // 4, self._setting.outputs

  def _run(self, cell: Cell, program: Any, alpha: Any, length: int) -> float:
    inputs, prompts, *rest = arguments(cell, self._setting, length)
    draft = self._drafts[alpha] if cell.gamma else {}
    start = time.perf_counter()
    result = jax.device_get(
        program(self._target, draft, inputs, prompts, *rest)
    )
    seconds = time.perf_counter() - start
    self._rounds[cell, alpha, length] = int(result.stats.rounds.max())
    self._tokens[cell, alpha, length] = int(result.stats.emitted.sum())
    text = planted.PlantedPair({}, {}, self._successor, self._successor).text
    expected = [[s, *text(s, length)] for (s,) in prompts.tolist()]
    if result.tokens[:, 0, : length + 1].tolist() != expected:
      self.wrong.append(f'{cell}, alpha {alpha}: not the text that was planted')
    return seconds

  def rows(self, rates: Work) -> Iterator[dict[str, Any]]:
    """Yields the figures of each cell at each alpha."""
    short, full = self._lengths()
    medians = {k: float(np.median(v)) for k, v in self._seconds.items()}
    for cell, alpha, length in medians:
      if length != full:
        continue
      first, last = (cell, alpha, short), (cell, alpha, full)
      rounds = self._rounds[last] - self._rounds[first]
      per_round = (medians[last] - medians[first]) / rounds
      work = cell_work(cell, self._setting)
      floor = sum(part.floor(rates) for part in work)
      row = {
          **cell._asdict(),
          'alpha': alpha,
          'ms_per_token': 1e3 * medians[last] / full,
          'ms_per_round': 1e3 * per_round,
          'tokens_per_round': (
              self._tokens[last] / cell.batch / self._rounds[last]
          ),
          'gigabytes': sum(part.bytes for part in work) / 1e9,
          'gigaoperations': sum(part.operations for part in work) / 1e9,
          'memory_floor_ms': 1e3 * sum(p.bytes for p in work) / rates.bytes,
          'compute_floor_ms': (
              1e3 * sum(p.operations for p in work) / rates.operations
          ),
          'floor_share': floor / per_round,
      }
      for name in ('stock', 'alone'):
        other = Cell(name, cell.batch, 0), None, full
        known = other in medians
        row[f'x_{name}'] = medians[other] / medians[last] if known else None
      yield row
