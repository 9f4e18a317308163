# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""T5X's `examples/scalable_t5` (umT5), scanned or not, as target and draft."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import t5x_gin

from t5x_specdec import pair_tree
from t5x_specdec import parameters
from t5x_specdec import stacking
from t5x_specdec import T5
from t5x_specdec import T5Config

pytestmark = pytest.mark.t5x

# Heads, head_dim, depths and lengths all differ.
_APART = dataclasses.replace(
    helpers.CONFIGS['t5_1_1'], num_decoder_layers=4, scalable=True
)
_AXES = [None, 0, 1, -1, -2]
_BATCH, _INPUTS, _LENGTH = 3, 7, 9
_EOS = 3


def stacked(axis: int | None, config: T5Config = _APART) -> T5Config:
  return dataclasses.replace(config, scan_axis=axis)


@pytest.fixture(autouse=True)
def quick_compilation():
  with helpers.quick_compilation():
    yield


def batch_of(length: int = _LENGTH) -> tuple[np.ndarray, np.ndarray]:
  rng = np.random.default_rng(2)
  inputs = helpers.random_inputs(rng, _BATCH, _INPUTS, _APART.vocab_size)
  tokens = rng.integers(0, _APART.vocab_size, [_BATCH, length], np.int32)
  tokens[:, 0] = 0
  return inputs, tokens


def shapes_of(module) -> dict[tuple[str, ...], tuple[int, ...]]:
  ones = jnp.ones([2, 5], jnp.int32)
  variables = jax.eval_shape(
      lambda: module.init(
          jax.random.PRNGKey(0), ones, ones, ones, enable_dropout=False
      )
  )
  flat = parameters.flatten(variables['params'])
  return {path: leaf.shape for path, leaf in flat.items()}


@pytest.mark.parametrize('tied', [False, True])
@pytest.mark.parametrize('axis', _AXES)
def test_the_parameter_tree_is_t5xs(axis, tied):
  config = dataclasses.replace(stacked(axis), logits_via_embedding=tied)
  module = helpers.stock(config).module
  assert T5Config.of(module.config) == config
  assert parameters.param_shapes(config) == shapes_of(module)
  params = parameters.init_params(config, jax.random.key(0))
  T5(module.config).check(params, 'target')


def test_remat_changes_nothing_that_decoding_reads():
  config = helpers.stock(stacked(1)).module.config
  assert T5(config.replace(remat_policy='minimal')) == T5(config)


@pytest.mark.parametrize(
    'config',
    [
        stacked(None),
        stacked(1),
        dataclasses.replace(
            stacked(0),
            num_encoder_layers=2,
            num_decoder_layers=1,
            mlp_activations=('relu',),
            logits_via_embedding=True,
        ),
        dataclasses.replace(
            stacked(-1), num_encoder_layers=2, num_decoder_layers=2
        ),
        dataclasses.replace(
            stacked(-2), num_encoder_layers=1, num_decoder_layers=1
        ),
    ],
    ids=lambda c: f'{c.scan_axis}-{c.num_encoder_layers}{c.num_decoder_layers}',
)
def test_logits_are_stock(config):
  """One cached position after the other there, blocks of any width here."""
  params = helpers.random_params(config, 7)
  inputs, tokens = batch_of()
  want = helpers.stock(config).cached_logits(params, inputs, tokens)
  decoder = T5(config)
  got = jax.jit(decoder.logits)(params, inputs, tokens)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
  prepared = decoder.prepare(params)
  state = decoder.init(prepared, jnp.asarray(inputs), _BATCH, _LENGTH + 3)
  for start, width in ((0, 4), (2, 3), (5, 1), (6, 3)):
    logits, state = decoder.decode_block(
        prepared,
        state,
        jnp.asarray(tokens[:, start : start + width]),
        jnp.full([_BATCH], start),
    )
    np.testing.assert_allclose(
        logits, want[:, start : start + width], rtol=0, atol=1e-4
    )


@pytest.mark.parametrize('stack', ['encoder', 'decoder'])
def test_the_comparison_sees_a_bias_in_the_wrong_layer(stack):
  config = dataclasses.replace(stacked(1), num_encoder_layers=3)
  params = helpers.random_params(config, 7)
  inputs, tokens = batch_of()
  want = helpers.stock(config).cached_logits(params, inputs, tokens)
  flat = parameters.flatten(params)
  path = (stack, stack, 'relpos_bias', 'rel_embedding')
  rolled = parameters.unflatten(flat | {path: np.roll(flat[path], 1, axis=1)})
  got = jax.jit(T5(config).logits)(rolled, inputs, tokens)
  assert np.abs(got - want).max() > 0.01


def test_bfloat16_logits_are_stocks_but_for_rounding():
  config = dataclasses.replace(stacked(1), dtype='bfloat16')
  params = helpers.random_params(config, 7)
  inputs, tokens = batch_of()
  want = helpers.stock(config).cached_logits(params, inputs, tokens)
  full = helpers.stock(stacked(1)).cached_logits(params, inputs, tokens)
  got = jax.jit(T5(config).logits)(params, inputs, tokens)
  rounding = np.abs(np.asarray(want) - np.asarray(full)).max()
  assert 0 < np.abs(np.asarray(got) - np.asarray(want)).max() < 2 * rounding


def model_of(cls, config: T5Config, draft: T5Config | None = None, **kwargs):
  import seqio

  words = seqio.PassThroughVocabulary(config.vocab_size, eos_id=_EOS)
  if draft is not None:
    kwargs['draft_module'] = helpers.stock(draft).module
  return cls(
      module=helpers.stock(config).module,
      input_vocabulary=words,
      output_vocabulary=words,
      optimizer_def=None,
      **kwargs,
  )


@pytest.mark.parametrize(
    ('target_axis', 'draft_axis'), [(1, None), (None, 1), (1, 0)]
)
def test_predictions_are_stock(target_axis, draft_axis):
  from t5x import decoding
  from t5x import models as t5x_models

  from t5x_specdec import models

  params = helpers.random_params(_APART, 91)
  draft = helpers.perturbed(params, 5, 0.1)
  trees = []
  for tree, axis in ((params, target_axis), (draft, draft_axis)):
    trees.append(tree if axis is None else stacking.stack(tree, axis))
  configs = stacked(target_axis), stacked(draft_axis)
  stock = model_of(
      t5x_models.EncoderDecoderModel,
      configs[0],
      decode_fn=decoding.temperature_sample,
  )
  ours = model_of(models.SpeculativeEncoderDecoderModel, *configs, gamma=3)
  inputs, tokens = batch_of(16)
  batch = {'encoder_input_tokens': inputs, 'decoder_input_tokens': tokens}

  def predict(model, params):
    run = jax.jit(
        lambda params, batch: model.predict_batch_with_aux(
            params,
            batch,
            decoder_params={'temperature': 0.0, 'rescale_log_probs': False},
        )
    )
    return run(params, batch)

  want, want_aux = predict(stock, trees[0])
  got, aux = predict(ours, pair_tree.join_draft(*trees))
  np.testing.assert_array_equal(got, want)
  np.testing.assert_allclose(aux['scores'], want_aux['scores'], atol=1e-4)
  assert len(np.unique(want)) > 5  # the case says something
  counts = {k: np.sum(v) for k, v in aux['speculation'].items()}
  assert 0 < counts['accepted'] < counts['judged']


def test_a_draft_of_examples_t5_serves_a_scanned_target():
  from t5x_specdec import models

  config, draft = stacked(1), helpers.CONFIGS['t5_1_1']
  model = model_of(models.SpeculativeEncoderDecoderModel, config, draft)
  params = helpers.random_params(config, 91)
  inputs, tokens = batch_of()
  got = model.predict_batch(
      pair_tree.join_draft(params, helpers.random_params(draft, 1)),
      {'encoder_input_tokens': inputs, 'decoder_input_tokens': tokens},
  )
  logits = helpers.stock(config).cached_logits(
      params, inputs, np.pad(got, ((0, 0), (1, 0)))[:, :-1]
  )
  ended = np.cumsum(np.asarray(got) == _EOS, axis=1)
  best = np.where(ended - (got == _EOS) > 0, 0, np.argmax(logits, axis=-1))
  np.testing.assert_array_equal(got, best)


def test_initial_variables_of_a_scanned_pair():
  from flax import core
  from t5x import models as t5x_models
  from t5x import partitioning
  from t5x import train_state

  from t5x_specdec import models

  config = stacked(1)
  stock = model_of(t5x_models.EncoderDecoderModel, config)
  ours = model_of(models.SpeculativeEncoderDecoderModel, config, stacked(-2))
  shapes = {'encoder_input_tokens': (2, 5), 'decoder_input_tokens': (2, 4)}
  key = jax.random.PRNGKey(0)
  want, got = (
      jax.eval_shape(lambda m=m: m.get_initial_variables(key, shapes))
      for m in (stock, ours)
  )
  target, draft = pair_tree.split_draft(got['params'])
  assert target == core.unfreeze(want['params'])
  assert {p: x.shape for p, x in parameters.flatten(draft).items()} == (
      parameters.param_shapes(stacked(-2))
  )
  partitioner = partitioning.PjitPartitioner(num_partitions=1)
  axes = partitioner.get_logical_axes(train_state.InferenceState.create(got))
  target_axes, draft_axes = pair_tree.split_draft(axes.params)
  decoder = target_axes['decoder']['decoder']['mlp']['wo']['kernel']
  assert tuple(decoder) == ('mlp', 'layers', 'embed')
  decoder = draft_axes['decoder']['decoder']['mlp']['wo']['kernel']
  assert set(decoder) == {'draft_mlp', 'draft_layers', 'draft_embed'}
  assert ours.module.scan_layers  # T5X asks for it when it compiles


def test_an_axis_that_t5x_cannot_scan_is_refused():
  from t5x_specdec import models

  module = helpers.stock(_APART).module
  config = module.config.replace(scan_layers=True, param_scan_axis=2)
  with pytest.raises(ValueError, match='param_scan_axis.*got 2'):
    model_of(
        models.SpeculativeEncoderDecoderModel,
        _APART,
        draft_module=type(module)(config),
    )


_DRAFT = """
from __gin__ import dynamic_registration
from t5x.examples.scalable_t5 import network
from t5x_specdec import models
models.SpeculativeEncoderDecoderModel.draft_module = @draft/network.Transformer()
draft/network.Transformer.config = @draft/network.T5Config()
"""  # noqa: E501
_DRAFT_CONFIG = t5x_gin.network(
    T5Config(
        vocab_size=32128,
        emb_dim=8,
        num_heads=1,
        num_encoder_layers=1,
        num_decoder_layers=1,
        head_dim=4,
        mlp_dim=8,
        mlp_activations=('gelu', 'linear'),
        scalable=True,
    ),
    'draft/',
)


def bound_by_gin(draft: str) -> tuple[T5Config, T5Config] | str:
  """Configs of the pair that infer.py would make, or what is refused."""
  emb_dim = 'scalable_t5.network.T5Config.emb_dim = 24'
  try:
    model = t5x_gin.parse(
        't5x/examples/scalable_t5/t5_1_1/small.gin',
        t5x_gin.RUN,
        _DRAFT,
        draft,
        bindings=(*t5x_gin.REQUIRED, emb_dim),
    )['model']
  except ValueError as error:
    return str(error)
  return tuple(
      T5Config.of(module.config)
      for module in (model.module, model.draft_module)
  )


def in_a_new_process(*args):
  """Calls `bound_by_gin` where gin knows no other network of that name."""
  spawn = multiprocessing.get_context('spawn')
  with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
    return pool.submit(bound_by_gin, *args).result()


def test_gin_binds_target_and_draft():
  target, draft = in_a_new_process(_DRAFT_CONFIG)
  assert target.emb_dim == 24 and target.scan_axis == 1
  assert draft.emb_dim == 8 and draft.scalable and draft.scan_axis is None


def test_a_draft_whose_layers_the_target_would_stack_is_refused():
  bound = '  scan_layers = False\n'
  assert bound in _DRAFT_CONFIG
  message = in_a_new_process(_DRAFT_CONFIG.replace(bound, ''))
  assert 'bind draft/network.T5Config.scan_layers' in message
  assert 'remat_policy' not in message
