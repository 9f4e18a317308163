"""Every gin file of ours parses as T5X's scripts parse it, and builds a model.

No weights and no data: shapes are all that is made of the large models.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
import re
import runpy

from flax import core
import jax
import jax.numpy as jnp
import pytest
import t5x_gin

import t5x_specdec
from t5x_specdec import model_checks
from t5x_specdec import parameters
from t5x_specdec import T5Config

pytestmark = pytest.mark.t5x

_ROOT = pathlib.Path(t5x_specdec.__file__).parent / 'configs'
_FILES = sorted(str(path.relative_to(_ROOT)) for path in _ROOT.glob('*/*.gin'))
_ROWS = [name for name in _FILES if re.match('table2/[^_]', name)]
_PAIRS = [name for name in _FILES if re.match('models/(?!draft_)', name)]
_DRAFTS = [name for name in _FILES if name.startswith('models/draft_')]
_RUNS = [
    f'runs/{name}.gin'
    for name in (
        'eval_speculative',
        'finetune_cnndm',
        'finetune_ende',
        'infer_baseline',
        'infer_lookup',
        'infer_speculative',
        'infer_speculative_decoder_only',
    )
]
_ENCODER_DECODER = ('encoder_input_tokens', 'decoder_input_tokens')
_DECODER_ONLY_DRAFT = T5Config(
    vocab_size=32128,
    dtype='bfloat16',
    emb_dim=48,
    num_heads=3,
    num_encoder_layers=0,
    num_decoder_layers=2,
    head_dim=16,
    mlp_dim=96,
    mlp_activations=('gelu', 'linear'),
    logits_via_embedding=True,
)

# Table 2 of the paper: task, draft, temperature -> gamma, alpha, Emp and Exp;
# c by draft.
_TABLE = {
    ('ende', 'small', 0): (7, 0.75, 3.4, 3.2),
    ('ende', 'base', 0): (7, 0.8, 2.8, 3.3),
    ('ende', 'large', 0): (7, 0.82, 1.7, 2.5),
    ('ende', 'small', 1): (7, 0.62, 2.6, 2.3),
    ('ende', 'base', 1): (5, 0.68, 2.4, 2.4),
    ('ende', 'large', 1): (3, 0.71, 1.4, 2.0),
    ('cnndm', 'small', 0): (5, 0.65, 3.1, 2.4),
    ('cnndm', 'base', 0): (5, 0.73, 3.0, 2.6),
    ('cnndm', 'large', 0): (3, 0.74, 2.2, 2.0),
    ('cnndm', 'small', 1): (5, 0.53, 2.3, 1.9),
    ('cnndm', 'base', 1): (3, 0.55, 2.2, 1.8),
    ('cnndm', 'large', 1): (3, 0.56, 1.7, 1.6),
}
_C = {'small': 0.02, 'base': 0.04, 'large': 0.11}
_SCRIPT = pathlib.Path(__file__).parents[1] / 'scripts/table2_report.py'
_TASKS = {
    'ende': ('wmt_t2t_ende_v003', {'inputs': 128, 'targets': 128}),
    'cnndm': ('cnn_dailymail_v002', {'inputs': 512, 'targets': 128}),
}
_MODULE = 't5.data.mixtures'
# The tasks' own, which T5X compares with the model's by file.
_VOCABULARY = ('gs://t5-data/vocabs/cc_all.32000/sentencepiece.model', 100)
# T5X's docs/models.md.
_PUBLIC = 'gs://t5-data/pretrained_models/t5x/'
_PUBLIC_DRAFTS = {
    'small': 't5_small/checkpoint_1000000',
    'base': 't5_base/checkpoint_999900',
    'large': 't5_large/checkpoint_1000700',
}

parse = t5x_gin.parse_fixture


def shapes_of(model, *features: str) -> dict[tuple[str, ...], tuple[int, ...]]:
  """Shapes of a model's parameters, as T5X initializes them."""
  variables = jax.eval_shape(
      lambda: model.get_initial_variables(
          jax.random.PRNGKey(0), dict.fromkeys(features, (2, 8))
      )
  )
  flat = parameters.flatten(core.unfreeze(variables['params']))
  return {path: leaf.shape for path, leaf in flat.items()}


def assert_shapes(model, *features: str) -> None:
  """A pair has the arrays that both of its networks read, and no other."""
  expected = parameters.param_shapes(T5Config.of(model.module.config))
  draft = parameters.param_shapes(T5Config.of(model.draft_module.config))
  expected |= {('draft', *path): shape for path, shape in draft.items()}
  assert shapes_of(model, *features) == expected


def test_every_file_is_tested_here():
  """Or, where its name starts with _, included by one that is."""
  fragments = [name for name in _FILES if '/_' in name]
  assert sorted([*_ROWS, *_PAIRS, *_DRAFTS, *_RUNS, *fragments]) == _FILES
  text = ''.join((_ROOT / name).read_text() for name in _FILES)
  for name in fragments:
    assert f"include 't5x_specdec/configs/{name}'" in text
  for folder in {_ROOT / name for name in _FILES}:
    assert (folder.parent / '__init__.py').exists()  # gin's reader needs it


def test_t5x_base_works_unchanged_with_our_run_file(parse):
  bound = parse(
      't5x/examples/t5/t5_1_1/base.gin',
      'models/draft_t5_1_1_small.gin',
      'runs/infer_speculative.gin',
  )
  model = bound['model']
  assert type(model).__name__ == 'SpeculativeEncoderDecoderModel'
  assert bound['mode'] == 'predict_with_aux'
  assert bound['restore_checkpoint_cfg'].path == 'target/checkpoint_1'
  assert (model.module.config.num_heads, model.gamma) == (12, 5)
  assert_shapes(model, *_ENCODER_DECODER)


def test_eval_has_the_pair_of_infer(parse):
  files = 'models/t5_1_1_xl_small.gin', 'runs/infer_speculative.gin'
  want = parse(*files)['model']
  bound = parse(
      files[0],
      'runs/eval_speculative.gin',
      bindings=(*t5x_gin.REQUIRED, "EVAL_OUTPUT_DIR = 'out'"),
      script='evaluate',
  )
  model = bound['model']
  assert (model.gamma, model.module.config) == (want.gamma, want.module.config)
  assert model.draft_module.config == want.draft_module.config
  assert bound['restore_checkpoint_cfg'].path == 'target/checkpoint_1'
  assert draft_path() == 'draft/checkpoint_1'


def test_lookup_needs_the_target_alone(parse):
  from t5x_specdec import drafts

  files = 't5x/examples/t5/t5_1_1/base.gin', 'runs/infer_lookup.gin'
  path = t5x_gin.PATHS[1]
  assert path.startswith('DRAFT_CHECKPOINT_PATH')
  alone = [text for text in t5x_gin.REQUIRED if text != path]
  bound = parse(*files, bindings=(*alone, 'drafts.PromptLookup.longest = 2'))
  model = bound['model']
  assert model._draft == drafts.PromptLookup(2)
  assert shapes_of(model, *_ENCODER_DECODER) == parameters.param_shapes(
      T5Config.of(model.module.config)
  )
  with pytest.raises(ValueError, match='DRAFT_CHECKPOINT_PATH = .* is set'):
    parse(*files, bindings=t5x_gin.REQUIRED)


def test_a_policy_and_a_chain_are_bound_like_anything_else(parse):
  from t5x_specdec import drafts
  from t5x_specdec import gamma

  bound = parse(
      't5x/examples/t5/t5_1_1/base.gin',
      'models/draft_t5_1_1_small.gin',
      'runs/infer_speculative.gin',
      '''
from __gin__ import dynamic_registration
from t5x_specdec import drafts
from t5x_specdec import gamma
from t5x_specdec import models
models.SpeculativeEncoderDecoderModel:
  draft = @drafts.Chain()
  gamma = @gamma.Adaptive()
drafts.Chain.first = @drafts.PromptLookup()
gamma.Adaptive:
  gammas = [0, 2, 4]
  c = 0.05
''',
  )
  model = bound['model']
  assert model.gamma == gamma.Adaptive(gammas=(0, 2, 4), c=0.05)
  assert model._draft.first == drafts.PromptLookup()
  assert model._draft.then.vocab_size == model.module.config.vocab_size


def test_the_decoder_only_run_file(parse):
  import t5x

  # Not by its name: gin does not look into folders without __init__.py.
  package = pathlib.Path(list(t5x.__path__)[0])
  bound = parse(
      str(package / 'examples/decoder_only/models/base.gin'),
      t5x_gin.network(_DECODER_ONLY_DRAFT, 'draft/'),
      'runs/infer_speculative_decoder_only.gin',
      bindings=(
          *t5x_gin.REQUIRED,
          'decoding.speculative_decode.temperature = 1.0',
          'decoding.speculative_decode.topk = 40',
      ),
  )
  model = bound['model']
  assert type(model).__name__ == 'SpeculativeDecoderOnlyModel'
  assert (model.module.config.num_heads, model.gamma) == (12, 5)
  assert T5Config.of(model.draft_module.config) == _DECODER_ONLY_DRAFT
  assert_shapes(model, 'decoder_input_tokens')


@pytest.mark.slow
@pytest.mark.parametrize('path', _PAIRS)
def test_every_pair_of_models_builds(parse, path):
  model = parse(path, 'runs/infer_speculative.gin')['model']
  assert_shapes(model, *_ENCODER_DECODER)
  params = jax.tree.map(
      lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
      parameters.unflatten(shapes_of(model, *_ENCODER_DECODER)),
      is_leaf=lambda x: isinstance(x, tuple),
  )
  # Not the vocabulary's own EOS, which is on a server.
  tokens, _ = jax.eval_shape(
      functools.partial(
          model.predict_batch_with_aux, decoder_params={'eos_id': 1}
      ),
      params,
      {n: jax.ShapeDtypeStruct((2, 8), jnp.int32) for n in _ENCODER_DECODER},
  )
  assert tokens.shape == (2, 8)


@pytest.mark.parametrize('path', _DRAFTS)
def test_draft_files_are_t5xs_own_sizes(parse, path):
  name = pathlib.Path(path).stem.removeprefix('draft_')
  version, size = name.rsplit('_', 1)
  own = f't5x/examples/t5/{version}/{size}.gin'
  model = parse(own, path, 'runs/infer_speculative.gin')['model']
  assert model.draft_module.config == model.module.config


@pytest.mark.parametrize('task', sorted(_TASKS))
def test_fine_tuning_is_of_t5xs_own_model(parse, task):
  bound = parse(
      't5x/examples/t5/t5_1_1/small.gin',
      f'runs/finetune_{task}.gin',
      bindings=("MODEL_DIR = 'out'", "INITIAL_CHECKPOINT_PATH = 'checkpoint'"),
      script='train',
  )
  model = bound['model']
  assert type(model).__name__ == 'EncoderDecoderModel'
  assert shapes_of(model, *_ENCODER_DECODER) == parameters.param_shapes(
      T5Config.of(model.module.config)
  )
  assert_vocabulary_is_the_tasks(model)
  assert model._loss_normalizing_factor == 2048 * 114
  assert model.module.config.dropout_rate == 0.1
  assert bound['total_steps'] == 1_020_000
  name, lengths = _TASKS[task]
  for kind in ('train', 'train_eval', 'infer_eval'):
    data = bound[f'{kind}_dataset_cfg']
    assert (data.mixture_or_task_name, data.module) == (name, _MODULE)
    # As long as what is decoded, or an end is cut off that has to be learnt.
    assert all(
        data.task_feature_lengths[key] >= length
        for key, length in lengths.items()
    )
    assert not data.use_cached


def row_file(task: str, size: str, temperature: int, public: bool) -> str:
  kind = '_public' if public else ''
  return f'table2/{task}_{size}_t{temperature}{kind}.gin'


def test_the_table_has_every_row_of_the_paper_on_both_weights():
  both = [row_file(*row, public) for row in _TABLE for public in (False, True)]
  assert sorted(both) == _ROWS


@pytest.mark.parametrize('public', [False, True])
@pytest.mark.parametrize('row', sorted(_TABLE), ids=str)
def test_header_gamma_and_script_have_the_papers_figures(row, public):
  task, size, temperature = row
  gamma, alpha, measured, expected = _TABLE[row]
  path = _ROOT / row_file(*row, public)
  text = path.read_text()
  header = ' '.join(re.findall('^# (.*)$', text, re.MULTILINE))
  language = {'ende': 'English to German', 'cnndm': 'CNN/Daily Mail'}[task]
  target, version = ('11B', 'T5 1.0') if public else ('XXL', 'T5 1.1')
  assert (
      f': {language}, {version} {target} with {version} {size.title()}, '
      f'temperature {temperature}. '
  ) in header
  (found,) = re.findall(
      r'gamma (\d+), alpha (\.\d+)(?:,| and) (\d\.\d)x', header
  )
  assert tuple(map(float, found)) == (gamma, alpha, measured)
  assert re.findall(r'^GAMMA = (.*)$', text, re.MULTILINE) == [str(gamma)]
  report = runpy.run_path(str(_SCRIPT))
  assert report['paper']([f'elsewhere/{path.name}']) == {
      'row': path.stem,
      'gamma': gamma,
      'alpha': alpha,
      'c': _C[size],
      'expected': expected,
      'measured': measured,
  }


@pytest.mark.parametrize('public', [False, True])
@pytest.mark.parametrize('row', sorted(_TABLE), ids=str)
def test_a_row_binds_what_the_paper_has(parse, row, public):
  from t5x_specdec import decoding

  task, size, temperature = row
  path = row_file(*row, public)
  pair = f't5_1_0_11b_{size}' if public else f't5_1_1_xxl_{size}'
  want = parse(f'models/{pair}.gin', 'runs/infer_speculative.gin')['model']
  given = t5x_gin.OUTPUT if public else (*t5x_gin.OUTPUT, *t5x_gin.PATHS)
  bound = parse(path, bindings=given)
  model = bound['model']
  assert model.gamma == _TABLE[row][0]
  assert_vocabulary_is_the_tasks(model)
  sampling = model_checks.bindings(decoding.speculative_decode)
  assert sampling == {
      'temperature': temperature,
      'topk': 0,
      'verification': 'token',
  }
  assert model.module.config == want.module.config
  assert model.draft_module.config == want.draft_module.config
  assert model.module.config.dtype == model.draft_module.config.dtype
  assert model.module.config.dtype == 'bfloat16'
  data, restore = bound['dataset_cfg'], bound['restore_checkpoint_cfg']
  assert (data.mixture_or_task_name, data.task_feature_lengths) == _TASKS[task]
  assert (data.module, data.batch_size, data.split) == (_MODULE, 1, 'test')
  assert restore.dtype == 'bfloat16'
  if public:
    assert restore.path == _PUBLIC + 't5_11B/checkpoint_1000000'
    assert draft_path() == _PUBLIC + _PUBLIC_DRAFTS[size]
  else:
    assert (restore.path, draft_path()) == (
        'target/checkpoint_1',
        'draft/checkpoint_1',
    )


def assert_vocabulary_is_the_tasks(model) -> None:
  import seqio

  expected = seqio.SentencePieceVocabulary(*_VOCABULARY)
  assert model.input_vocabulary == expected
  assert model.output_vocabulary == expected


def draft_path() -> str:
  """Where the draft of the configuration that was parsed comes from."""
  from t5x_specdec import checkpoints

  manager = model_checks.bindings(checkpoints.PairCheckpointManager)
  return manager['draft_restore_cfg'].path


@pytest.mark.parametrize('missing', [0, 1])
def test_a_row_of_the_paper_requires_both_checkpoints(parse, missing):
  given = [path for i, path in enumerate(t5x_gin.PATHS) if i != missing]
  name = t5x_gin.PATHS[missing].split()[0]
  with pytest.raises(ValueError, match=f'^{name}/macro.*REQUIRED'):
    parse('table2/ende_small_t0.gin', bindings=(*t5x_gin.OUTPUT, *given))


@pytest.mark.parametrize('path', _ROWS)
def test_a_rows_baseline_is_the_stock_run_of_the_same_row(parse, path):
  from t5x import checkpoints as t5x_checkpoints
  from t5x import decoding

  given = (*t5x_gin.OUTPUT, *t5x_gin.PATHS[:1])  # no draft is asked for
  ours = parse(path, bindings=(*t5x_gin.OUTPUT, *t5x_gin.PATHS))
  bound = parse(path, 'runs/infer_baseline.gin', bindings=given)
  model = bound['model']
  assert type(model).__name__ == 'EncoderDecoderModel'
  assert_vocabulary_is_the_tasks(model)
  assert inspect.unwrap(model._decode_fn) is decoding.temperature_sample
  assert model_checks.bindings(decoding.temperature_sample) == {
      'temperature': 1.0 if '_t1' in path else 0.0,
      'topk': 0,
  }
  assert model.module.config == ours['model'].module.config
  restore = bound['restore_checkpoint_cfg']
  stock = t5x_checkpoints.OrbaxCheckpointManagerInterface
  assert issubclass(restore.checkpoint_manager_cls, stock)
  assert bound['dataset_cfg'] == ours['dataset_cfg']
  assert restore.dtype == ours['restore_checkpoint_cfg'].dtype
