# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bad input raises ValueError with its name and value, before compiling."""

import copy

import jax
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import loop
from t5x_specdec import parameters
from t5x_specdec import T5
from t5x_specdec import T5Config
from t5x_specdec.testing import toys

CONFIG = T5Config(
    vocab_size=32,
    emb_dim=8,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    head_dim=4,
    mlp_dim=16,
)
PARAMS = parameters.init_params(CONFIG, jax.random.key(0))
DECODER_ONLY = T5Config(
    vocab_size=32,
    emb_dim=8,
    num_heads=2,
    num_encoder_layers=0,
    num_decoder_layers=1,
    head_dim=4,
    mlp_dim=16,
)
INPUTS = np.array([[3, 4, 1], [5, 1, 0]])


def decode(**change):
  """A legal call but for `change`."""
  arguments = {
      'target': T5(CONFIG),
      'draft': T5(CONFIG),
      'target_params': PARAMS,
      'draft_params': PARAMS,
      'inputs': INPUTS,
      'max_decode_len': 6,
      'gamma': 2,
  } | change
  return t5x_specdec.speculative_decode(**arguments)


@pytest.fixture(autouse=True)
def never_compiled(monkeypatch):
  def fail(*args, **kwargs):
    raise AssertionError('a bad argument reached the compiled loop')

  monkeypatch.setattr(loop, 'decode', fail)


BAD = {
    'gamma_0': ({'gamma': 0}, r'gamma must be an integer >= 1, got 0'),
    'gamma_float': ({'gamma': 2.5}, r'gamma must be an integer >= 1, got 2\.5'),
    'gamma_bool': ({'gamma': True}, r'gamma .* got True'),
    'empty_batch': (
        {'inputs': np.zeros([0, 3], int)},
        r'inputs must not be an empty batch, got shape \(0, 3\)',
    ),
    'one_dimension': ({'inputs': np.array([3, 1])}, r'inputs .* shape \(2,\)'),
    'no_columns': ({'inputs': np.zeros([2, 0], int)}, r'inputs .* one column'),
    'float_ids': ({'inputs': INPUTS * 1.0}, r'inputs must be integers, got'),
    'id_too_high': ({'inputs': INPUTS + 30}, r'inputs .* \[0, 32\).* got 35'),
    'id_negative': ({'inputs': INPUTS - 2}, r'inputs .* got -2'),
    'prompt_too_long': (
        {'prompts': np.ones([2, 7], int)},
        r'prompts of length 7 do not fit max_decode_len=6',
    ),
    'prompt_ids': (
        {'prompts': np.full([2, 2], 32)},
        r'prompts must hold ids in \[0, 32\).* got 32',
    ),
    'prompt_batch': (
        {'prompts': np.ones([3, 2], int)},
        r'prompts \(3, 2\) and inputs \(2, 3\) must have the same batch',
    ),
    'nothing': ({'inputs': None}, r'inputs and prompts are both None'),
    'length_0': ({'max_decode_len': 0}, r'max_decode_len .* >= 1, got 0'),
    'topk_and_topp': (
        {'topk': 4, 'topp': 0.5},
        r'At most one of `topp` or `topk` may be non-zero, got topk=4 and '
        r'topp=0\.5',
    ),
    'topp_with_default_topk': ({'topp': 0.5}, r'At most one of .* topk=1'),
    'topk_negative': ({'topk': -1}, r'topk must be an integer >= 0, got'),
    'topk_float': ({'topk': 1.5}, r'topk must be an integer >= 0, got'),
    'topp_high': ({'topk': 0, 'topp': 1.5}, r'topp .* \[0, 1\], got'),
    'temperature_negative': (
        {'temperature': -0.1},
        r'temperature must be >= 0, got -0\.1',
    ),
    'temperature_nan': ({'temperature': float('nan')}, r'temperature .* nan'),
    'temperature_shape': (
        {'temperature': np.ones(3)},
        r'temperature must be a scalar or float\[2\].* \(3,\)',
    ),
    'num_decodes_0': ({'num_decodes': 0}, r'num_decodes .* >= 1, got 0'),
    'steps_0': ({'max_decode_steps': 0}, r'max_decode_steps .* >= 1, got 0'),
    'steps_long': (
        {'max_decode_steps': 7},
        r'max_decode_steps=7 is more than max_decode_len=6',
    ),
    'rng_integer': ({'rng': 0}, r'rng must be key\[\] from jax.random.* got 0'),
    'rng_batch': (
        {'rng': jax.random.split(jax.random.key(0), 2)},
        r'rng must be key\[\]',
    ),
    'row_keys_list': ({'row_keys': [[0, 1], [0, 2]]}, r'row_keys must be key'),
    'inputs_list': ({'inputs': [[1.5], [2.0]]}, r'inputs must be integers'),
    'temperature_text': ({'temperature': '1'}, r"temperature .* got '1'"),
    'topk_huge': ({'topk': 2**40}, r'topk must be an integer >= 0, got'),
    'steps_shape': (
        {'max_decode_steps': np.array([1, 2, 3])},
        r'max_decode_steps must be a scalar or int\[2\].* \(3,\)',
    ),
    'eos_array': ({'eos_id': [1, 2]}, r'eos_id must be one integer'),
    'eos_float': ({'eos_id': 4.7}, r'eos_id must be one integer, got 4.7'),
    'draft_encoder': (
        {
            'target': T5(DECODER_ONLY),
            'target_params': parameters.init_params(
                DECODER_ONLY, jax.random.key(0)
            ),
            'inputs': None,
            'prompts': INPUTS,
        },
        r'the draft has an encoder and needs inputs',
    ),
    'eos_0': ({'eos_id': 0}, r'eos_id must not be 0'),
    'two_sources_of_keys': (
        {'rng': jax.random.key(0), 'row_keys': jax.random.split(
            jax.random.key(0), 2)},
        r'rng or row_keys, not both',
    ),
    'row_keys_shape': (
        {'row_keys': jax.random.split(jax.random.key(0), 3)},
        r'row_keys must be key\[2\] from jax.random',
    ),
    'draft_vocabulary': (
        {'draft': T5(T5Config(vocab_size=33))},
        r'vocab_size of the target is 32, of the draft 33',
    ),
    'inputs_of_decoder_only': (
        {
            'target': T5(DECODER_ONLY),
            'target_params': parameters.init_params(
                DECODER_ONLY, jax.random.key(0)
            ),
            'draft': toys.ScriptDecoder(32),
            'draft_params': {'script': INPUTS},
        },
        r'decoder-only target takes no inputs',
    ),
    'encoder_without_inputs': (
        {'inputs': None, 'prompts': INPUTS},
        r'target has an encoder and needs inputs',
    ),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_argument(name):
  change, message = BAD[name]
  with pytest.raises(ValueError, match=message):
    decode(**change)


@pytest.mark.parametrize('model', ['target', 'draft'])
class TestParameters:
  """Trees that do not fit the config name the model and the path."""

  def refuse(self, model, params, message):
    message = f'{model} params do not fit.*{message}'
    with pytest.raises(ValueError, match=message):
      decode(**{f'{model}_params': params})

  def test_missing(self, model):
    params = copy.deepcopy(PARAMS)
    del params['decoder']['layers_0']['mlp']['wo']
    self.refuse(
        model, params, r'decoder/layers_0/mlp/wo/kernel: .* found nothing'
    )

  def test_too_many(self, model):
    params = copy.deepcopy(PARAMS)
    params['decoder']['layers_1'] = params['decoder']['layers_0']
    self.refuse(model, params, r'decoder/layers_1/.*: not in the config')

  def test_other_shape(self, model):
    params = copy.deepcopy(PARAMS)
    params['token_embedder']['embedding'] = np.zeros([31, 8])
    self.refuse(
        model,
        params,
        r'token_embedder/embedding: config wants \(32, 8\), found \(31, 8\)',
    )
