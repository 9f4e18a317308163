"""`python -m t5x.infer` with the decoder-only model: stock and speculative."""

from __future__ import annotations

import pathlib

import helpers
import numpy as np
import pytest
import t5x_gin
import t5x_processes
import t5x_runs

from t5x_specdec import T5Config
from t5x_specdec.testing.checkpoint_writer import write_checkpoint

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

runs = t5x_runs.runs  # its folder, with a task and a vocabulary

_TARGET = T5Config(
    vocab_size=64,
    emb_dim=16,
    num_heads=4,
    num_encoder_layers=0,
    num_decoder_layers=2,
    head_dim=4,
    mlp_dim=24,
    mlp_activations=('gelu', 'linear'),
)
_RUN = 't5x_specdec/configs/runs/infer_speculative_decoder_only.gin'


@pytest.fixture(scope='module')
def pair(runs) -> t5x_runs.Runs:
  """The runs, with decoder-only models and gin files in their folder."""
  import t5x

  folder = runs.folder
  base = pathlib.Path(list(t5x.__path__)[0], 'examples/decoder_only/models')
  # Its files cannot be included by name: there is no __init__.py beside them.
  (folder / 'decoder.gin').write_text(
      f"include '{base}/base.gin'\n"
      + t5x_gin.network(_TARGET)
      + t5x_runs.vocabulary(folder)
  )
  (folder / 'decoder_draft.gin').write_text(t5x_gin.network(_TARGET, 'draft/'))
  target = helpers.random_params(_TARGET, 35)
  draft = helpers.perturbed(target, 1, 0.1)
  for name, params in (('decoder', target), ('decoder_draft', draft)):
    write_checkpoint(folder / name, params, step=1, dtype='float32')
  return runs


def infer(runs, name: str, *files: str, **changes):
  """Runs infer.py; returns the lines of its JSONL."""
  values = runs.values(
      'stock',
      CHECKPOINT_PATH=str(runs.folder / 'decoder/checkpoint_1'),
      INFER_OUTPUT_DIR=str(runs.folder / name),
      decoding__temperature_sample__temperature=0.0,
      **changes,
  )
  t5x_processes.run(
      runs.folder, ['-m', 't5x.infer'], ['decoder.gin', *files], values
  )
  return t5x_processes.lines(runs.folder / name)


def test_predictions_are_stock_line_for_line(pair):
  want = infer(pair, 'decoder_stock', 't5x/configs/runs/infer.gin')
  got = infer(
      pair,
      'decoder_speculative',
      'decoder_draft.gin',
      _RUN,
      DRAFT_CHECKPOINT_PATH=str(pair.folder / 'decoder_draft/checkpoint_1'),
      decoding__speculative_decode__temperature=0.0,
      decoding__speculative_decode__topk=40,
  )
  assert t5x_runs.texts(got) == t5x_runs.texts(want)
  assert len({line['prediction'] for line in want}) > 3
  counters = [line['aux']['speculation'] for line in got]
  totals = {
      name: np.sum([c[name] for c in counters])
      for name in ('accepted', 'judged', 'rounds', 'emitted')
  }
  assert 0 < totals['accepted'] < totals['judged']
  assert totals['rounds'] < totals['emitted']
