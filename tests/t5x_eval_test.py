# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Other ways into the same pair: t5x/eval.py, mode 'predict', lookup."""

from __future__ import annotations

import json
import re

import pytest
import t5x_processes
import t5x_runs

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

runs = t5x_runs.runs  # a folder with a task, two models, gin files


def run(runs, script, name, files, **bindings):
  """Runs a script of T5X on the tiny task; returns its process."""
  output = 'EVAL_OUTPUT_DIR' if script == 't5x.eval' else 'INFER_OUTPUT_DIR'
  values = {
      'MIXTURE_OR_TASK_NAME': 'tiny',
      'MIXTURE_OR_TASK_MODULE': 'tiny_task',
      'TASK_FEATURE_LENGTHS': {
          'inputs': t5x_runs.INPUTS,
          'targets': t5x_runs.TARGETS,
      },
      'CHECKPOINT_PATH': str(runs.folder / 'target/checkpoint_1'),
      output: str(runs.folder / name),
      'DROPOUT_RATE': 0.0,
      'utils.RestoreCheckpointConfig.dtype': 'float32',
      'utils.DatasetConfig.batch_size': 4,
      **{key.replace('__', '.'): value for key, value in bindings.items()},
  }
  return t5x_processes.run(
      runs.folder, ['-m', script], ['target.gin', *files], values
  )


def test_eval_has_the_metrics_of_stock(runs):
  configs = 't5x_specdec/configs/runs'
  stock = ['stock.gin', 't5x/configs/runs/eval.gin']
  run(runs, 't5x.eval', 'stock_eval', stock)
  run(
      runs,
      't5x.eval',
      'our_eval',
      ['near.gin', f'{configs}/eval_speculative.gin'],
      DRAFT_CHECKPOINT_PATH=str(runs.folder / 'near/checkpoint_1'),
      decoding__speculative_decode__temperature=0.0,
  )
  metrics, predictions = [], []
  for name in ('stock_eval', 'our_eval'):
    folder = runs.folder / name / 'inference_eval'
    (line,) = (folder / 'tiny-metrics.jsonl').read_text().splitlines()
    metrics.append(json.loads(line))
    (path,) = folder.glob('tiny-0*.jsonl')
    predictions.append(path.read_text().splitlines())
  assert metrics[0] == metrics[1]
  assert metrics[0]['count'] == t5x_runs.LINES
  assert predictions[0] == predictions[1]
  assert len(predictions[0]) == t5x_runs.LINES


def test_mode_predict_logs_what_the_other_mode_counts(runs):
  files = ['near.gin', 't5x_specdec/configs/runs/infer_speculative.gin']
  common = {
      'DRAFT_CHECKPOINT_PATH': str(runs.folder / 'near/checkpoint_1'),
      'decoding__speculative_decode__temperature': 0.0,
      'utils__DatasetConfig__batch_size': 1,  # so that nothing is padded
      'infer__checkpoint_period': 6,
  }
  said, lines = [], []
  for mode in ('predict', 'predict_with_aux'):
    done = run(runs, 't5x.infer', mode, files, infer__mode=mode, **common)
    found = re.findall(
        r'chunk0000(\d): '
        r'(alpha \S+, \S+ tokens per target call over \d+ calls)',
        done.stderr,
    )
    said.append(found)
    (merged,) = (runs.folder / mode).glob('*.jsonl-00000-of-00001')
    lines.append([json.loads(x) for x in merged.read_text().splitlines()])
  assert [chunk for chunk, _ in said[0]] == ['0', '1']
  assert said[0] == said[1]
  assert 'aux' not in lines[0][0] and 'aux' in lines[1][0]
  assert t5x_runs.texts(lines[0]) == t5x_runs.texts(lines[1])
  rounds = sum(x['aux']['speculation']['rounds'] for x in lines[1])
  calls = [int(re.search(r'over (\d+)', text)[1]) for _, text in said[0]]
  assert sum(calls) == rounds


def test_lookup_predicts_what_stock_does(runs):
  run(
      runs,
      't5x.infer',
      'lookup',
      ['t5x_specdec/configs/runs/infer_lookup.gin'],
      decoding__speculative_decode__temperature=0.0,
      drafts__PromptLookup__longest=1,
  )
  (merged,) = (runs.folder / 'lookup').glob('*.jsonl-00000-of-00001')
  lines = [json.loads(line) for line in merged.read_text().splitlines()]
  assert t5x_runs.texts(lines) == t5x_runs.texts(runs.stock())
  assert sum(x['aux']['speculation']['drafted'] for x in lines) > 0
