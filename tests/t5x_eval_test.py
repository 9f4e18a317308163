# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Other ways into the same pair: t5x/eval.py, mode 'predict', lookup."""

from __future__ import annotations

import json

import pytest
import t5x_processes
import t5x_runs

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

runs = t5x_runs.runs  # a folder with a task, two models, gin files


_CONFIGS = 't5x_specdec/configs/runs'


def test_eval_has_the_metrics_of_stock(runs):
  metrics, predictions = [], []
  for kind, files in (
      ('stock', ['stock.gin', 't5x/configs/runs/eval.gin']),
      ('near', ['near.gin', f'{_CONFIGS}/eval_speculative.gin']),
  ):
    output = runs.folder / f'{kind}_eval'
    t5x_processes.run(
        runs.folder,
        ['-m', 't5x.eval'],
        ['target.gin', *files],
        runs.values(kind, EVAL_OUTPUT_DIR=str(output)),
    )
    folder = output / 'inference_eval'
    (line,) = (folder / 'tiny-metrics.jsonl').read_text().splitlines()
    metrics.append(json.loads(line))
    (path,) = folder.glob('tiny-0*.jsonl')
    predictions.append(path.read_text().splitlines())
  assert metrics[0] == metrics[1]
  assert metrics[0]['count'] == t5x_runs.LINES
  assert predictions[0] == predictions[1]
  assert len(predictions[0]) == t5x_runs.LINES


def test_mode_predict_logs_what_the_other_mode_counts(runs):
  said, lines = [], []
  for mode in ('predict', 'predict_with_aux'):
    done = runs.run(
        mode,
        'near',
        infer__mode=mode,
        infer__checkpoint_period=6,
        utils__DatasetConfig__batch_size=1,  # so that nothing is padded
    )
    said.append(t5x_runs.logged(done))
    lines.append(t5x_processes.lines(runs.folder / mode))
  assert list(said[0]) == ['00000', '00001']
  assert said[0] == said[1]
  assert 'aux' not in lines[0][0] and 'aux' in lines[1][0]
  assert t5x_runs.texts(lines[0]) == t5x_runs.texts(lines[1])
  rounds = sum(x['aux']['speculation']['rounds'] for x in lines[1])
  assert sum(calls for _, _, calls in said[0].values()) == rounds


def test_lookup_predicts_what_stock_does(runs):
  t5x_processes.run(
      runs.folder,
      ['-m', 't5x.infer'],
      ['target.gin', f'{_CONFIGS}/infer_lookup.gin'],
      runs.values(
          'stock',
          INFER_OUTPUT_DIR=str(runs.folder / 'lookup'),
          decoding__speculative_decode__temperature=0.0,
          drafts__PromptLookup__longest=1,
      ),
  )
  lines = t5x_processes.lines(runs.folder / 'lookup')
  assert t5x_runs.texts(lines) == t5x_runs.texts(runs.stock())
  assert sum(x['aux']['speculation']['drafted'] for x in lines) > 0
