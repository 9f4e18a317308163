# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec bench`: its figures are consistent, and what differs is found.

No test looks at how large a time is.
"""

import contextlib
import dataclasses
import io
import json
import math
import pathlib
import re

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec import calibration as calibrations
from t5x_specdec import parameters
from t5x_specdec.benchmarks import checks
from t5x_specdec.benchmarks import machine
from t5x_specdec.benchmarks import protocol
from t5x_specdec.benchmarks import remote
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks import table
from t5x_specdec.benchmarks import workloads
from t5x_specdec.benchmarks.worker_hf import their_names
from t5x_specdec.cli import main
from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.pair import read_demo_pair
from t5x_specdec.testing import planted

OUTPUT_LEN = 24
TINY = {
    'target': 'tiny',
    'draft': 'tiny',
    'input_len': 8,
    'output_len': OUTPUT_LEN,
    'repeats': 2,
}


def bench(**options):
  """Runs the command on the tiny pair; its status, JSON and standard error."""
  flags = ['bench', '--json', '--debug']
  for name, value in (TINY | options).items():
    flags.append(f'--{name}' if value is True else f'--{name}={value}')
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    status = main.main(flags)
  return status, json.loads(out.getvalue().splitlines()[-1]), err.getvalue()


@pytest.fixture(autouse=True)
def quick_workers(monkeypatch):
  """Workers inherit the environment, and compile twice as fast with this."""
  monkeypatch.setenv('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')


def rounds(gamma, alpha=0.75, start=0):
  """Rounds of the planted tiny pair, from its tables alone."""
  tables = planted.successors(shapes.SIZES['tiny'].vocab_size, alpha, 0)
  pair = planted.PlantedPair({}, {}, *tables)
  return len(pair.rounds(start, OUTPUT_LEN, gamma))


# As transformers counts its published checkpoints google/t5-v1_1-*.
@pytest.mark.parametrize(
    'size, count',
    [
        ('small', 76_961_152),
        ('base', 247_577_856),
        ('large', 783_150_080),
        ('xl', 2_849_757_184),
        ('xxl', 11_135_332_352),
    ],
)
def test_sizes_have_the_known_parameter_counts(size, count):
  assert shapes.parameter_count(shapes.SIZES[size]) == count
  half = dataclasses.replace(shapes.SIZES[size], dtype='bfloat16')
  assert shapes.parameter_bytes(half) == 2 * count


def test_step_reads_the_decoder_without_cross_attention_keys_and_values():
  layer = (4 + 2) * 512 * 384 + 3 * 512 * 1024 + 3 * 512
  count = 8 * layer + 512 + 6 * 32 + 512 * 32128
  assert shapes.step_bytes(shapes.SIZES['small']) == 4 * count
  # Tied logits read the embedding, which has as many numbers.
  tied = dataclasses.replace(shapes.SIZES['small'], logits_via_embedding=True)
  assert shapes.step_bytes(tied) == 4 * count


@pytest.mark.t5x
@pytest.mark.parametrize('size', ['small', 'base', 'large', 'xl', 'xxl'])
def test_sizes_are_those_of_t5x(size):
  # pylint: disable-next=g-import-not-at-top
  from t5x.examples import t5

  folder = pathlib.Path(list(t5.__path__)[0]) / 't5_1_1'
  fields = {}
  for name in ('base', size):
    text = (folder / f'{name}.gin').read_text()
    network = text.split('network.T5Config:')[1]
    fields |= dict(re.findall(r'^  (\w+) = (\S.*?)(?:  #.*)?$', network, re.M))
  config = dataclasses.asdict(shapes.SIZES[size])
  read = {'emb_dim', 'mlp_dim', 'vocab_size', 'mlp_activations', 'head_dim'}
  assert read <= fields.keys()
  for name, value in fields.items():
    if name not in ('dtype', 'dropout_rate'):
      assert repr(config[name]) == value, name


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'int32'])
def test_arrays_arrive_as_they_were_sent(dtype):
  sent = np.arange(70_000).reshape(7, -1).astype(jnp.dtype(dtype)).T
  stream = io.BytesIO()
  protocol.send(stream, {'op': 'leaf'}, protocol.Array.of(sent))
  protocol.send(stream, {'op': 'next'})
  stream.seek(0)
  message, array = protocol.receive(stream)
  assert message == {'op': 'leaf'}
  np.testing.assert_array_equal(array.numpy(), sent)
  assert array.numpy().dtype == sent.dtype
  assert protocol.receive(stream) == ({'op': 'next'}, None)
  assert protocol.receive(stream) is None


def test_every_parameter_has_its_own_name_in_transformers():
  config = shapes.SIZES['tiny']
  names = [
      name
      for path in parameters.param_shapes(config)
      for name in their_names(list(path))
  ]
  assert len(names) == len(set(names))
  # Of the three names of the embedding two are tied.
  assert len(names) == len(parameters.param_shapes(config)) + 2
  layer = 'decoder.block.1.layer'
  assert {
      'lm_head.weight',
      'encoder.final_layer_norm.weight',
      'encoder.block.0.layer.1.DenseReluDense.wi_1.weight',
      'encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight',
      f'{layer}.0.layer_norm.weight',
      f'{layer}.1.EncDecAttention.o.weight',
      f'{layer}.2.DenseReluDense.wo.weight',
      f'{layer}.2.layer_norm.weight',
  } <= set(names)


@pytest.mark.parametrize('wrong, agree', [(9e-4, True), (2e-3, False)])
def test_logits_must_be_within_the_tolerance(wrong, agree):
  ours = np.zeros([1, 2, 3], np.float32)
  theirs = ours.copy()
  theirs[0, 1, 2] = wrong
  logits = {('ours', 'target', 1): ours, ('hf', 'target', 1): theirs}
  found = checks.compare_logits(logits, 'float32')
  assert found['differences'] == {'hf target': pytest.approx(wrong)}
  assert found['agree'] == agree
  theirs[0, 0, 0] = np.nan
  assert not checks.compare_logits(logits, 'float32')['agree']


@pytest.fixture(scope='module')
def ours():
  """The tiny pair with our worker alone; transformers' fails at once."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
    # `false` stands for an interpreter that cannot run the worker.
    return bench(gamma='1,3', no_t5x=True, hf_python='false')


@pytest.mark.slow
def test_words_for_gamma_go_by_a_calibration(tmp_path):
  """Drafts that cost nothing are all drafted; dear ones are left."""
  for word, c, gamma in (('adaptive', 0.0, 2), ('auto', 9.0, 0)):
    path = tmp_path / 'c.json'
    calibrations.given(0.75, c, verify=[1.0, 1.0]).write(path)
    status, result, err = bench(
        gamma=word, calibration=path, no_t5x=True, no_hf=True, repeats=1
    )
    assert status == 0
    (row,) = result['rows']
    assert row['gamma'] == word and row['identical']
    assert row['exp'] is None and row['v'] is None and row['emp'] > 0
    ran = row['rounds_by_gamma']
    assert np.argmax(ran) == gamma
    if word == 'auto':
      assert np.flatnonzero(ran).tolist() == [gamma]
      assert 'gamma auto is 0: drafts do not pay here' in err


@pytest.mark.slow
def test_rows_are_consistent(ours):
  status, result, _ = ours
  assert status == 0
  assert [row['gamma'] for row in result['rows']] == [1, 3]
  alone = result['autoregressive']
  for row in result['rows']:
    assert row['tokens_per_target_call'] == OUTPUT_LEN / rounds(row['gamma'])
    assert row['tokens_per_round'] == row['tokens_per_target_call']
    assert row['exp'] == pytest.approx(
        row['tokens_per_target_call'] / (row['d'] + row['v'])
    )
    assert row['emp'] == pytest.approx(
        alone['decode_ms_per_token'] / row['decode_ms_per_token']
    )
    assert row['emp_over_exp'] == pytest.approx(row['emp'] / row['exp'])
    assert row['speedup_vs_autoregressive'] == pytest.approx(
        alone['ms_per_token'] / row['ms_per_token']
    )
    for name in ('speedup_vs_t5x', 'speedup_vs_hf', 'speedup_vs_hf_alone'):
      assert row[name] is None
    assert row['identical'] is True
  for entry in (alone, *result['rows']):
    low, high = entry['quartiles_ms_per_token']
    assert 0 < low <= entry['ms_per_token'] <= high
    assert entry['decode_ms_per_token'] < entry['ms_per_token']
  assert alone['decode_ms_per_token'] == pytest.approx(
      alone['ms_per_token'] - alone['encode_ms'] / OUTPUT_LEN
  )


@pytest.mark.slow
def test_what_stands_beside_the_rows(ours):
  _, result, text = ours
  assert result['t5x'] is None and result['hf'] is None
  assert result['identical'] is True
  assert result['logits']['agree']
  assert set(result['logits']['differences']) == {
      'ours target blocks of 4',
      'ours draft blocks of 4',
  }
  bandwidth = result['bandwidth']
  size = shapes.step_bytes(shapes.SIZES['tiny'])
  assert bandwidth['weights_gb_per_s'] == pytest.approx(
      size / result['autoregressive']['decode_ms_per_token'] / 1e6
  )
  assert bandwidth['read_gb_per_s'] == max(
      bandwidth['kernels_gb_per_s'].values()
  )
  assert bandwidth['share'] == pytest.approx(
      bandwidth['weights_gb_per_s'] / bandwidth['read_gb_per_s']
  )
  assert result['peak_memory_bytes']['ours'] > 2**20
  # It holds an array of 1 GiB.
  assert result['peak_memory_bytes']['bandwidth'] > 2**30
  assert result['machine']['cores'] >= 1
  assert 'jax' in result['versions']['ours']
  # The worker that failed is named, and the others went on.
  assert result['interleaved']
  assert result['errors'] == {'hf': 'ended with status 1: no message'}
  assert 'ERROR in hf: ended with status 1' in text


@pytest.mark.slow
def test_rows_of_a_batch_wait_for_the_slowest(monkeypatch):
  """Rows that end apart, other loops, and one process after the other."""
  # Without room for two.
  monkeypatch.setattr(machine, 'free_bytes', lambda: 0)
  status, result, text = bench(
      gamma='2',
      no_t5x=True,
      no_hf=True,
      batch_size=3,
      repeats=1,
      ragged=True,
      loops='greedy,topk,token',
      xla_flags='--xla_cpu_enable_fast_math=false',
  )
  assert status == 0 and result['identical'] is True
  assert not result['interleaved']
  assert result['bandwidth']['read_gb_per_s'] > 0
  assert result['xla_flags'] == '--xla_cpu_enable_fast_math=false'
  (row,) = result['rows']
  assert row['exp'] == pytest.approx(
      row['tokens_per_round'] / (row['d'] + row['v'])
  )
  # Rows end at a third, two thirds and the whole of the text.
  steps = [8, 16, OUTPUT_LEN]
  tables = planted.successors(shapes.SIZES['tiny'].vocab_size, 0.75, 0)
  pair = planted.PlantedPair({}, {}, *tables)
  starts = workloads.planted_workload(
      'tiny', 'tiny', alpha=0.75, batch_size=3, input_len=8,
      output_len=OUTPUT_LEN, dtype='float32', seed=0,
  ).prompts.ravel()  # fmt: skip
  counts = [len(pair.rounds(s, n, 2)) for s, n in zip(starts, steps)]
  assert row['tokens_per_round'] == OUTPUT_LEN / max(counts)
  ragged = row['ragged']
  assert ragged['tokens'] == sum(steps)
  assert ragged['rounds'] == ragged['slowest_rounds'] == max(counts)
  assert row['tokens_per_target_call'] == sum(steps) / sum(counts)
  assert ragged['share'] == pytest.approx(
      ragged['tokens_per_second'] / ragged['predicted_tokens_per_second']
  )
  assert f'the slowest row alone {max(counts)};' in text

  loops = {loop['loop']: loop for loop in result['loops']}
  assert list(loops) == ['greedy', 'topk', 'token']
  assert loops['greedy']['rounds'] == max(counts)
  assert loops['greedy']['tokens_per_target_call'] == (
      row['tokens_per_target_call']
  )
  assert row['ms_per_round'] == pytest.approx(
      row['decode_ms_per_token'] * sum(steps) / max(counts)
  )


def test_a_round_too_many_is_said():
  ragged = {
      'tokens': 48, 'rounds': 12, 'slowest_rounds': 11,
      'tokens_per_second': 1.0, 'predicted_tokens_per_second': 1.0,
      'share': 1.0,
  }  # fmt: skip
  result = {
      'logits': {'agree': True},
      'planted': True,
      'identical': True,
      'rows': [{'gamma': 2, 'ragged': ragged}],
  }
  assert table.failures(result) == [
      'FAILED: gamma 2 took 12 rounds, its slowest row alone takes 11'
  ]
  ragged['rounds'] = 11
  assert table.failures(result) == []


@pytest.mark.slow
@pytest.mark.t5x
def test_stock_t5x_computes_the_same():
  status, result, text = bench(gamma='2', no_hf=True, repeats=1)
  assert status == 0
  assert result['errors'] == {} and result['absent'] == {}
  assert result['t5x']['identical'] is True
  assert result['logits']['differences']['t5x target'] < 1e-4
  (row,) = result['rows']
  assert row['speedup_vs_t5x'] == pytest.approx(
      result['t5x']['ms_per_token'] / row['ms_per_token']
  )
  assert 'FAILED' not in text


@pytest.mark.slow
@pytest.mark.t5x
def test_another_model_in_stock_t5x_is_found(monkeypatch):
  ask = remote.Remote.ask

  def tell_t5x_something_else(self, op, array=None, **fields):
    path = fields.get('path', ())
    if 'worker_t5x' in self._process.args[-1] and 'rel_embedding' in path:
      array = protocol.Array.of(np.zeros(array.shape, np.float32))
    ask(self, op, array, **fields)

  monkeypatch.setattr(remote.Remote, 'ask', tell_t5x_something_else)
  status, result, text = bench(gamma='2', no_hf=True, repeats=1)
  assert status == 1
  assert not result['logits']['agree']
  assert result['logits']['differences']['t5x target'] > 1e-2
  assert 'FAILED: logits differ by more than the tolerance' in text
  # The planted text alone would not have told.
  assert result['identical'] is True


def test_checkpoints_are_read_leaf_by_leaf():
  pair = read_demo_pair()
  lines = ['Choose the command in the menu.', 'Save the document.', 'Bye.']
  workload = workloads.checkpoint_workload(
      DEMO_PAIR / 'target',
      DEMO_PAIR / 'draft',
      DEMO_PAIR / 'vocabulary.model',
      lines,
      batch_size=2,
      input_len=16,
      output_len=20,
      dtype='float32',
      seed=0,
  )
  assert workload.inputs.shape == (1, 2, 16)
  ids = [*pair.vocabulary.encode(lines[1]), 1]
  assert workload.inputs[0, 1].tolist() == ids + [0] * (16 - len(ids))
  assert workload.target == pair.target.decoder.config
  leaves = {(m, p): x for m, p, x in workload.weights()}
  path = ('encoder', 'layers_0', 'mlp', 'wo', 'kernel')
  for name, model in (('target', pair.target), ('draft', pair.draft)):
    config = model.decoder.config
    assert sum(m == name for m, _ in leaves) == len(
        parameters.param_shapes(config)
    )
    np.testing.assert_array_equal(
        leaves[name, path], parameters.flatten(model.params)[path]
    )
    random = {p: x for m, p, x in workload.random_weights() if m == name}
    assert sum(math.prod(x.shape) for x in random.values()) == (
        shapes.parameter_count(config)
    )


@pytest.mark.slow
def test_drafts_without_a_model_are_timed():
  status, result, _ = bench(
      target='demo',
      draft='bigram',
      gamma='2',
      no_t5x=True,
      no_hf=True,
      repeats=1,
  )
  assert status == 0
  assert result['draft_kind'] == 'bigram'
  assert result['errors'] == {}
  # No second model is loaded, compared or counted.
  assert set(result['parameters']) == {'target'}
  assert set(result['logits']['differences']) == {'ours target blocks of 3'}
  (row,) = result['rows']
  assert row['c'] is None and row['hf_assisted'] is None
  assert row['identical'] is True
  assert 1 < row['tokens_per_target_call'] <= 3
  assert 0 < row['alpha'] <= 1
  assert row['exp'] == pytest.approx(
      row['tokens_per_round'] / (row['d'] + row['v'])
  )


@pytest.mark.parametrize(
    'options, message',
    [
        ({'gamma': '3,3'}, 'repeats a number'),
        ({'gamma': '24'}, r'\[1, --output_len\), got 24'),
        ({'repeats': 0}, '--repeats must be >= 1, got 0'),
        ({'draft': 'small'}, 'scores 512 ids, --draft 32128'),
        ({'draft': 'huge'}, '--draft huge: a planted target takes'),
        ({'draft': 'lookup'}, '--draft lookup: a planted text repeats nothing'),
        ({'draft': 'chain'}, '--draft chain: a planted text repeats nothing'),
        ({'target': 'demo', 'draft': 'tiny'}, 'demo brings its own draft mod'),
        ({'calibration': 'c.json'}, '--calibration c.json is for --gamma'),
        ({'gamma': 'auto', 'calibration': '/no'}, 'No such file'),
        ({'gamma': '3,some'}, "'some' is neither a whole number nor adaptive"),
        ({'alpha': 1.5}, r'alpha must be in \[0, 1\], got 1.5'),
        ({'target': '/nowhere'}, 'a checkpoint needs --vocabulary'),
        ({'loops': 'greedy,slow'}, "'greedy,slow': different ones of greedy"),
        ({'loops': 'full,full'}, "'full,full': different ones of greedy"),
        ({'ragged': True}, 'batch_size of at least 2, got --target tiny and 1'),
        ({'hf_python': '/nowhere'}, '--hf_python /nowhere: no such'),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(
    options, message, capsys
):
  flags = ['bench']
  for name, value in (TINY | options).items():
    flags.append(f'--{name}' if value is True else f'--{name}={value}')
  try:
    assert main.main(flags) == 2
  except SystemExit as exit_:
    assert exit_.code == 2
  assert re.search(message, capsys.readouterr().err)
