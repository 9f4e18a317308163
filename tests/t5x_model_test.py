"""The T5X models behave as T5X's own ones bound to `temperature_sample`."""

from __future__ import annotations

import contextlib
import inspect

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import t5x_gin
from t5x_models import BATCH
from t5x_models import batch_of
from t5x_models import EOS
from t5x_models import LENGTH
from t5x_models import ours_of
from t5x_models import pair
from t5x_models import predict
from t5x_models import vocabulary

from t5x_specdec import inference
from t5x_specdec import pair_tree
from t5x_specdec import T5Config

pytestmark = pytest.mark.t5x

parse = t5x_gin.parse_fixture

_NAMES = ('t5_1_1', 'decoder_only')


@pytest.fixture(autouse=True)
def quick_compilation():
  with helpers.quick_compilation():
    yield


@pytest.mark.parametrize('name', _NAMES)
def test_greedy_predictions_and_scores_are_stock(name):
  case, batch = pair(name), batch_of(name)
  options = {'temperature': 0.0, 'rescale_log_probs': False}
  want, want_aux = predict(
      case.stock, case.params, batch, decoder_params=options
  )
  tokens, aux = predict(
      case.ours, case.pair_params, batch, decoder_params=options, jit=True
  )
  np.testing.assert_array_equal(tokens, want)
  np.testing.assert_allclose(aux['scores'], want_aux['scores'], atol=1e-4)
  assert tokens.dtype == want.dtype
  assert np.any(np.asarray(tokens))  # the case says something
  accepted = np.asarray(aux['speculation']['accepted'])
  assert 0 < accepted.sum() < np.asarray(aux['speculation']['judged']).sum()
  assert {len(leaf) for leaf in jax.tree.leaves(aux)} == {BATCH}


@pytest.mark.parametrize('name', _NAMES)
def test_predict_batch_is_the_first_of_predict_batch_with_aux(name):
  case, batch = pair(name), batch_of(name)
  want = case.stock.predict_batch(case.params, batch)  # topk 1 is argmax
  got = case.ours.predict_batch(case.pair_params, batch)
  np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize('name', _NAMES)
@pytest.mark.parametrize('return_all', [False, True])
def test_num_decodes_and_return_all_decodes_are_stock(name, return_all):
  case, batch = pair(name), batch_of(name)
  options = {'num_decodes': 2, 'return_all_decodes': return_all}
  want, want_aux = predict(case.stock, case.params, batch, **options)
  tokens, aux = predict(case.ours, case.pair_params, batch, **options)
  np.testing.assert_array_equal(tokens, want)
  np.testing.assert_allclose(aux['scores'], want_aux['scores'], atol=1e-4)
  leading = (BATCH, 2) if return_all else (BATCH,)
  for leaf in jax.tree.leaves(aux):
    assert leaf.shape[: len(leading)] == leading


def test_sampled_decodes_come_by_rising_score():
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  tokens, aux = predict(
      case.ours,
      case.pair_params,
      batch,
      rng=jax.random.PRNGKey(4),
      num_decodes=4,
      return_all_decodes=True,
      decoder_params={'temperature': 1.0, 'topk': 0},
  )
  assert tokens.shape == (BATCH, 4, LENGTH)
  scores = np.asarray(aux['scores'])
  assert np.all(np.diff(scores, axis=1) >= 0)
  assert len(np.unique(scores)) > BATCH


def test_default_decoder_params_are_taken():
  from t5x import models as t5x_models

  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  model = ours_of(
      't5_1_1',
      gamma=3,
      default_decoder_params=t5x_models.DecoderParams(
          return_all_decodes=True, num_decodes=2
      ),
  )
  options = {'temperature': 1.0, 'topk': 0}  # decodes differ
  key = jax.random.PRNGKey(3)
  got, want = (
      predict(
          made, case.pair_params, batch, rng=key, decoder_params=options, **more
      )
      for made, more in (
          (model, {}),
          (case.ours, {'num_decodes': 2, 'return_all_decodes': True}),
      )
  )
  jax.tree.map(np.testing.assert_array_equal, got, want)
  assert np.any(np.asarray(got[0])[:, 0] != np.asarray(got[0])[:, 1])


def test_prompt_with_targets_is_stock_eos_removed():
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  prompts = np.array(batch['decoder_input_tokens'])
  prompts[:, 4:] = 0
  prompts[0, 3] = prompts[1, 1] = EOS
  batch = {**batch, 'decoder_input_tokens': prompts}
  options = {'temperature': 0.0, 'rescale_log_probs': False}
  want, got = (
      predict(
          model, params, batch, prompt_with_targets=True, decoder_params=options
      )
      for model, params in (
          (case.stock, case.params),
          (case.ours, case.pair_params),
      )
  )
  np.testing.assert_array_equal(got[0], want[0])
  np.testing.assert_allclose(got[1]['scores'], want[1]['scores'], atol=1e-4)
  free, _ = predict(case.stock, case.params, batch)
  assert np.any(np.asarray(free) != want[0])


@pytest.mark.parametrize('name', _NAMES)
def test_scores_and_loss_are_stock(name):
  case, batch = pair(name), batch_of(name)
  np.testing.assert_array_equal(
      case.ours.score_batch(case.pair_params, batch),
      case.stock.score_batch(case.params, batch),
  )
  want, got = (
      model.score_batch(params, batch, return_intermediates=True)
      for model, params in (
          (case.stock, case.params),
          (case.ours, case.pair_params),
      )
  )
  assert jax.tree.structure(got) == jax.tree.structure(want)
  loss, _ = case.ours.loss_fn(case.pair_params, batch, None)
  assert loss == case.stock.loss_fn(case.params, batch, None)[0]


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_scores_are_those_of_score_batch(temperature):
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  tokens, aux = predict(
      case.ours,
      case.pair_params,
      batch,
      rng=jax.random.PRNGKey(2),
      decoder_params={
          'temperature': temperature,
          'topk': 0,
          'rescale_log_probs': False,
          'eos_id': helpers.NO_EOS,
      },
  )
  # T5X's training path masks targets that are 0, so no such row is compared.
  rows = np.flatnonzero(np.all(np.asarray(tokens) != 0, axis=1))
  assert len(rows)
  scored = {
      'encoder_input_tokens': batch['encoder_input_tokens'],
      'decoder_target_tokens': tokens,
      'decoder_input_tokens': np.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
      'decoder_loss_weights': np.ones_like(tokens),
  }
  want = case.ours.score_batch(case.pair_params, scored)
  np.testing.assert_allclose(
      np.asarray(aux['scores'])[rows], np.asarray(want)[rows], atol=1e-4
  )


def test_random_keys_are_stock_and_seed_changes_them():
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  options = {'temperature': 1.0, 'topk': 0}
  key = jax.random.PRNGKey(6)

  def sample(model, rng, **more):
    return np.asarray(
        predict(
            model,
            case.pair_params,
            batch,
            rng=rng,
            decoder_params=options | more,
        )[0]
    )

  first = sample(case.ours, key)
  np.testing.assert_array_equal(first, sample(case.ours, key))
  np.testing.assert_array_equal(first, sample(case.ours, None, decode_rng=key))
  assert np.any(first != sample(case.ours, jax.random.PRNGKey(7)))
  seeded = [ours_of('t5_1_1', gamma=3, seed=seed) for seed in (0, 0, 1)]
  a, b, c = (sample(model, key) for model in seeded)
  np.testing.assert_array_equal(a, b)
  assert np.any(a != c)
  assert np.any(a != first)
  with pytest.raises(ValueError, match='Got RNG both'):
    sample(case.ours, key, decode_rng=key)


def test_unknown_decoder_params_are_refused():
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  with pytest.raises(ValueError, match=r"\['alpha', 'logit_callback_fn'\]"):
    predict(
        case.ours,
        case.pair_params,
        batch,
        decoder_params={'logit_callback_fn': print, 'alpha': 0.6},
    )


@pytest.mark.parametrize('decode_fn', ['beam_search', 'temperature_sample'])
def test_stock_decode_functions_are_refused(decode_fn):
  from t5x import decoding

  with pytest.raises(ValueError, match=f'{decode_fn} cannot decode spec.*bind'):
    ours_of('t5_1_1', decode_fn=getattr(decoding, decode_fn))


def test_a_prefix_lm_is_refused():
  with pytest.raises(ValueError, match='inputs_bidirectional_attention'):
    ours_of('decoder_only', inputs_bidirectional_attention=True)


@pytest.mark.parametrize(('size', 'eos_id'), [(37, 2), (36, EOS)])
def test_another_vocabulary_is_refused_naming_both(size, eos_id):
  with pytest.raises(ValueError) as error:
    ours_of('t5_1_1', draft_vocabulary=vocabulary(size, eos_id))
  for text in ('37 ids, EOS 3', f'{size} ids, EOS {eos_id}'):
    assert text in str(error.value)
  ours_of('t5_1_1', draft_vocabulary=vocabulary(37))


def test_a_vocabulary_of_other_pieces_is_refused(tmp_path):
  import sentencepiece
  import seqio

  words = []
  for name in ('abc', 'xyz'):
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([' '.join(name * 4)] * 9),
        model_prefix=str(tmp_path / name),
        vocab_size=10,
        hard_vocab_limit=False,
        model_type='char',
        minloglevel=2,
    )
    path = tmp_path / f'{name}.model'
    words.append(seqio.SentencePieceVocabulary(str(path), extra_ids=0))
  copy = tmp_path / 'copy.model'
  copy.write_bytes((tmp_path / 'abc.model').read_bytes())
  assert words[0].vocab_size == words[1].vocab_size
  both = {'input_vocabulary': words[0], 'output_vocabulary': words[0]}
  with pytest.raises(ValueError, match='abc.model.*xyz.model.*differ'):
    ours_of('t5_1_1', draft_vocabulary=words[1], **both)
  same = seqio.SentencePieceVocabulary(str(copy), extra_ids=0)
  ours_of('t5_1_1', draft_vocabulary=same, **both)


def test_a_draft_of_another_width_is_refused():
  from t5x.examples.t5 import network

  config = helpers.stock(helpers.CONFIGS['t5_1_1']).module.config
  wide = network.Transformer(config.replace(vocab_size=40))
  with pytest.raises(ValueError, match='target is 37, of the draft 40'):
    ours_of('t5_1_1', draft_module=wide)


@pytest.mark.parametrize('name', _NAMES)
def test_initial_variables_are_stock_beside_a_replicated_draft(name):
  from flax import core
  from t5x import partitioning
  from t5x import train_state


  case, batch = pair(name), batch_of(name)
  shapes = {k: v.shape for k, v in batch.items()}
  key = jax.random.PRNGKey(0)
  want = case.stock.get_initial_variables(key, shapes)
  got = case.ours.get_initial_variables(key, shapes)
  target, draft = pair_tree.split_draft(got['params'])
  jax.tree.map(
      np.testing.assert_array_equal, target, core.unfreeze(want['params'])
  )
  for params in (target, draft):
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(
        jnp.shape, case.params
    )
  partitioner = partitioning.PjitPartitioner(num_partitions=1)
  axes = [
      partitioner.get_mesh_axes(train_state.InferenceState.create(v)).params
      for v in (want, got)
  ]
  target_axes, draft_axes = pair_tree.split_draft(axes[1])
  is_spec = {'is_leaf': lambda x: isinstance(x, jax.sharding.PartitionSpec)}
  assert target_axes == core.unfreeze(axes[0])
  specs = jax.tree.leaves(draft_axes, **is_spec)
  assert specs
  assert all(set(spec) <= {None} for spec in specs)


_DRAFT = t5x_gin.network(
    T5Config(
        vocab_size=32128,
        emb_dim=8,
        num_heads=1,
        num_encoder_layers=1,
        num_decoder_layers=1,
        head_dim=4,
        mlp_dim=8,
        mlp_activations=('gelu', 'linear'),
    ),
    'draft/',
)
_TINY = 't5x/examples/t5/t5_1_1/tiny.gin'
_HEADER = """
from __gin__ import dynamic_registration
import seqio
from t5x import decoding
from t5x import models
from t5x.examples.t5 import network
from t5x_specdec import decoding as specdec_decoding
from t5x_specdec import models as specdec_models
"""


def test_a_targets_own_gin_works_unchanged(parse):
  from t5x_specdec import checkpoints
  from t5x_specdec import models

  bound = parse(_TINY, _DRAFT, t5x_gin.RUN)
  model = bound['model']
  assert isinstance(model, models.SpeculativeEncoderDecoderModel)
  assert model.module.config.emb_dim == 8
  assert model.module.config.num_heads == 4
  assert model.draft_module.config.num_heads == 1
  assert model.gamma == 5
  assert model._z_loss == 0.0001  # of the stock class's bindings
  assert bound['mode'] == 'predict_with_aux'
  restore = bound['restore_checkpoint_cfg']
  assert restore.path == 'target/checkpoint_1'
  assert issubclass(
      restore.checkpoint_manager_cls, checkpoints.PairCheckpointManager
  )


def test_gin_bindings_of_the_decode_function_are_used(parse):
  temperature = '\nspecdec_decoding.speculative_decode.temperature = 0.25\n'
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  parse(_TINY, _DRAFT, t5x_gin.RUN, _HEADER + temperature)
  # Not bound in Python, so it must be gin's own version of the default.
  model = ours_of('t5_1_1', gamma=3)
  assert 'temperature' in inspect.signature(model.decode_fn).parameters
  options = {'topk': 0, 'rescale_log_probs': True}
  key = jax.random.PRNGKey(1)
  got, want, other = (
      predict(
          model, case.pair_params, batch, rng=key, decoder_params=options | more
      )[1]['scores']
      for more in ({}, {'temperature': 0.25}, {'temperature': 1.0})
  )
  np.testing.assert_array_equal(got, want)
  assert np.any(np.asarray(got) != other)


def test_lenience_is_bound_by_gin_and_told(parse):
  """A lossy run has more drafts accepted, and says that it is lossy."""
  lenience = """
specdec_decoding.speculative_decode.lenience = 0.2
specdec_decoding.speculative_decode.verification = 'token'
"""
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  options = {'topk': 0, 'temperature': 1.0}
  exact = predict(case.ours, case.pair_params, batch, decoder_params=options)
  parse(_TINY, _DRAFT, t5x_gin.RUN, _HEADER + lenience)
  model = ours_of('t5_1_1', gamma=3)
  lenient = predict(model, case.pair_params, batch, decoder_params=options)
  ours, theirs = (inference.summary(x[1]) for x in (lenient, exact))
  assert ours and theirs
  assert theirs['exact'] and not ours['exact']
  assert ours['alpha'] > theirs['alpha']
  aux = lenient[1]['speculation']
  np.testing.assert_array_equal(aux['lenient'], aux['rounds'])
  assert 'lenient' not in exact[1]['speculation']


def test_unused_bindings_of_temperature_sample_are_refused(parse):
  stock = """
models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample
decoding.temperature_sample.topk = 40
"""
  with pytest.raises(ValueError, match='bind decoding.speculative_decode.topk'):
    parse(_TINY, _HEADER + stock, _DRAFT, t5x_gin.RUN)
  ours = 'specdec_decoding.speculative_decode.topk = 40\n'
  parse(_TINY, _HEADER + stock + ours, _DRAFT, t5x_gin.RUN)


@pytest.mark.parametrize(
    ('name', 'instead'),
    [('gamma', 'gamma'), ('num_decodes', 'default_decoder_params')],
)
def test_bindings_that_the_model_overrides_are_refused(parse, name, instead):
  binding = f'specdec_decoding.speculative_decode.{name} = 3\n'
  with pytest.raises(ValueError, match=f'{name} is bound.*Model.{instead} '):
    parse(_TINY, _DRAFT, t5x_gin.RUN, _HEADER + binding)


@pytest.mark.parametrize(
    'option, value, refused',
    [
        ('temperature', '-1.0', 'temperature must be >= 0, got -1.0'),
        ('temperature', '[1.0, 0.5]', None),
        ('topk', '2.5', 'topk must be an integer'),
        ('topp', '0.9', None),  # a call may give topk=0
        ('topp', '1.5', 'topp must be a number in .0, 1., got 1.5'),
        ('verification', '"both"', 'verification must be one of'),
        ('lenience', '2', 'lenience must be a number in'),
        ('lenience', '0.5', None),  # a call may give verification='token'
        ('max_decode_steps', '0', 'max_decode_steps must be integers >= 1'),
        ('rescale_log_probs', '1', 'rescale_log_probs must be True or False'),
    ],
)
def test_values_are_looked_at_before_anything_is_restored(
    parse, option, value, refused
):
  binding = f'specdec_decoding.speculative_decode.{option} = {value}\n'
  with contextlib.ExitStack() as stack:
    if refused:
      stack.enter_context(pytest.raises(ValueError, match=refused))
    parse(_TINY, _DRAFT, t5x_gin.RUN, _HEADER + binding)


@pytest.mark.parametrize(
    'binding',
    [
        'models.EncoderDecoderModel.decode_fn = @decoding.beam_search',
        'specdec_models.SpeculativeEncoderDecoderModel.decode_fn ='
        ' @decoding.beam_search',
    ],
)
def test_a_bound_beam_search_is_refused(parse, binding):
  with pytest.raises(ValueError, match='beam_search.*bind'):
    parse(_TINY, _DRAFT, t5x_gin.RUN, f'{_HEADER}\n{binding}\n')


@pytest.mark.parametrize('missing', ['num_heads', 'mlp_activations', ''])
def test_draft_fields_left_to_the_target_are_refused(parse, missing):
  lines = _DRAFT.splitlines()
  kept = [x for x in lines if missing and f'  {missing} ' not in x]
  with pytest.raises(ValueError, match=f'draft/network.T5Config.{missing}'):
    parse(_TINY, '\n'.join(kept) + '\n', t5x_gin.RUN)


def test_a_run_file_before_the_targets_gin_is_told_of(parse):
  from t5x import models

  # MODEL is then T5X's own; PairCheckpointManager refuses it.
  model = parse(t5x_gin.RUN, _TINY, _DRAFT)['model']
  assert type(model).__name__ == models.EncoderDecoderModel.__name__
