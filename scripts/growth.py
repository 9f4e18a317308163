# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
r"""How time and memory grow: with lengths, rows, vocabulary, drafts and depth.

A planted pair whose draft is always right, so that rounds are known and every
round does the same; one thing varies at a time. `fit` is the straight line
through the points, `off` how far the worst point lies from it:

  python scripts/growth.py
  python scripts/growth.py --size tiny --outputs 16

A call's time is the median of --repeats, the points of a line run in turns.
Temporaries are XLA's own count, beside what the loop may hold: 4 floats for
every logit of a round, and every cache once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import dataclasses
import functools
import sys
import time
from typing import Any, NamedTuple

from accelerator import weights
from accelerator.cells import arguments
from accelerator.cells import Cell
from accelerator.cells import compile_cell
from accelerator.cells import Setting
from accelerator.table import show
import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.benchmarks import shapes
from t5x_specdec.cli import exits
from t5x_specdec.parameters import T5Config
from t5x_specdec.testing import planted

_MIB = 2**20


class Point(NamedTuple):
  """A program at one value of what varies."""

  x: int
  cell: Cell
  setting: Setting


def lines(setting: Setting, gamma: int) -> Iterator[tuple[str, list[Point]]]:
  """Yields what varies, and its points, from a setting in the middle.

  Args:
    setting: the models, and lengths in tokens.
    gamma: drafts per round.
  """
  cell = Cell('speculative', 1, gamma)
  factors = (0.5, 1, 2, 4)

  def scaled(name: str) -> list[Point]:
    values = [int(getattr(setting, name) * factor) for factor in factors]
    return [Point(x, cell, setting._replace(**{name: x})) for x in values]

  yield 'output tokens', scaled('outputs')
  yield 'input tokens', scaled('inputs')
  for field, name in (('batch', 'rows'), ('gamma', 'gamma')):
    values = (1, 2, 4, 8)
    yield name, [Point(x, cell._replace(**{field: x}), setting) for x in values]
  points = []
  for factor in (0.25, 0.5, 1):
    vocab = int(setting.target.vocab_size * factor)
    target, draft = (
        dataclasses.replace(config, vocab_size=vocab) for config in setting[:2]
    )
    smaller = setting._replace(target=target, draft=draft)
    points.append(Point(vocab, cell, smaller))
  yield 'vocabulary', points


@functools.lru_cache(maxsize=2)
def planted_pair(target: T5Config, draft: T5Config) -> tuple[Any, Any]:
  """Parameters of a pair that always agrees."""
  successor, _ = planted.successors(target.vocab_size, 1.0, 0)
  return tuple(
      weights.with_successor(weights.planted_params(config, seed), successor)
      for seed, config in ((1, target), (2, draft))
  )


@functools.cache
def program_of(cell: Cell, setting: Setting) -> tuple[Any, float]:
  """A compiled program, and the seconds that took."""
  start = time.perf_counter()
  program = compile_cell(cell, setting, jax.devices()[0])
  return program, time.perf_counter() - start


def caches(cell: Cell, setting: Setting) -> int:
  """Bytes of the caches of a pair, cross-attention included."""
  slots = setting.slots(cell.gamma) + setting.inputs
  size = 0
  for config in (setting.target, setting.draft):
    heads = config.num_heads * config.head_dim * config.num_decoder_layers
    size += 2 * cell.batch * slots * heads * jnp.dtype(config.dtype).itemsize
  return size


def measure(points: list[Point], repeats: int) -> list[dict[str, Any]]:
  """Compiles the points of a line, and runs them in turns."""
  programs = [program_of(p.cell, p.setting) for p in points]
  seconds: list[list[float]] = [[] for _ in points]
  rounds = [0] * len(points)
  for repeat in range(repeats + 1):  # the first one warms up
    for i, (point, (program, _)) in enumerate(zip(points, programs)):
      setting = point.setting
      pair = planted_pair(setting.target, setting.draft)
      rest = arguments(point.cell, setting, setting.outputs)
      start = time.perf_counter()
      result = jax.device_get(program(*pair, *rest))
      if repeat:
        seconds[i].append(time.perf_counter() - start)
      rounds[i] = int(result.stats.rounds.max())
      if not np.all(result.stats.emitted == setting.outputs):
        raise RuntimeError(f'{point}: not the texts that were planted')
  rows = []
  for point, (program, compile_s), times, count in zip(
      points, programs, seconds, rounds
  ):
    held = program.memory_analysis().temp_size_in_bytes
    cell, vocab = point.cell, point.setting.target.vocab_size
    logits = 4 * cell.batch * (cell.gamma + 1) * vocab
    kept = caches(cell, point.setting)
    middle = float(np.median(times))
    rows.append({
        'x': point.x,
        'compile s': compile_s,
        'ms per call': 1e3 * middle,
        'rounds': count,
        'ms per round': 1e3 * middle / count,
        'temporaries MiB': held / _MIB,
        'allowed MiB': (4 * logits + kept) / _MIB,
        'beside caches, in logits': (held - kept) / logits,
    })
  return rows


def fit(x: list[float], y: list[float]) -> str:
  """A straight line in words, and its worst residual as a share of its point.

  Args:
    x: at least two different values.
    y: likewise, not 0.
  """
  slope, start = np.polyfit(x, y, 1)
  off = np.max(np.abs(start + slope * np.array(x) - y) / np.abs(y))
  return f'{start:.4g} + {slope:.4g} x, off by at most {off:.1%}'


def depths(setting: Setting, gamma: int) -> list[dict[str, Any]]:
  """Compile time against the layers of each of the target's stacks."""
  rows = []
  for depth in (6, 12, 24):
    target = dataclasses.replace(
        setting.target, num_encoder_layers=depth, num_decoder_layers=depth
    )
    deeper = setting._replace(target=target)
    _, seconds = program_of(Cell('speculative', 1, gamma), deeper)
    rows.append({'layers': depth, 'compile s': seconds})
  return rows


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(description=str(__doc__).partition('\n')[0])
  parser.add_argument('--size', choices=shapes.SIZES, default='base')
  parser.add_argument('--draft', choices=shapes.SIZES, default=None)
  parser.add_argument('--dtype', default='float32')
  parser.add_argument('--inputs', type=int, default=64, help='tokens')
  parser.add_argument('--outputs', type=int, default=64, help='tokens')
  parser.add_argument('--gamma', type=int, default=4)
  parser.add_argument('--repeats', type=int, default=3)
  return parser


def main(args: argparse.Namespace) -> None:
  draft = args.draft or ('tiny' if args.size == 'tiny' else 'small')
  target, draft = (
      dataclasses.replace(shapes.SIZES[size], dtype=args.dtype)
      for size in (args.size, draft)
  )
  setting = Setting(target, draft, args.inputs, args.outputs)
  start = time.perf_counter()
  for name, points in lines(setting, args.gamma):
    rows = measure(points, args.repeats)
    print(f'\nx = {name}\n')
    show(rows)
    x = [row['x'] for row in rows]
    for column in ('ms per call', 'ms per round', 'temporaries MiB'):
      print(f'\n{column}: {fit(x, [row[column] for row in rows])}')
    print(f'{time.perf_counter() - start:.0f} s', file=sys.stderr, flush=True)
  rows = depths(setting, args.gamma)
  print('\nThe target of other depths, compiled only; layers are unrolled.\n')
  show(rows)
  found = fit(*([row[key] for row in rows] for key in ('layers', 'compile s')))
  print(f'\ncompile s: {found}')


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
