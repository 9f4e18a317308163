# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks, caches and rows of the network, against teacher forcing.

That teacher forcing itself equals stock T5X is in golden_test.py.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec import config_reader
from t5x_specdec import layers
from t5x_specdec import pair
from t5x_specdec import parameters
from t5x_specdec import stacking
from t5x_specdec import T5
from t5x_specdec import T5Config
from t5x_specdec import tree_checks
from t5x_specdec.testing.checkpoint_writer import write_checkpoint

LENGTH = 24
BATCH = 3

_SCALABLE = dataclasses.replace(
    helpers.CONFIGS['t5_1_1'], num_encoder_layers=2, scalable=True
)
_CONFIGS = helpers.CONFIGS | {
    'scalable_t5': dataclasses.replace(_SCALABLE, scan_axis=1)
}


@dataclasses.dataclass
class Case:
  """A random model, a batch of texts and their teacher-forced logits."""

  decoder: T5
  params: dict
  inputs: jax.Array | None
  tokens: jax.Array
  logits: np.ndarray
  # Compiled once for every width.
  decode_block: Callable[..., tuple[jax.Array, Any]]


def make_case(name, dtype='float32'):
  config = dataclasses.replace(_CONFIGS[name], dtype=dtype)
  params = helpers.random_params(config, helpers.SEEDS.get(name, 7))
  rng = np.random.default_rng(0)
  inputs = None
  if not config.decoder_only:
    inputs = rng.integers(1, config.vocab_size, [BATCH, 7])
    inputs[1, 4:] = 0
    inputs = jnp.asarray(inputs)
  tokens = rng.integers(0, config.vocab_size, [BATCH, LENGTH])
  tokens[:, 0] = 0
  decoder = T5(config)
  logits = jax.jit(decoder.logits)(params, inputs, jnp.asarray(tokens))
  return Case(
      decoder,
      params,
      inputs,
      jnp.asarray(tokens),
      np.asarray(logits),
      jax.jit(decoder.decode_block),
  )


@pytest.fixture(
    scope='module',
    params=helpers.some_slow(['t5_1_0', 'scalable_t5'], _CONFIGS),
)
def case(request):
  return make_case(request.param)


def start(case, max_len=LENGTH + 8, fill=0.0):
  """Prepared parameters and a state whose caches hold `fill`."""
  params = case.decoder.prepare(case.params)
  state = case.decoder.init(params, case.inputs, BATCH, max_len)
  if fill:
    state = state.replace(
        keys=tuple(jnp.full_like(k, fill) for k in state.keys),
        values=tuple(jnp.full_like(v, fill) for v in state.values),
    )
  return params, state


def feed(case, params, state, positions, width):
  """Feeds the text's own tokens at per-row positions."""
  positions = jnp.asarray(positions)
  block = jnp.take_along_axis(
      case.tokens, positions[:, None] + jnp.arange(width), axis=1
  )
  logits, state = case.decode_block(params, state, block, positions)
  return np.asarray(logits), state


def expected(case, positions, width):
  columns = np.asarray(positions)[:, None] + np.arange(width)
  return np.take_along_axis(case.logits, columns[..., None], axis=1)


def test_blocks_of_any_width_equal_teacher_forcing(case):
  """Slots never written hold 1e4: nothing attends to them (B37)."""
  params, state = start(case, fill=1e4)
  position = 0
  for width in (1, 1, 5, 2, 8, 3, 4):
    positions = np.full([BATCH], position)
    logits, state = feed(case, params, state, positions, width)
    np.testing.assert_allclose(
        logits, expected(case, positions, width), atol=1e-4
    )
    position += width
  assert position == LENGTH


def test_rows_stand_at_different_positions(case):
  params, state = start(case)
  _, state = feed(case, params, state, [0, 0, 0], 12)
  for positions in ([5, 11, 2], [9, 12, 4], [12, 16, 8]):
    logits, state = feed(case, params, state, positions, 4)
    np.testing.assert_allclose(
        logits, expected(case, positions, 4), atol=1e-4
    )


@pytest.mark.parametrize('kept', helpers.some_slow([0, 3], range(5)))
def test_rejected_tokens_leave_no_trace(case, kept):
  """Overwritten at the first, a middle, the last slot, and twice (B25)."""
  params, state = start(case)
  _, state = feed(case, params, state, [0, 0, 0], 6)
  positions = jnp.full([BATCH], 6)
  wrong = (case.tokens[:, 6:10] + 1) % case.decoder.vocab_size
  junk = jnp.concatenate([case.tokens[:, 6 : 6 + kept], wrong], axis=1)[:, :4]
  for _ in range(2):
    _, state = case.decode_block(params, state, junk, positions)
  rest = np.full([BATCH], 6 + kept)
  logits, state = feed(case, params, state, rest, 4)
  np.testing.assert_allclose(logits, expected(case, rest, 4), atol=1e-4)
  fresh_params, fresh = start(case)
  _, fresh = feed(case, fresh_params, fresh, [0, 0, 0], 10 + kept)
  for ours, theirs in zip(
      (*state.keys, *state.values), (*fresh.keys, *fresh.values)
  ):
    np.testing.assert_allclose(
        ours[:, :, : 10 + kept], theirs[:, :, : 10 + kept], atol=1e-5
    )


def test_earlier_slots_are_bit_unchanged_by_a_block(case):
  """The last block that fits writes its own slots and no others (B19)."""
  params, state = start(case, max_len=LENGTH)
  _, before = feed(case, params, state, [0, 0, 0], LENGTH)
  positions = np.array([LENGTH - 4, LENGTH - 4, 7])
  _, after = feed(case, params, before, positions, 4)
  for old, new in zip(
      (*before.keys, *before.values), (*after.keys, *after.values)
  ):
    for row, position in enumerate(positions):
      np.testing.assert_array_equal(
          old[row, :, :position], new[row, :, :position]
      )
      np.testing.assert_array_equal(
          old[row, :, position + 4 :], new[row, :, position + 4 :]
      )


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_a_token_that_overflows_poisons_only_those_who_attend_to_it(case, bad):
  """Its own logits are NaN; once rejected it is gone (B39)."""
  poison = case.decoder.vocab_size - 1
  tokens = np.asarray(case.tokens)
  text = np.where(tokens == poison, 5, tokens)
  clean = dataclasses.replace(case, tokens=jnp.asarray(text))
  path = parameters.embedding_path(case.decoder.config)
  flat = parameters.flatten(case.params)
  table = np.array(flat[path], np.float32)
  flat[path] = table * np.where(
      np.arange(len(table))[:, None] == poison, np.float32(bad), 1
  )
  clean.params = parameters.unflatten(flat)
  params, state = start(clean)
  _, state = feed(clean, params, state, [0, 0, 0], 6)
  junk = jnp.asarray(text[:, 6:9]).at[:, 1].set(poison)
  positions = jnp.full([BATCH], 6)
  logits, state = clean.decode_block(params, state, junk, positions)
  assert np.all(np.isnan(np.asarray(logits)[:, 1]))
  clean_logits = jax.jit(clean.decoder.logits)(
      case.params, case.inputs, clean.tokens
  )
  wanted = dataclasses.replace(clean, logits=np.asarray(clean_logits))
  tied = case.decoder.config.logits_via_embedding
  ids = slice(0, poison) if tied else slice(None)
  np.testing.assert_allclose(
      np.asarray(logits)[:, 0, ids],
      expected(wanted, positions, 1)[:, 0, ids],
      atol=1e-4,
  )
  rest = np.full([BATCH], 7)
  logits, _ = feed(clean, params, state, rest, 1)
  np.testing.assert_allclose(
      logits[:, 0, ids], expected(wanted, rest, 1)[:, 0, ids], atol=1e-4
  )


def test_padding_of_the_inputs_changes_nothing():
  case = make_case('t5_1_1')
  wider = jnp.pad(case.inputs, ((0, 0), (0, 5)))
  logits = jax.jit(case.decoder.logits)(case.params, wider, case.tokens)
  np.testing.assert_allclose(logits, case.logits, atol=1e-4)


def test_fully_masked_inputs_stay_finite():
  for dtype in ('float32', 'bfloat16', 'float16'):
    case = make_case('t5_1_1', dtype)
    inputs = case.inputs.at[2].set(0)
    logits = jax.jit(case.decoder.logits)(case.params, inputs, case.tokens)
    assert np.all(np.isfinite(logits)), dtype
    np.testing.assert_allclose(logits[:2], case.logits[:2], atol=1e-4)


def test_logits_are_float32_whatever_the_dtype():
  for dtype in ('bfloat16', 'float16'):
    case = make_case('t5_1_1', dtype)
    assert case.logits.dtype == np.float32
    full = make_case('t5_1_1')
    error = np.abs(case.logits - full.logits).max()
    assert 0 < error < 0.1 * np.abs(full.logits).max()


def test_logits_of_attention_can_be_in_float32():
  """In bfloat16 alone they are rounded, and the weights with them."""
  shape = [2, 3, 4, 8]
  q, k, v = 2 * np.random.default_rng(0).standard_normal([3, *shape])
  q, k, v = (jnp.asarray(x, jnp.bfloat16) for x in (q, k, v))

  def attend(q, k, float32_logits):
    source = layers.Source(k, v.astype(jnp.float32), None, jnp.bool_(True))
    return layers.attend(
        q, [source], dtype=jnp.float32, float32_logits=float32_logits
    )

  exact = attend(q.astype(jnp.float32), k.astype(jnp.float32), False)
  np.testing.assert_array_equal(attend(q, k, True), exact)
  assert np.max(np.abs(attend(q, k, False) - exact)) > 1e-3


def same(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize('axis', [0, 1, -1, -2])
def test_stacked_layers_decode_as_the_same_layers_apart(axis):
  params = helpers.random_params(_SCALABLE, 7)
  stacked = stacking.stack(params, axis)
  decoder = T5(dataclasses.replace(_SCALABLE, scan_axis=axis))
  decoder.check(stacked, 'target')
  prepared = decoder.prepare(stacked)
  same(prepared, T5(_SCALABLE).prepare(params))
  decoder.check(prepared, 'target')
  same(decoder.prepare(prepared), prepared)
  same(stacking.stack(prepared, axis), jax.tree.map(jnp.asarray, stacked))


def test_laid_out_parameters_decode_the_same(case):
  """Every matrix of a block transposed: same logits, same check, by any way."""
  decoder = case.decoder
  plain = decoder.prepare(case.params)
  laid_out = decoder.lay_out(case.params)
  decoder.check(laid_out, 'target')
  same(decoder.lay_out(plain), laid_out)
  same(decoder.lay_out(laid_out), laid_out)
  same(decoder.prepare(laid_out), laid_out)
  kernels = {
      path[1:-1]
      for path in parameters.flatten(laid_out)
      if path[0] == 'decoder' and path[-1] == 'kernel'
  }
  assert all(path[1] == 'encoder_decoder_attention' for path in kernels)
  got = decoder.logits(laid_out, case.inputs, case.tokens)
  np.testing.assert_allclose(
      got, decoder.logits(plain, case.inputs, case.tokens), atol=2e-5
  )


def test_a_laid_out_matrix_of_another_size_is_refused(case):
  laid_out = parameters.flatten(case.decoder.lay_out(case.params))
  path = next(
      path for path in laid_out if path[-3:] == ('mlp', 'wo', 'transposed')
  )
  with pytest.raises(ValueError, match='mlp/wo/kernel: config wants.*nothing'):
    case.decoder.check(
        parameters.unflatten(laid_out | {path: laid_out[path].T}), 'target'
    )


def test_stacked_layers_are_checked():
  decoder = T5(dataclasses.replace(_SCALABLE, scan_axis=1))
  params = helpers.random_params(_SCALABLE, 7)
  deeper = dataclasses.replace(_SCALABLE, num_decoder_layers=3, scan_axis=1)
  with pytest.raises(ValueError, match=r'\(3, 2, 32\), found \(3, 3, 32\)'):
    decoder.check(helpers.random_params(deeper, 7), 'target')
  with pytest.raises(ValueError, match=r'\(3, 2, 32\), found \(2, 3, 32\)'):
    decoder.check(stacking.stack(params, 0), 'target')
  shared = helpers.random_params(helpers.CONFIGS['t5_1_1'], 7)
  with pytest.raises(ValueError, match='layers_0/relpos_bias'):
    decoder.check(shared, 'target')


@pytest.mark.parametrize(
    'stack', helpers.some_slow(['decoder'], ['encoder', 'decoder'])
)
def test_every_layer_of_scalable_t5_has_its_own_bias(stack):
  """With one table in all layers it is T5, with any other it is not."""
  config = dataclasses.replace(
      _SCALABLE, scalable=False, num_encoder_layers=2
  )
  shared = helpers.random_params(config, 7)
  flat = parameters.flatten(shared)
  own = {
      path: np.reshape(flat[path], shape)
      if path in flat
      else flat[path[0], 'relpos_bias', 'rel_embedding']
      for path, shape in parameters.param_shapes(_SCALABLE).items()
  }
  rng = np.random.default_rng(1)
  inputs = jnp.asarray(helpers.random_inputs(rng, BATCH, 9, config.vocab_size))
  tokens = jnp.asarray(rng.integers(0, config.vocab_size, [BATCH, 8]))
  want = T5(config).logits(shared, inputs, tokens)
  got = T5(_SCALABLE).logits(parameters.unflatten(own), inputs, tokens)
  np.testing.assert_array_equal(got, want)
  for i in range(2):
    path = (stack, f'layers_{i}', 'relpos_bias', 'rel_embedding')
    other = parameters.unflatten(own | {path: own[path] + np.arange(32)})
    got = T5(_SCALABLE).logits(other, inputs, tokens)
    assert np.abs(got - want).max() > 0.01


def test_configs_that_scalable_t5_cannot_have_are_refused():
  for change, text in (
      ({'scan_axis': 2}, 'param_scan_axis.*got 2'),
      ({'scan_axis': 1, 'scalable': False}, 'scalable_t5 only'),
      ({'num_encoder_layers': 0}, 'at least 1'),
  ):
    with pytest.raises(ValueError, match=text):
      dataclasses.replace(_SCALABLE, **change)


def test_config_is_read_off_the_parameters(case):
  found = config_reader.config_from_params(case.params)
  assert found == case.decoder.config


@pytest.mark.parametrize('axis', [None, 0, -1, -2])
def test_config_is_read_of_layers_apart_or_along_axis_1(axis):
  config = dataclasses.replace(_SCALABLE, scan_axis=axis)
  params = helpers.random_params(config, 7)
  if axis is None:
    assert config_reader.config_from_params(params) == config
    return
  with pytest.raises(ValueError, match='where they are along axis 1'):
    config_reader.config_from_params(params)


def test_a_checkpoint_of_stacked_layers_is_read(tmp_path):
  params = helpers.random_params(_CONFIGS['scalable_t5'], 7)
  path = write_checkpoint(tmp_path, params, step=1, dtype='float32')
  model = pair.read_model(path)
  assert model.decoder == T5(_CONFIGS['scalable_t5'])
  same(model.params, model.decoder.prepare(params))


def test_config_of_a_foreign_tree_says_what_is_missing():
  with pytest.raises(ValueError, match='not the parameter tree of a T5X T5'):
    config_reader.config_from_params({'params': {'dense': np.zeros([2, 2])}})


@pytest.mark.parametrize('axis', helpers.some_slow([None], [None, 1]))
def test_init_params_have_t5x_scales(axis):
  config = T5Config(
      vocab_size=300,
      emb_dim=64,
      num_heads=4,
      head_dim=16,
      scalable=axis is not None,
      scan_axis=axis,
  )
  params = parameters.init_params(config, jax.random.key(0))
  tree_checks.check_params(params, config, 'target')
  params = T5(config).prepare(params)
  attention = params['decoder']['layers_0']['self_attention']
  for leaf, deviation in (
      (params['token_embedder']['embedding'], 1.0),
      (attention['query']['kernel'], 64**-0.5 * 16**-0.5),
      (attention['key']['kernel'], 64**-0.5),
      (attention['out']['kernel'], (4 * 16) ** -0.5),
      (params['decoder']['layers_0']['mlp']['wo']['kernel'], 2048**-0.5),
  ):
    np.testing.assert_allclose(np.std(leaf), deviation, rtol=0.05)
