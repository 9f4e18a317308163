"""Runs of `python -m t5x.infer` as users do, in processes of their own.

On a tiny pair of random models and a text task of eleven lines.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib
import re
import subprocess
from typing import Any

import helpers
import numpy as np
import pytest
import t5x_gin
import t5x_processes

from t5x_specdec import T5Config
from t5x_specdec.testing.checkpoint_writer import write_checkpoint

# What T5X puts on the model axis (heads, joined, mlp, vocab) divides by 8.
TARGET = T5Config(
    vocab_size=64,
    emb_dim=16,
    num_heads=8,
    num_encoder_layers=1,
    num_decoder_layers=2,
    head_dim=4,
    mlp_dim=24,
    mlp_activations=('gelu', 'linear'),
)
# Six heads, as T5 1.1 Small has.
SIX_HEADS = dataclasses.replace(
    TARGET, num_heads=6, num_decoder_layers=1, emb_dim=12
)
LINES = 11
# Lengths of the task's features.
INPUTS, TARGETS = 16, 12

_TASK = '''
import os
import zlib

import seqio
from t5x import infer
import tensorflow as tf

_HERE = os.path.dirname(__file__)
_WORDS = seqio.SentencePieceVocabulary(
    os.path.join(_HERE, 'words.model'), extra_ids=0
)


def _read(split, shuffle_files=False, seed=None):
  del shuffle_files, seed
  lines = tf.data.TextLineDataset(os.path.join(_HERE, 'lines.txt'))
  lines = lines.take(8 if split == 'eight' else -1)
  return lines.map(lambda x: {'inputs': x, 'targets': x})


def _of_predictions(targets, predictions):
  """A metric that no two sets of predictions share."""
  joined = '|'.join(predictions).encode()
  return {'checksum': zlib.crc32(joined) % 10_007, 'count': len(targets)}


seqio.TaskRegistry.add(
    'tiny',
    source=seqio.FunctionDataSource(_read, splits=['test', 'eight']),
    preprocessors=[
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
    ],
    output_features={
        name: seqio.Feature(_WORDS, add_eos=True)
        for name in ('inputs', 'targets')
    },
    metric_fns=[_of_predictions],
)


def _die_in(path):
  os.truncate(path, os.path.getsize(path) // 2)
  os._exit(9)


def die_at_third_chunk(path, *args):
  """infer.py's writer, in a process that is killed in the third chunk."""
  infer.write_inferences_to_file(path, *args)
  if path.endswith('chunk00002'):
    _die_in(path)


def die_at_the_end(output_dir, output_fname, *args):
  """infer.py's merge, in a process that is killed halfway through it."""
  infer.merge_chunks_to_file(output_dir, output_fname, *args)
  _die_in(os.path.join(output_dir, output_fname))
'''

_STOCK = """
from __gin__ import dynamic_registration
from t5x import decoding
from t5x import models
models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample
decoding.temperature_sample.temperature = 0.0
"""


@dataclasses.dataclass(frozen=True)
class Runs:
  """Runs T5X's scripts in a folder with a task, checkpoints and gin files.

  Attributes:
    folder: where all of these are.
    results: what `once` keeps, by name.
  """

  folder: pathlib.Path
  results: dict = dataclasses.field(default_factory=dict)

  def values(self, kind: str, **changes) -> dict[str, Any]:
    """Gin's bindings of a run on the tiny task, greedy, four at a time.

    Args:
      kind: 'stock', or the draft: 'near' or 'six_heads'.
      **changes: more bindings, or others, __ for the dots in a name.

    Returns:
      Values by name.
    """
    values = {
        'MIXTURE_OR_TASK_NAME': 'tiny',
        'MIXTURE_OR_TASK_MODULE': 'tiny_task',
        'TASK_FEATURE_LENGTHS': {'inputs': INPUTS, 'targets': TARGETS},
        'CHECKPOINT_PATH': str(self.folder / 'target/checkpoint_1'),
        'DROPOUT_RATE': 0.0,
        'utils.RestoreCheckpointConfig.dtype': 'float32',
        'utils.DatasetConfig.batch_size': 4,
    }
    if kind != 'stock':
      draft = self.folder / kind / 'checkpoint_1'
      values['DRAFT_CHECKPOINT_PATH'] = str(draft)
      values['decoding.speculative_decode.temperature'] = 0.0
    changes = {k.replace('__', '.'): v for k, v in changes.items()}
    return values | changes

  def run(
      self,
      name: str,
      kind: str,
      *files: str,
      options: Mapping[str, Any] | None = None,
      **changes,
  ) -> subprocess.CompletedProcess[str]:
    """Runs infer.py.

    Args:
      name: of the output folder.
      kind: as of `values`.
      *files: gin files to come after all others.
      options: of `t5x_processes.run`.
      **changes: of the bindings.

    Returns:
      Its process.
    """
    if kind == 'stock':
      own = ['stock.gin', 't5x/configs/runs/infer.gin']
    else:
      own = [f'{kind}.gin', 't5x_specdec/configs/runs/infer_speculative.gin']
    changes['INFER_OUTPUT_DIR'] = str(self.folder / name)
    return t5x_processes.run(
        self.folder,
        ['-m', 't5x.infer'],
        ['target.gin', *own, *files],
        self.values(kind, **changes),
        **(options or {}),
    )

  def infer(self, name: str, *args, **kwargs) -> list[dict[str, Any]]:
    """The lines that `run` writes."""
    self.run(name, *args, **kwargs)
    return t5x_processes.lines(self.folder / name)

  def once(self, name: str, *args, **kwargs) -> list[dict[str, Any]]:
    """`infer`, or what it returned for that name before."""
    if name not in self.results:
      self.results[name] = self.infer(name, *args, **kwargs)
    return self.results[name]

  def stock(self) -> list[dict[str, Any]]:
    return self.once('stock', 'stock')


def vocabulary(folder: pathlib.Path) -> str:
  """Gin text that makes the task's vocabulary the model's."""
  return (
      'import seqio\n'
      'seqio.SentencePieceVocabulary.sentencepiece_model_file ='
      f' {str(folder / "words.model")!r}\n'
      'seqio.SentencePieceVocabulary.extra_ids = 0\n'
  )


def prepare(folder: pathlib.Path) -> Runs:
  """Writes a task, gin files and checkpoints into an empty folder."""
  import sentencepiece

  rng = np.random.default_rng(3)
  letters = list('abcdefghijklmnopqrstuvw ')
  lines = [
      ''.join(rng.choice(letters, rng.integers(2, 12))).strip() or 'a'
      for _ in range(LINES)
  ]
  (folder / 'lines.txt').write_text('\n'.join(lines) + '\n')
  sentencepiece.SentencePieceTrainer.Train(
      sentence_iterator=iter([' '.join(letters)] * 5),
      model_prefix=str(folder / 'words'),
      vocab_size=64,
      hard_vocab_limit=False,
      model_type='char',
      pad_id=0,
      eos_id=1,
      unk_id=2,
      bos_id=-1,
      minloglevel=2,
  )
  (folder / 'tiny_task.py').write_text(_TASK)
  (folder / 'target.gin').write_text(
      "include 't5x/examples/t5/t5_1_1/base.gin'\n"
      + t5x_gin.network(TARGET)
      + vocabulary(folder)
  )
  (folder / 'stock.gin').write_text(_STOCK)
  target = helpers.random_params(TARGET, 91)
  target['decoder']['logits_dense']['kernel'][:, 1] *= 3  # so that texts end
  drafts = {
      'near': (TARGET, helpers.perturbed(target, 1, 0.1)),
      'six_heads': (SIX_HEADS, helpers.random_params(SIX_HEADS, 92)),
  }
  write_checkpoint(folder / 'target', target, step=1, dtype='float32')
  for name, (config, params) in drafts.items():
    write_checkpoint(folder / name, params, step=1, dtype='float32')
    (folder / f'{name}.gin').write_text(t5x_gin.network(config, 'draft/'))
  return Runs(folder)


@pytest.fixture(scope='module')
def runs(tmp_path_factory) -> Runs:
  return prepare(tmp_path_factory.mktemp('infer'))


def logged(done: subprocess.CompletedProcess[str]) -> dict[str, tuple]:
  """What a run logs of each chunk's statistics.

  Args:
    done: the process.

  Returns:
    {chunk: (alpha, tokens per target call, calls)}, the first two as texts.
  """
  found = re.findall(
      r'chunk(\d+): alpha (\S+), (\S+) tokens per target call over (\d+) calls',
      done.stderr,
  )
  return {chunk: (*texts, int(calls)) for chunk, *texts, calls in found}


def texts(lines: list[dict]) -> list[tuple[dict, str]]:
  return [(line['inputs'], line['prediction']) for line in lines]
