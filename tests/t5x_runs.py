"""Runs of `python -m t5x.infer` as users do, in processes of their own.

On a tiny pair of random models and a text task of eleven lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import helpers
import numpy as np
import pytest

import t5x_specdec
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
_LAUNCHER = str(pathlib.Path(__file__).parent / 'launch_infer.py')

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
  del split, shuffle_files, seed
  lines = tf.data.TextLineDataset(os.path.join(_HERE, 'lines.txt'))
  return lines.map(lambda x: {'inputs': x, 'targets': x})


def _of_predictions(targets, predictions):
  """A metric that no two sets of predictions share."""
  joined = '|'.join(predictions).encode()
  return {'checksum': zlib.crc32(joined) % 10_007, 'count': len(targets)}


seqio.TaskRegistry.add(
    'tiny',
    source=seqio.FunctionDataSource(_read, splits=['test']),
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


def die_at_third_chunk(path, *args):
  """infer.py's writer, in a process that is killed before the third chunk."""
  if path.endswith('chunk00002'):
    os._exit(9)
  infer.write_inferences_to_file(path, *args)
'''

_NETWORK = """
{scope}network.T5Config:
  vocab_size = {vocab_size}
  dtype = 'float32'
  emb_dim = {emb_dim}
  num_heads = {num_heads}
  num_encoder_layers = {num_encoder_layers}
  num_decoder_layers = {num_decoder_layers}
  head_dim = {head_dim}
  mlp_dim = {mlp_dim}
  mlp_activations = ('gelu', 'linear')
  dropout_rate = 0.0
  logits_via_embedding = False
"""
_HEADER = """
from __gin__ import dynamic_registration
import seqio
from t5x import decoding
from t5x import models
from t5x.examples.t5 import network
"""
_STOCK = """
models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample
decoding.temperature_sample.temperature = 0.0
"""


def _free_port() -> int:
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    return probe.getsockname()[1]


@dataclasses.dataclass(frozen=True)
class Runs:
  """Runs infer.py in a folder with a task, checkpoints and gin files."""

  folder: pathlib.Path
  results: dict = dataclasses.field(default_factory=dict)

  def run(
      self,
      name: str,
      *bindings: str,
      kind: str,
      devices: int = 1,
      processes: int = 1,
      xla_flags: str = '',
      last: str | None = None,
      status: int = 0,
  ) -> list[dict]:
    """Runs infer.py.

    Args:
      name: of the output folder.
      *bindings: for gin.
      kind: 'stock', or the draft: 'near' or 'six_heads'.
      devices: virtual CPU devices of each process.
      processes: how many run it together.
      xla_flags: more flags for XLA.
      last: a gin file to come after all others.
      status: what every process is to end with.

    Returns:
      The lines of its JSONL, none where it is to fail.
    """
    root = str(pathlib.Path(t5x_specdec.__file__).parents[1])
    path = [str(self.folder), root, os.environ.get('PYTHONPATH', '')]
    environment = {
        **os.environ,
        'PYTHONPATH': os.pathsep.join(filter(None, path)),
        'XLA_FLAGS': (
            f'--xla_force_host_platform_device_count={devices}'
            f' --xla_backend_optimization_level=0 {xla_flags}'
        ),
    }
    arguments = self._arguments(name, kind, bindings, last)
    commands = [['-m', 't5x.infer', *arguments]]
    if processes > 1:
      address = f'127.0.0.1:{_free_port()}'
      commands = [
          [_LAUNCHER, address, str(processes), str(i), *arguments]
          for i in range(processes)
      ]
    with contextlib.ExitStack() as stack:
      logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in commands]
      running = [
          subprocess.Popen(
              [sys.executable, *command],
              cwd=self.folder,
              env=environment,
              stdout=subprocess.DEVNULL,
              stderr=log,
          )
          for command, log in zip(commands, logs)
      ]
      for process in running:
        stack.callback(process.kill)
      for process, log in zip(running, logs):
        ended = process.wait(timeout=600)
        log.seek(0)
        assert ended == status, log.read().decode()[-3000:]
    if status:
      return []
    (merged,) = (self.folder / name).glob('*.jsonl-00000-of-00001')
    return [json.loads(line) for line in merged.read_text().splitlines()]

  def _arguments(
      self,
      name: str,
      kind: str,
      bindings: tuple[str, ...],
      last: str | None,
  ) -> list[str]:
    """Arguments of infer.py."""
    values = {
        'MIXTURE_OR_TASK_NAME': 'tiny',
        'MIXTURE_OR_TASK_MODULE': 'tiny_task',
        'TASK_FEATURE_LENGTHS': {'inputs': INPUTS, 'targets': TARGETS},
        'CHECKPOINT_PATH': str(self.folder / 'target/checkpoint_1'),
        'INFER_OUTPUT_DIR': str(self.folder / name),
        'DROPOUT_RATE': 0.0,
        'utils.RestoreCheckpointConfig.dtype': 'float32',
    }
    files = [self.folder / 'target.gin']
    if kind == 'stock':
      files += [self.folder / 'stock.gin', 't5x/configs/runs/infer.gin']
    else:
      run_file = 't5x_specdec/configs/runs/infer_speculative.gin'
      files += [self.folder / f'{kind}.gin', run_file]
      draft = self.folder / kind / 'checkpoint_1'
      values['DRAFT_CHECKPOINT_PATH'] = str(draft)
      values['decoding.speculative_decode.temperature'] = 0.0
    if last:
      files.append(self.folder / last)
    return [
        *(f'--gin_file={file}' for file in files),
        *(f'--gin.{key}={value!r}' for key, value in values.items()),
        *(f'--gin.{binding}' for binding in bindings),
    ]

  def once(self, name: str, *bindings: str, **kwargs) -> list[dict]:
    """`run`, or what it returned for that name before."""
    if name not in self.results:
      self.results[name] = self.run(name, *bindings, **kwargs)
    return self.results[name]

  def stock(self) -> list[dict]:
    batch = 'utils.DatasetConfig.batch_size=4'
    return self.once('stock', batch, kind='stock')


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
  vocabulary = (
      'seqio.SentencePieceVocabulary.sentencepiece_model_file ='
      f' {str(folder / "words.model")!r}\n'
      'seqio.SentencePieceVocabulary.extra_ids = 0\n'
  )
  (folder / 'target.gin').write_text(
      "include 't5x/examples/t5/t5_1_1/base.gin'\n"
      + _HEADER
      + _NETWORK.format(scope='', **dataclasses.asdict(TARGET))
      + vocabulary
  )
  (folder / 'stock.gin').write_text(_HEADER + _STOCK)
  target = helpers.random_params(TARGET, 91)
  drafts = {
      'near': (TARGET, helpers.perturbed(target, 1, 0.1)),
      'six_heads': (SIX_HEADS, helpers.random_params(SIX_HEADS, 92)),
  }
  write_checkpoint(folder / 'target', target, step=1, dtype='float32')
  for name, (config, params) in drafts.items():
    write_checkpoint(folder / name, params, step=1, dtype='float32')
    fields = _NETWORK + '  float32_attention_logits = False\n'
    (folder / f'{name}.gin').write_text(
        _HEADER + fields.format(scope='draft/', **dataclasses.asdict(config))
    )
  return Runs(folder)


@pytest.fixture(scope='module')
def runs(tmp_path_factory) -> Runs:
  return prepare(tmp_path_factory.mktemp('infer'))


def texts(lines: list[dict]) -> list[tuple[dict, str]]:
  return [(line['inputs'], line['prediction']) for line in lines]
