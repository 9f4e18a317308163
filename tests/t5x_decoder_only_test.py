"""`python -m t5x.infer` with the decoder-only model: stock and speculative."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import helpers
import numpy as np
import pytest
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
_NETWORK = """
{scope}network.TransformerConfig:
  vocab_size = {vocab_size}
  dtype = 'float32'
  emb_dim = {emb_dim}
  num_heads = {num_heads}
  num_layers = {num_decoder_layers}
  head_dim = {head_dim}
  mlp_dim = {mlp_dim}
  mlp_activations = ('gelu', 'linear')
  dropout_rate = 0.0
  logits_via_embedding = False
"""
_HEADER = """
from __gin__ import dynamic_registration
import seqio
from t5x.examples.decoder_only import network
"""
_RUN = 't5x_specdec/configs/runs/infer_speculative_decoder_only.gin'


@pytest.fixture(scope='module')
def folder(runs) -> pathlib.Path:
  """The runs' folder with a pair of decoder-only models and their gin files."""
  import t5x

  folder = runs.folder
  base = pathlib.Path(list(t5x.__path__)[0], 'examples/decoder_only/models')
  fields = dataclasses.asdict(_TARGET)
  # Its files cannot be included by name: there is no __init__.py beside them.
  (folder / 'decoder.gin').write_text(
      f"include '{base}/base.gin'\n"
      + _HEADER
      + _NETWORK.format(scope='', **fields)
      + 'seqio.SentencePieceVocabulary.sentencepiece_model_file ='
      f' {str(folder / "words.model")!r}\n'
      'seqio.SentencePieceVocabulary.extra_ids = 0\n'
  )
  (folder / 'decoder_draft.gin').write_text(
      _HEADER + _NETWORK.format(scope='draft/', **fields)
  )
  target = helpers.random_params(_TARGET, 35)
  draft = helpers.perturbed(target, 1, 0.1)
  for name, params in (('decoder', target), ('decoder_draft', draft)):
    write_checkpoint(folder / name, params, step=1, dtype='float32')
  return folder


def infer(folder: pathlib.Path, name: str, *files: str, **bindings):
  """Runs infer.py; returns the lines of its JSONL."""
  values = {
      'MIXTURE_OR_TASK_NAME': 'tiny',
      'MIXTURE_OR_TASK_MODULE': 'tiny_task',
      'TASK_FEATURE_LENGTHS': {'inputs': 16, 'targets': 12},
      'CHECKPOINT_PATH': str(folder / 'decoder/checkpoint_1'),
      'INFER_OUTPUT_DIR': str(folder / name),
      'DROPOUT_RATE': 0.0,
      'utils.RestoreCheckpointConfig.dtype': 'float32',
      'utils.DatasetConfig.batch_size': 4,
      'decoding.temperature_sample.temperature': 0.0,
  }
  t5x_processes.run(
      folder, ['-m', 't5x.infer'], ['decoder.gin', *files], values | bindings
  )
  (merged,) = (folder / name).glob('*.jsonl-00000-of-00001')
  return [json.loads(line) for line in merged.read_text().splitlines()]


def test_predictions_are_stock_line_for_line(folder):
  want = infer(folder, 'decoder_stock', 't5x/configs/runs/infer.gin')
  got = infer(
      folder,
      'decoder_speculative',
      'decoder_draft.gin',
      _RUN,
      **{
          'DRAFT_CHECKPOINT_PATH': str(folder / 'decoder_draft/checkpoint_1'),
          'decoding.speculative_decode.temperature': 0.0,
          'decoding.speculative_decode.topk': 40,
      },
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
