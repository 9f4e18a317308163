"""scripts/table2.py measures a row of a tiny pair from infer.py's gin files."""

from __future__ import annotations

import json
import pathlib
import runpy
import types

import numpy as np
import pytest
import t5x_processes
import t5x_runs

from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import Fixed

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

runs = t5x_runs.runs  # a folder with a task, two models, gin files

_SCRIPT = pathlib.Path(__file__).parents[1] / 'scripts' / 'table2.py'
_RUN = 't5x_specdec/configs/runs/infer_speculative.gin'
_GAMMA = 3


@pytest.fixture(scope='module')
def table2():
  """The script's functions; a process can define its flags but once."""
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(_SCRIPT.parent)
    return runpy.run_path(str(_SCRIPT))


def measure(runs, row: str, temperature: float, *files: str, status: int = 0):
  """Runs the script on two batches of four; returns its process."""
  (runs.folder / row).write_text(f"include '{_RUN}'\n")
  values = runs.values(
      'near',
      models__SpeculativeEncoderDecoderModel__gamma=_GAMMA,
      decoding__speculative_decode__temperature=temperature,
      decoding__speculative_decode__topk=0,
      TEMPERATURE=temperature,
      TOPK=0,
  )
  return t5x_processes.run(
      runs.folder,
      [str(_SCRIPT), '--batches=2', '--json'],
      ['target.gin', 'near.gin', row, *files],
      values,
      status=status,
  )


def test_a_greedy_row(runs):
  output = measure(runs, 'ende_small_t0.gin', 0.0).stdout.splitlines()
  row = json.loads(output[-1])
  assert (row['texts'], row['identical']) == (8, 8)
  assert (row['gamma'], row['temperature'], row['topk']) == (_GAMMA, 0.0, 0)
  # What infer.py counts on the same eight lines.
  total = counted(
      runs.once(
          'table2', 'near', models__SpeculativeEncoderDecoderModel__gamma=_GAMMA
      )
  )
  assert row['alpha_empirical'] == total['accepted'] / total['judged']
  assert row['alpha'] == pytest.approx(total['overlap'] / total['judged'])
  assert row['tokens_per_target_call'] == total['emitted'] / total['rounds']
  assert 0 < row['alpha'] < 1
  # Of each model alone, to the end of all eight texts and not to their EOS.
  whole = 8 * t5x_runs.TARGETS
  assert total['emitted'] < whole
  assert row['tokens'] == {
      'stock': total['emitted'],
      'speculative': total['emitted'],
      'target': whole,
      'draft': whole,
  }
  assert row['c'] > 0 and row['measured'] > 0
  assert row['paper']['row'] == 'ende_small_t0'
  assert '8 texts, 8 identical to stock' in '\n'.join(output)
  (paper,) = [line for line in output if line.startswith('paper')]
  assert paper.split()[1:] == ['7', '0.750', '-', '0.020', '3.20', '3.40']


def counted(lines: list[dict]) -> dict[str, float]:
  """Counters of infer.py's first eight lines."""
  return {
      name: sum(line['aux']['speculation'][name] for line in lines[:8])
      for name in ('accepted', 'judged', 'overlap', 'emitted', 'rounds')
  }


def test_a_sampled_row_and_one_that_the_paper_lacks(runs):
  output = measure(runs, 'other.gin', 1.0).stdout.splitlines()
  row = json.loads(output[-1])
  assert row['identical'] is None
  assert row['paper'] is None
  assert (row['temperature'], row['topk']) == (1.0, 0)
  # infer.py has other keys, so both estimate one mean, either from as many
  # drafts: within four standard errors, and those at their largest.
  total = counted(
      runs.infer(
          'table2_sampled',
          'near',
          models__SpeculativeEncoderDecoderModel__gamma=_GAMMA,
          decoding__speculative_decode__temperature=1.0,
          decoding__speculative_decode__topk=0,
      )
  )
  margin = 4 * 0.5 * (2 / total['judged']) ** 0.5
  assert abs(row['alpha'] - total['overlap'] / total['judged']) < margin
  share = total['accepted'] / total['judged']
  assert abs(row['alpha_empirical'] - share) < margin
  assert 0 < row['alpha'] < 1


def test_figures_of_times():
  report = runpy.run_path(str(_SCRIPT.parent / 'table2_report.py'))
  texts = np.array([[5, 1, 0, 0], [1, 7, 1, 0], [4, 4, 4, 4]])
  assert report['count_tokens'](texts, 1) == 2 + 1 + 4
  row = report['times'](
      0.5,
      2,
      {'stock': 3.0, 'speculative': 1.0, 'target': 4.0, 'draft': 1.0},
      {'stock': 10, 'speculative': 5, 'target': 20, 'draft': 20},
  )
  assert row['ms_per_token'] == {
      'stock': 300.0, 'speculative': 200.0, 'target': 200.0, 'draft': 50.0
  }
  assert (row['c'], row['measured']) == (0.25, 1.5)
  # 1 + 1/2 + 1/4 tokens for 1 + 2 / 4 of a call.
  assert row['expected'] == pytest.approx(1.75 / 1.5)


@pytest.mark.parametrize(
    'gamma, draft, message',
    [
        (Adaptive(c=0.1), 'model', r'Adaptive\(.*one number of drafts'),
        (Fixed(0), 'model', r'Fixed\(gamma=0\): .* one number of drafts'),
        (None, 'model', 'is None: .* one number of drafts'),
        (3, None, 'a draft that is a model'),
    ],
)
def test_what_makes_no_row_is_refused_before_it_is_timed(
    gamma, draft, message, table2
):
  model = types.SimpleNamespace(gamma=gamma, draft_module=draft)
  with pytest.raises(ValueError, match=message):
    table2['_gamma'](model)


def test_a_number_that_a_planner_chose_makes_a_row(table2):
  model = types.SimpleNamespace(gamma=Fixed(3), draft_module='model')
  assert table2['_gamma'](model) == 3


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
  got = runs.infer(
      'baseline', 'near', 'baseline.gin', TEMPERATURE=0.0, TOPK=0
  )
  assert t5x_runs.texts(got) == t5x_runs.texts(runs.stock())
  assert all(set(line['aux']) == {'scores'} for line in got)
