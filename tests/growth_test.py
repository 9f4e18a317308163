# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`scripts/growth.py`: its lines, its count of caches, and what varies."""

import importlib
import pathlib

import pytest

import t5x_specdec
from t5x_specdec.benchmarks import shapes

ROOT = pathlib.Path(t5x_specdec.__file__).parents[1]


@pytest.fixture
def growth(monkeypatch):
  monkeypatch.syspath_prepend(ROOT / 'scripts')
  return importlib.import_module('growth')


def test_a_line_is_found_and_what_is_off_it_said(growth):
  x = [1, 2, 4]
  assert growth.fit(x, [5, 7, 11]) == '3 + 2 x, off by at most 0.0%'
  # The line nearest to these is y = 2: twice the first, half the second.
  text = growth.fit([0, 1, 2], [1, 4, 1])
  assert text.startswith('2 + ') and text.endswith('off by at most 100.0%')


def test_one_thing_varies_at_a_time(growth):
  tiny = shapes.SIZES['tiny']
  setting = growth.Setting(tiny, tiny, 16, 32)
  found = dict(growth.lines(setting, 4))
  outputs = [p.setting.outputs for p in found['output tokens']]
  assert outputs == [16, 32, 64, 128]
  assert [p.setting.inputs for p in found['input tokens']] == [8, 16, 32, 64]
  assert [p.cell.batch for p in found['rows']] == [1, 2, 4, 8]
  assert [p.cell.gamma for p in found['gamma']] == [1, 2, 4, 8]
  assert [p.setting.draft.vocab_size for p in found['vocabulary']] == [
      128, 256, 512
  ]
  base = (growth.Cell('speculative', 1, 4), setting)
  for points in found.values():
    # The lines cross in one point, which is compiled once.
    assert base in [(p.cell, p.setting) for p in points]


def test_caches_are_counted_by_hand(growth):
  tiny = shapes.SIZES['tiny']
  setting = growth.Setting(tiny, tiny, 16, 32)
  cell = growth.Cell('speculative', 3, 4)
  # Two models of two layers, keys and values, 48 numbers a slot: the prompt's
  # token, the text, the start, a block's, and the inputs.
  slots = 1 + 32 + 1 + (4 + 1) + 16
  assert growth.caches(cell, setting) == 2 * 2 * 2 * 3 * 48 * slots * 4
