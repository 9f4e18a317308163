"""The T5X models behave as T5X's own ones bound to `temperature_sample`."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.t5x

_EOS = 3
_NAMES = ('t5_1_1', 'decoder_only')
_INPUTS, _LENGTH, _BATCH = 7, 9, 5


@pytest.fixture(autouse=True)
def quick_compilation():
  """Turns XLA's optimizations off: compiling is nearly all the work here."""
  before = jax.config.read('jax_disable_most_optimizations')
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', before)


@dataclasses.dataclass(frozen=True)
class Pair:
  """T5X's model and ours of the same target, and the parameters of both."""

  name: str
  stock: object
  ours: object
  params: dict
  pair_params: dict


def vocabulary(size: int, eos_id: int = _EOS):
  import seqio

  return seqio.PassThroughVocabulary(size, eos_id=eos_id)


def model_of(name: str, cls: str, **kwargs):
  """One of our models, or with a name of T5X's one of those."""
  from t5x import models as t5x_models

  from t5x_specdec import models

  module = helpers.stock(helpers.CONFIGS[name]).module
  words = vocabulary(helpers.CONFIGS[name].vocab_size)
  common = {'module': module, 'optimizer_def': None}
  if name == 'decoder_only':
    common['vocabulary'] = words
  else:
    common |= {'input_vocabulary': words, 'output_vocabulary': words}
  if hasattr(models, cls):
    common['draft_module'] = module
    return getattr(models, cls)(**(common | kwargs))
  return getattr(t5x_models, cls)(**(common | kwargs))


def ours_of(name: str, **kwargs):
  kind = 'DecoderOnly' if name == 'decoder_only' else 'EncoderDecoder'
  return model_of(name, f'Speculative{kind}Model', **kwargs)


@functools.cache
def pair(name: str) -> Pair:
  from t5x import decoding

  from t5x_specdec import models

  config = helpers.CONFIGS[name]
  params = helpers.random_params(config, helpers.SEEDS[name])
  draft = helpers.perturbed(params, 5, 0.15)
  kind = 'DecoderOnly' if name == 'decoder_only' else 'EncoderDecoder'
  return Pair(
      name,
      model_of(name, f'{kind}Model', decode_fn=decoding.temperature_sample),
      ours_of(name, gamma=3),
      params,
      models.join_draft(params, draft),
  )


@functools.cache
def batch_of(name: str) -> dict[str, np.ndarray]:
  """A batch as SeqIO's converters make them, some inputs with EOS."""
  rng = np.random.default_rng(8)
  vocab_size = helpers.CONFIGS[name].vocab_size
  text = helpers.random_inputs(rng, _BATCH, _LENGTH, vocab_size)
  batch = {
      'decoder_target_tokens': text,
      'decoder_input_tokens': np.pad(text, ((0, 0), (1, 0)))[:, :-1],
      'decoder_loss_weights': (text != 0).astype(np.int32),
  }
  if name == 'decoder_only':
    ends = rng.integers(1, 5, [_BATCH, 1])
    causal = np.arange(_LENGTH) <= ends
    batch['decoder_causal_attention'] = causal.astype(np.int32)
  else:
    batch['encoder_input_tokens'] = helpers.random_inputs(
        rng, _BATCH, _INPUTS, vocab_size
    )
  return batch


def predict(model, params, batch, *, jit=None, **kwargs):
  """`predict_batch_with_aux`, compiled as a whole for T5X's models.

  Ours share the compilation of the decode inside where they are not.

  Args:
    model: of either kind.
    params: its parameters.
    batch: features.
    jit: whether to compile the whole.
    **kwargs: for `predict_batch_with_aux`.

  Returns:
    Tokens and aux.
  """
  options = kwargs.pop('decoder_params', {'temperature': 0.0})

  def run(params, batch):
    return model.predict_batch_with_aux(
        params, batch, decoder_params=dict(options), **kwargs
    )

  if jit is None:
    jit = not hasattr(model, 'draft_module')
  return (jax.jit(run) if jit else run)(params, batch)


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
  assert {len(leaf) for leaf in jax.tree.leaves(aux)} == {_BATCH}


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
  leading = (_BATCH, 2) if return_all else (_BATCH,)
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
  assert tokens.shape == (_BATCH, 4, _LENGTH)
  scores = np.asarray(aux['scores'])
  assert np.all(np.diff(scores, axis=1) >= 0)
  assert len(np.unique(scores)) > _BATCH


def test_default_decoder_params_are_taken():
  from t5x import models as t5x_models

  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  model = ours_of(
      't5_1_1',
      default_decoder_params=t5x_models.DecoderParams(
          return_all_decodes=True, num_decodes=2
      ),
  )
  tokens, aux = predict(model, case.pair_params, batch)
  assert tokens.shape == (_BATCH, 2, _LENGTH)
  assert aux['scores'].shape == (_BATCH, 2)


def test_prompt_with_targets_is_stock_eos_removed():
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  prompts = np.array(batch['decoder_input_tokens'])
  prompts[:, 4:] = 0
  prompts[0, 3] = prompts[1, 1] = _EOS
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


@pytest.mark.parametrize(('size', 'eos_id'), [(37, 2), (36, _EOS)])
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

  from t5x_specdec import models

  case, batch = pair(name), batch_of(name)
  shapes = {k: v.shape for k, v in batch.items()}
  key = jax.random.PRNGKey(0)
  want = case.stock.get_initial_variables(key, shapes)
  got = case.ours.get_initial_variables(key, shapes)
  target, draft = models.split_draft(got['params'])
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
  target_axes, draft_axes = models.split_draft(axes[1])
  is_spec = {'is_leaf': lambda x: isinstance(x, jax.sharding.PartitionSpec)}
  assert target_axes == core.unfreeze(axes[0])
  specs = jax.tree.leaves(draft_axes, **is_spec)
  assert specs
  assert all(set(spec) <= {None} for spec in specs)


_DRAFT = """
from __gin__ import dynamic_registration
from t5x.examples.t5 import network
draft/network.T5Config:
  vocab_size = 32128
  dtype = 'float32'
  emb_dim = 8
  num_heads = 1
  num_encoder_layers = 1
  num_decoder_layers = 1
  head_dim = 4
  mlp_dim = 8
  mlp_activations = ('gelu', 'linear')
  dropout_rate = 0.0
  logits_via_embedding = False
  float32_attention_logits = False
"""
_TINY = 't5x/examples/t5/t5_1_1/tiny.gin'


@pytest.fixture
def build(monkeypatch):
  """Returns a function that makes what infer.py's gin binds, by file or text.

  Paths are looked up and `__main__` is found as under infer.py.
  """
  import gin
  import t5x
  from t5x import infer

  main = sys.modules['__main__']
  monkeypatch.setattr(main, 'infer', infer.infer, raising=False)
  root = os.path.dirname(list(t5x.__path__)[0])

  def parse(*configs: str):
    with gin.unlock_config():
      gin.clear_config()
      gin.add_config_file_search_path(root)
      for config in configs:
        if '\n' in config:
          gin.parse_config(config)
        else:
          gin.parse_config_file(config)
      gin.parse_config("""
          DROPOUT_RATE = 0.0
          MIXTURE_OR_TASK_NAME = 'task'
          TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}
          CHECKPOINT_PATH = 'target/checkpoint_1'
          DRAFT_CHECKPOINT_PATH = 'draft/checkpoint_1'
          INFER_OUTPUT_DIR = 'out'
      """)
      return gin.get_bindings(infer.infer)

  yield parse
  gin.clear_config()


_RUN = 't5x_specdec/configs/runs/infer_speculative.gin'
_HEADER = """
from __gin__ import dynamic_registration
import seqio
from t5x import decoding
from t5x import models
from t5x.examples.t5 import network
from t5x_specdec import decoding as specdec_decoding
from t5x_specdec import models as specdec_models
"""


def test_a_targets_own_gin_works_unchanged(build):
  from t5x_specdec import checkpoints
  from t5x_specdec import models

  bound = build(_TINY, _DRAFT, _RUN)
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


def test_gin_bindings_of_the_decode_function_are_used(build):
  import inspect

  temperature = '\nspecdec_decoding.speculative_decode.temperature = 0.25\n'
  case, batch = pair('t5_1_1'), batch_of('t5_1_1')
  build(_TINY, _DRAFT, _RUN, _HEADER + temperature)
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


def test_unused_bindings_of_temperature_sample_are_refused(build):
  stock = """
models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample
decoding.temperature_sample.topk = 40
"""
  with pytest.raises(ValueError, match='bind decoding.speculative_decode.topk'):
    build(_TINY, _HEADER + stock, _DRAFT, _RUN)
  ours = 'specdec_decoding.speculative_decode.topk = 40\n'
  build(_TINY, _HEADER + stock + ours, _DRAFT, _RUN)


@pytest.mark.parametrize(
    ('name', 'instead'),
    [('gamma', 'gamma'), ('num_decodes', 'default_decoder_params')],
)
def test_bindings_that_the_model_overrides_are_refused(build, name, instead):
  binding = f'specdec_decoding.speculative_decode.{name} = 3\n'
  with pytest.raises(ValueError, match=f'{name} is bound.*Model.{instead} '):
    build(_TINY, _DRAFT, _RUN, _HEADER + binding)


@pytest.mark.parametrize(
    'binding',
    [
        'models.EncoderDecoderModel.decode_fn = @decoding.beam_search',
        'specdec_models.SpeculativeEncoderDecoderModel.decode_fn ='
        ' @decoding.beam_search',
    ],
)
def test_a_bound_beam_search_is_refused(build, binding):
  with pytest.raises(ValueError, match='beam_search.*bind'):
    build(_TINY, _DRAFT, _RUN, f'{_HEADER}\n{binding}\n')


@pytest.mark.parametrize('missing', ['num_heads', 'mlp_activations', ''])
def test_draft_fields_left_to_the_target_are_refused(build, missing):
  lines = _DRAFT.splitlines()
  kept = [x for x in lines if missing and f'  {missing} ' not in x]
  with pytest.raises(ValueError, match=f'draft/network.T5Config.{missing}'):
    build(_TINY, '\n'.join(kept) + '\n', _RUN)


def test_a_run_file_before_the_targets_gin_is_told_of(build):
  from t5x import models

  # MODEL is then T5X's own; PairCheckpointManager refuses it.
  model = build(_RUN, _TINY, _DRAFT)['model']
  assert type(model).__name__ == models.EncoderDecoderModel.__name__
