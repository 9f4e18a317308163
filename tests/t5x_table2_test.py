"""scripts/table2.py measures a row of a tiny pair from infer.py's gin files."""

from __future__ import annotations

import json
import pathlib

import pytest
import t5x_processes
import t5x_runs

from t5x_specdec import theory

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

runs = t5x_runs.runs  # a folder with a task, two models, gin files

_SCRIPT = pathlib.Path(__file__).parents[1] / 'scripts' / 'table2.py'
_RUN = 't5x_specdec/configs/runs/infer_speculative.gin'
_GAMMA = 3


def measure(runs, row: str, temperature: float, *files: str, status: int = 0):
  """Runs the script on two batches of four; returns its process."""
  (runs.folder / row).write_text(f"include '{_RUN}'\n")
  values = {
      'MIXTURE_OR_TASK_NAME': 'tiny',
      'MIXTURE_OR_TASK_MODULE': 'tiny_task',
      'TASK_FEATURE_LENGTHS': {'inputs': 16, 'targets': 12},
      'CHECKPOINT_PATH': str(runs.folder / 'target/checkpoint_1'),
      'DRAFT_CHECKPOINT_PATH': str(runs.folder / 'near/checkpoint_1'),
      'DROPOUT_RATE': 0.0,
      'models.SpeculativeEncoderDecoderModel.gamma': _GAMMA,
      'decoding.speculative_decode.temperature': temperature,
      'decoding.speculative_decode.topk': 0,
      'utils.RestoreCheckpointConfig.dtype': 'float32',
      'utils.DatasetConfig.batch_size': 4,
      'TEMPERATURE': temperature,
      'TOPK': 0,
  }
  return t5x_processes.run(
      runs.folder,
      [str(_SCRIPT), '--batches=2', '--json'],
      ['target.gin', 'near.gin', row, *files],
      values,
      status,
  )


def test_a_greedy_row(runs):
  output = measure(runs, 'ende_small_t0.gin', 0.0).stdout.splitlines()
  row = json.loads(output[-1])
  assert (row['texts'], row['identical']) == (8, 8)
  assert (row['gamma'], row['temperature'], row['topk']) == (_GAMMA, 0.0, 0)
  # What infer.py counts on the same eight lines.
  infer = runs.once(
      'table2',
      'utils.DatasetConfig.batch_size=4',
      f'models.SpeculativeEncoderDecoderModel.gamma={_GAMMA}',
      kind='near',
  )
  total = {
      name: sum(line['aux']['speculation'][name] for line in infer[:8])
      for name in ('accepted', 'judged', 'overlap', 'emitted', 'rounds')
  }
  assert row['alpha_empirical'] == total['accepted'] / total['judged']
  assert row['alpha'] == pytest.approx(total['overlap'] / total['judged'])
  assert row['tokens_per_target_call'] == total['emitted'] / total['rounds']
  assert 0 < row['alpha'] < 1
  ms = row['ms_per_token']
  assert row['c'] == ms['draft'] / ms['target'] > 0
  assert row['measured'] == ms['stock'] / ms['speculative'] > 0
  assert row['expected'] == pytest.approx(
      theory.walltime_improvement(row['alpha'], _GAMMA, row['c'])
  )
  assert row['paper'] == {
      'row': 'ende_small_t0',
      'gamma': 7,
      'alpha': 0.75,
      'c': 0.02,
      'expected': 3.2,
      'measured': 3.4,
  }
  assert '8 texts, 8 identical to stock' in '\n'.join(output)
  (paper,) = [line for line in output if line.startswith('paper')]
  assert paper.split()[1:] == ['7', '0.750', '-', '0.020', '3.20', '3.40']


def test_a_sampled_row_and_one_that_the_paper_lacks(runs):
  output = measure(runs, 'other.gin', 1.0).stdout.splitlines()
  row = json.loads(output[-1])
  assert row['identical'] is None
  assert row['paper'] is None
  assert (row['temperature'], row['topk']) == (1.0, 0)
  assert 0 < row['alpha'] < 1
  # Both are estimates of one mean; at temperature 0 they would be equal.
  assert row['alpha'] != row['alpha_empirical']


def test_a_baseline_is_refused(runs):
  done = measure(
      runs,
      'other.gin',
      1.0,
      't5x_specdec/configs/runs/infer_baseline.gin',
      status=1,
  )
  assert 'without infer_baseline.gin' in done.stderr


def test_infer_baseline_gives_the_stock_predictions(runs):
  (runs.folder / 'baseline.gin').write_text(
      "include 't5x_specdec/configs/runs/infer_baseline.gin'\n"
  )
  got = runs.run(
      'baseline',
      'utils.DatasetConfig.batch_size=4',
      'TEMPERATURE=0.0',
      'TOPK=0',
      kind='near',
      last='baseline.gin',
  )
  assert t5x_runs.texts(got) == t5x_runs.texts(runs.stock())
  assert all(set(line['aux']) == {'scores'} for line in got)
