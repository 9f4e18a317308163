"""`python -m t5x.infer` end to end: stock and speculative predictions agree."""

from __future__ import annotations

import re

import numpy as np
import pytest
import t5x_runs
from t5x_runs import texts

pytestmark = [pytest.mark.t5x, pytest.mark.slow]


runs = t5x_runs.runs


@pytest.mark.parametrize('batch', [1, 4])
def test_predictions_are_stock_line_for_line(runs, batch):
  want = runs.stock()
  got = runs.once(
      f'batch_{batch}', 'near', utils__DatasetConfig__batch_size=batch
  )
  assert len(want) == t5x_runs.LINES  # not a multiple of 4
  assert texts(got) == texts(want)
  assert len({line['prediction'] for line in want}) > 3
  totals = dict.fromkeys(got[0]['aux']['speculation'], 0)
  for line in got:
    assert line['aux']['scores'] == 0.0  # T5X's, of a rescaled greedy law
    counters = line['aux']['speculation']
    assert len(counters['histogram']) == 6
    assert sum(counters['histogram']) == counters['rounds']
    totals = {
        k: v + np.sum(counters[k]).astype(int) for k, v in totals.items()
    }
  assert 0 < totals['accepted'] < totals['judged']
  assert totals['rounds'] < totals['emitted']


def test_a_killed_run_resumes_to_the_same_file(runs):
  changes = {
      'utils__DatasetConfig__batch_size': 2,
      'infer__checkpoint_period': 1,
      # Sampled, so that the keys have to be resumed, too.
      'decoding__speculative_decode__temperature': 1.0,
      'decoding__speculative_decode__topk': 0,
  }
  want = runs.infer('unbroken', 'near', **changes)
  for function, killer, complete in (
      ('write_fn', 'die_at_third_chunk', 2),
      ('merge_fn', 'die_at_the_end', 6),
  ):
    (runs.folder / 'killer.gin').write_text(
        'from __gin__ import dynamic_registration\n'
        'import __main__ as infer_script\n'
        'import tiny_task\n'
        f'infer_script.infer.{function} = @tiny_task.{killer}\n'
    )
    runs.run('broken', 'near', 'killer.gin', options={'status': 9}, **changes)
    (work,) = (runs.folder / 'broken').glob('tmp-*')
    written = sorted(path.name for path in work.glob('*-chunk*.COMPLETED'))
    assert len(written) == complete
  got = runs.infer('broken', 'near', **changes)
  assert got == want
  assert len(got) == t5x_runs.LINES


@pytest.mark.parametrize('devices', [2, 8])
def test_a_six_headed_draft_runs_on_any_mesh(runs, devices):
  """All of a CPU's devices are on the model axis, which 6 does not divide."""
  name = f'devices_{devices}'
  got = runs.infer(name, 'six_heads', options={'devices': devices})
  assert texts(got) == texts(runs.stock())
  info = (runs.folder / name / 'model-info.txt').read_text()
  draft = re.findall('^Variable draft/.*', info, re.MULTILINE)
  assert draft
  assert not any("'model'" in line for line in draft)
  assert "'model'" in info
