# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`scripts/bench_accelerator.py` at a size for tests; no time is asserted."""

import importlib
import json
import pathlib
import sys

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec.benchmarks import shapes
from t5x_specdec.network import T5
from t5x_specdec.testing import planted

ROOT = pathlib.Path(t5x_specdec.__file__).parents[1]


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
  monkeypatch.syspath_prepend(ROOT / 'scripts')


@pytest.mark.slow
def test_stock_steps_compute_what_our_blocks_do():
  """Its caches, bias and cross-attention lie otherwise; the law is one."""
  config = helpers.CONFIGS['t5_1_1']
  params = helpers.random_params(config, 3)
  rng = np.random.default_rng(3)
  inputs = rng.integers(0, config.vocab_size, [2, 5])
  tokens = rng.integers(0, config.vocab_size, [2, 6])
  expected = T5(config).logits(params, inputs, tokens)
  stock = module('stock').StockT5(config)
  state = stock.init(params, inputs, 2, 9)
  step = jax.jit(stock.decode_block)
  for i in range(tokens.shape[1]):
    logits, state = step(
        params, state, tokens[:, i : i + 1], jnp.full([2], i)
    )
    np.testing.assert_allclose(logits[:, 0], expected[:, i], atol=1e-4)


def test_work_is_counted_by_hand():
  config = shapes.SIZES['tiny']
  attention = (4 + 2) * 128 * 48 + 3 * 128
  weights = 2 * (attention + 3 * 128 * 96) + 128 + 3 * 32 + 128 * 512
  counted = module('work')
  work = counted.block_work(config, batch=2, width=3, inputs=7, slots=11)
  # Two caches in two layers of self-attention, and two of the inputs.
  caches = 2 * 2 * 2 * 48 * (11 + 7)
  assert work.bytes == 4 * (weights + caches)
  assert work.operations == 2 * 3 * (2 * weights + 4 * 2 * 48 * 18)
  rates = counted.Work(1e3, 1e6)
  assert work.floor(rates) == work.bytes / 1e3
  assert work.floor(counted.Work(1e12, 1e3)) == work.operations / 1e3


def module(name):
  return importlib.import_module(f'accelerator.{name}')


def run(monkeypatch, capsys, *flags):
  """Of one shape, whose compilations the tests share."""
  argv = [
      *('bench_accelerator', '--size=tiny', '--json', '--cells=2:2'),
      *('--inputs=8', '--outputs=16', *flags),
  ]
  monkeypatch.setattr(sys, 'argv', argv)
  bench = importlib.import_module('bench_accelerator')
  status = bench.main(bench._parser().parse_args())
  return status, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_rows_are_consistent(monkeypatch, capsys):
  status, result = run(
      monkeypatch, capsys, '--repeats=1', '--alpha', '.5', '.9'
  )
  assert status == 0 and result['wrong'] == [] and result['skipped'] == []
  rows = {(row['kind'], row['alpha']): row for row in result['rows']}
  assert len(rows) == 4
  starts = np.random.default_rng(2).choice(
      np.arange(2, 512, dtype=np.int32), 2
  )
  for alpha in (0.5, 0.9):
    tables = planted.successors(512, alpha, 0)
    pair = planted.PlantedPair({}, {}, *tables)
    slowest = max(len(pair.rounds(int(s), 16, 2)) for s in starts)
    assert rows['speculative', alpha]['tokens_per_round'] == 16 / slowest
  for kind in ('stock', 'alone'):
    assert rows[kind, None]['tokens_per_round'] == 1
    assert rows[kind, None][f'x_{kind}'] == 1
    assert rows[kind, None]['gigabytes'] == rows['alone', None]['gigabytes']
  row = rows['speculative', 0.9]
  assert row['x_stock'] == pytest.approx(
      rows['stock', None]['ms_per_token'] / row['ms_per_token']
  )


@pytest.mark.slow
def test_a_text_that_was_not_planted_is_found(monkeypatch, capsys):
  weights = module('weights')
  plant = weights.with_successor
  monkeypatch.setattr(
      weights, 'with_successor', lambda params, s: plant(params, np.roll(s, 1))
  )
  status, result = run(monkeypatch, capsys, '--repeats=1', '--alpha', '.5')
  assert status == 1
  assert 'not the text that was planted' in result['wrong'][0]


@pytest.mark.slow
def test_lowering_runs_nothing(monkeypatch, capsys):
  script = importlib.import_module('bench_accelerator')
  monkeypatch.setattr(script, 'Sitting', None)
  status, result = run(monkeypatch, capsys, '--lower_only')
  assert status == 0 and result['ran'] is False and 'rows' not in result
  assert [p['kind'] for p in result['programs']] == [
      'stock', 'alone', 'speculative'
  ]
