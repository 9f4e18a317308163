"""`python -m t5x.infer` end to end: stock and speculative predictions agree.

Each test runs infer.py as users do, in processes of its own, on a tiny pair of
random models and a text task of eleven lines.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import helpers
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import T5Config
from t5x_specdec.testing.checkpoint_writer import write_checkpoint

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

# What T5X puts on the model axis (heads, joined, mlp, vocab) divides by 8.
_TARGET = T5Config(
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
_SIX_HEADS = dataclasses.replace(
    _TARGET, num_heads=6, num_decoder_layers=1, emb_dim=12
)
_LINES = 11

_TASK = '''
import os

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
      last: str | None = None,
      status: int = 0,
  ) -> list[dict]:
    """Runs infer.py.

    Args:
      name: of the output folder.
      *bindings: for gin.
      kind: 'stock', or the draft: 'near' or 'six_heads'.
      devices: virtual CPU devices.
      last: a gin file to come after all others.
      status: what the process is to end with.

    Returns:
      The lines of its JSONL, none where it is to fail.
    """
    output = self.folder / name
    values = {
        'MIXTURE_OR_TASK_NAME': 'tiny',
        'MIXTURE_OR_TASK_MODULE': 'tiny_task',
        'TASK_FEATURE_LENGTHS': {'inputs': 16, 'targets': 12},
        'CHECKPOINT_PATH': str(self.folder / 'target/checkpoint_1'),
        'INFER_OUTPUT_DIR': str(output),
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
    root = str(pathlib.Path(t5x_specdec.__file__).parents[1])
    path = [str(self.folder), root, os.environ.get('PYTHONPATH', '')]
    done = subprocess.run(
        [
            sys.executable,
            '-m',
            't5x.infer',
            *(f'--gin_file={file}' for file in files),
            *(f'--gin.{key}={value!r}' for key, value in values.items()),
            *(f'--gin.{binding}' for binding in bindings),
        ],
        cwd=self.folder,
        env={
            **os.environ,
            'PYTHONPATH': os.pathsep.join(filter(None, path)),
            'XLA_FLAGS': (
                f'--xla_force_host_platform_device_count={devices}'
                ' --xla_backend_optimization_level=0'
            ),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr[-3000:]
    if status:
      return []
    (merged,) = output.glob('*.jsonl-00000-of-00001')
    return [json.loads(line) for line in merged.read_text().splitlines()]

  def once(self, name: str, *bindings: str, **kwargs) -> list[dict]:
    """`run`, or what it returned for that name before."""
    if name not in self.results:
      self.results[name] = self.run(name, *bindings, **kwargs)
    return self.results[name]

  def stock(self) -> list[dict]:
    batch = 'utils.DatasetConfig.batch_size=4'
    return self.once('stock', batch, kind='stock')


@pytest.fixture(scope='module')
def runs(tmp_path_factory) -> Runs:
  import sentencepiece

  folder = tmp_path_factory.mktemp('infer')
  rng = np.random.default_rng(3)
  letters = list('abcdefghijklmnopqrstuvw ')
  lines = [
      ''.join(rng.choice(letters, rng.integers(2, 12))).strip() or 'a'
      for _ in range(_LINES)
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
      + _NETWORK.format(scope='', **dataclasses.asdict(_TARGET))
      + vocabulary
  )
  (folder / 'stock.gin').write_text(_HEADER + _STOCK)
  target = helpers.random_params(_TARGET, 91)
  drafts = {
      'near': (_TARGET, helpers.perturbed(target, 1, 0.1)),
      'six_heads': (_SIX_HEADS, helpers.random_params(_SIX_HEADS, 92)),
  }
  write_checkpoint(folder / 'target', target, step=1, dtype='float32')
  for name, (config, params) in drafts.items():
    write_checkpoint(folder / name, params, step=1, dtype='float32')
    fields = _NETWORK + '  float32_attention_logits = False\n'
    (folder / f'{name}.gin').write_text(
        _HEADER + fields.format(scope='draft/', **dataclasses.asdict(config))
    )
  return Runs(folder)


def texts(lines: list[dict]) -> list[tuple[dict, str]]:
  return [(line['inputs'], line['prediction']) for line in lines]


@pytest.mark.parametrize('batch', [1, 4])
def test_predictions_are_stock_line_for_line(runs, batch):
  want = runs.stock()
  got = runs.once(
      f'batch_{batch}', f'utils.DatasetConfig.batch_size={batch}', kind='near'
  )
  assert len(want) == _LINES  # not a multiple of 4
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
  chunks = ('utils.DatasetConfig.batch_size=2', 'infer.checkpoint_period=1')
  # Sampled, so that the keys have to be resumed, too.
  sampled = (
      'decoding.speculative_decode.temperature=1.0',
      'decoding.speculative_decode.topk=0',
  )
  want = runs.run('unbroken', *chunks, *sampled, kind='near')
  (runs.folder / 'killer.gin').write_text(
      'from __gin__ import dynamic_registration\n'
      'import __main__ as infer_script\n'
      'import tiny_task\n'
      'infer_script.infer.write_fn = @tiny_task.die_at_third_chunk\n'
  )
  runs.run(
      'broken', *chunks, *sampled, kind='near', last='killer.gin', status=9
  )
  (work,) = (runs.folder / 'broken').glob('tmp-*')
  written = sorted(path.name[-5:] for path in work.glob('*-chunk?????'))
  assert written == ['00000', '00001']
  got = runs.run('broken', *chunks, *sampled, kind='near')
  assert got == want
  assert len(got) == _LINES


@pytest.mark.parametrize('devices', [2, 8])
def test_a_six_headed_draft_runs_on_any_mesh(runs, devices):
  """All of a CPU's devices are on the model axis, which 6 does not divide."""
  got = runs.run(
      f'devices_{devices}',
      'utils.DatasetConfig.batch_size=4',
      kind='six_heads',
      devices=devices,
  )
  assert texts(got) == texts(runs.stock())
  info = (runs.folder / f'devices_{devices}/model-info.txt').read_text()
  for line in info.splitlines():
    if line.startswith('Variable draft/'):
      assert "'model'" not in line
  assert "'model'" in info
