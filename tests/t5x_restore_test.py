"""Target and draft are restored each from its own checkpoint, or not at all."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shutil

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec import pair_tree
from t5x_specdec import parameters
from t5x_specdec import T5Config
from t5x_specdec.testing.checkpoint_writer import write_checkpoint

pytestmark = pytest.mark.t5x

_TARGET = T5Config(
    vocab_size=11,
    emb_dim=6,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=2,
    head_dim=3,
    mlp_dim=8,
    mlp_activations=('gelu', 'linear'),
)
_DRAFT = T5Config(
    vocab_size=11,
    emb_dim=4,
    num_heads=1,
    num_encoder_layers=1,
    num_decoder_layers=1,
    head_dim=5,
    mlp_dim=3,
    mlp_activations=('gelu', 'linear'),
)
_CONFIGS = {'target': _TARGET, 'draft': _DRAFT}
_SCALABLE = {
    'target': dataclasses.replace(_TARGET, scalable=True, scan_axis=1),
    'draft': dataclasses.replace(_DRAFT, scalable=True),
}
_BOTH = pytest.mark.parametrize('name', ['target', 'draft'])
_LAYOUTS = pytest.mark.parametrize('layout', ['legacy', 'orbax'])


def params_of(name: str, config: T5Config | None = None):
  return helpers.random_params(config or _CONFIGS[name], len(name))


def flat(params) -> dict[str, np.ndarray]:
  return {
      '/'.join(path): np.asarray(leaf)
      for path, leaf in parameters.flatten(params).items()
  }


@functools.cache
def partitioner():
  from t5x import partitioning

  return partitioning.PjitPartitioner(num_partitions=1)


def initializer(model):
  from t5x import utils

  shapes = {'encoder_input_tokens': (2, 4), 'decoder_input_tokens': (2, 4)}
  return utils.TrainStateInitializer(
      None, model.get_initial_variables, shapes, partitioner()
  )


@functools.cache
def pair_initializer(scalable: bool):
  import seqio

  from t5x_specdec import models

  words = seqio.PassThroughVocabulary(11)
  configs = _SCALABLE if scalable else _CONFIGS
  made = {k: helpers.stock(config).module for k, config in configs.items()}
  return initializer(
      models.SpeculativeEncoderDecoderModel(
          made['target'],
          made['draft'],
          input_vocabulary=words,
          output_vocabulary=words,
          optimizer_def=None,
      )
  )


def write(folder: pathlib.Path, name: str, params, layout: str) -> str:
  """Writes a checkpoint of step 3 (target) or 7 (draft), any tree."""
  step = {'target': 3, 'draft': 7}[name]
  if layout == 'legacy':
    return write_checkpoint(folder / name, params, step=step, dtype='float32')
  from flax.linen import partitioning as flax_partitioning
  from t5x import checkpoints
  from t5x import train_state

  axes = {
      (*path[:-1], f'{path[-1]}_axes'): flax_partitioning.AxisMetadata(
          names=(None,) * np.ndim(leaf)
      )
      for path, leaf in parameters.flatten(params).items()
  }
  variables = {
      'params': jax.tree.map(jnp.asarray, params),
      'params_axes': parameters.unflatten(axes),
  }
  state = train_state.InferenceState.create(variables)
  state = state.replace_step(jnp.asarray(step))
  (folder / name).mkdir(parents=True)
  manager = checkpoints.OrbaxCheckpointManagerInterface(
      str(folder / name), state, partitioner(), save_dtype=jnp.float32
  )
  manager.save(state)
  manager.wait_until_finished()
  manager.close()
  return str(folder / name / f'checkpoint_{step}')


def restore(
    paths: dict[str, str], *, target=None, draft=None, scalable=False
):
  """Restores as infer.py does, strict=False included."""
  from t5x import utils

  from t5x_specdec import checkpoints

  draft_cfg = utils.RestoreCheckpointConfig(
      **({'path': paths['draft'], 'mode': 'specific'} | (draft or {}))
  )
  cfg = utils.RestoreCheckpointConfig(
      **({'path': paths['target'], 'mode': 'specific'} | (target or {})),
      checkpoint_manager_cls=functools.partial(
          checkpoints.PairCheckpointManager, draft_restore_cfg=draft_cfg
      ),
  )
  cfg.strict = False
  rng = jax.random.PRNGKey(0) if cfg.fallback_to_scratch else None
  state, manager = utils.create_checkpoint_manager_and_restore(
      pair_initializer(scalable),
      partitioner(),
      cfg,
      cfg.path,
      rng,
      use_orbax=True,
  )
  manager.close()
  return state


def check(state, want=None):

  found = dict(zip(('target', 'draft'), pair_tree.split_draft(state.params)))
  for name, params in found.items():
    expected = flat((want or {}).get(name, params_of(name)))
    assert flat(params).keys() == expected.keys()
    for path, leaf in flat(params).items():
      np.testing.assert_array_equal(leaf, expected[path], err_msg=path)


@pytest.fixture
def written(tmp_path):
  """Returns a function that writes both checkpoints in given layouts."""

  def make(target='legacy', draft='legacy', params=None):
    layouts = {'target': target, 'draft': draft}
    return {
        name: write(
            tmp_path, name, (params or {}).get(name, params_of(name)), layout
        )
        for name, layout in layouts.items()
    }

  return make


def refused(paths, name: str, *texts: str, **kwargs):
  """The restore fails, naming the model, its path and the texts."""
  with pytest.raises(ValueError) as error:
    restore(paths, **kwargs)
  for text in (f'{name} checkpoint {paths[name]}: ', *texts):
    assert text in str(error.value)


@pytest.mark.parametrize('draft', ['legacy', 'orbax'])
@pytest.mark.parametrize('target', ['legacy', 'orbax'])
def test_both_layouts(written, target, draft):
  state = restore(written(target, draft))
  check(state)
  assert int(state.step) == 3  # the target's


def test_dtypes_are_each_ones_own(written):
  state = restore(
      written(), target={'dtype': 'bfloat16'}, draft={'dtype': 'float32'}
  )
  assert state.params['decoder']['decoder_norm']['scale'].dtype == 'bfloat16'
  draft = state.params['draft']
  assert draft['decoder']['decoder_norm']['scale'].dtype == 'float32'


def test_the_draft_may_be_the_latest_of_a_directory(written):
  paths = written()
  folder = os.path.dirname(paths['draft'])
  shutil.copytree(paths['draft'], f'{folder}/checkpoint_5')
  paths['draft'] = folder
  check(restore(paths, draft={'mode': 'latest'}))


def rename_norms(written, layout: str):
  """Writes checkpoints with a name changed; returns paths and the maps."""
  params, maps = {}, {}
  for name in ('target', 'draft'):
    params[name] = params_of(name)
    norm = params[name]['decoder'].pop('decoder_norm')
    params[name]['decoder'][f'{name}_norm'] = norm
    pattern = r'(.*)/decoder/decoder_norm/(.*)'
    maps[name] = {'assignment_map': [(pattern, rf'\1/decoder/{name}_norm/\2')]}
  return written(layout, layout, params), maps


def test_assignment_maps_are_each_ones_own(written):
  paths, maps = rename_norms(written, 'legacy')
  check(restore(paths, **maps))


def test_an_assignment_map_that_t5x_ignores_is_refused(written):
  # T5X with today's Orbax looks for the model's own names, map or no map.
  paths, maps = rename_norms(written, 'orbax')
  refused(paths, 'target', 'cannot rename decoder/decoder_norm/scale', **maps)


def test_the_target_may_fall_back_to_scratch_but_not_the_draft(written):
  scratch = {
      'fallback_to_scratch': True,
      'assignment_map': [(r'.*decoder_norm.*', None)],
  }
  paths = written()
  state = restore(paths, target=scratch)
  scale = state.params['decoder']['decoder_norm']['scale']
  np.testing.assert_array_equal(scale, np.ones([_TARGET.emb_dim]))
  refused(
      paths, 'draft', 'decoder/decoder_norm/scale: missing', draft=scratch
  )


@_BOTH
def test_a_missing_checkpoint_is_named_and_nothing_is_created(
    written, tmp_path, name
):
  paths = written()
  gone = tmp_path / 'no' / 'such' / 'checkpoint_1'
  paths[name] = str(gone)
  with pytest.raises(FileNotFoundError, match=f'{name} checkpoint {gone}'):
    restore(paths)
  assert not (tmp_path / 'no').exists()


@_LAYOUTS
def test_swapped_checkpoints_are_refused(written, layout):
  paths = written(layout, layout)
  paths = {'target': paths['draft'], 'draft': paths['target']}
  refused(paths, 'target', 'does not fit the target model')


@_LAYOUTS
def test_stacked_layers(written, layout):
  params = {name: params_of(name, _SCALABLE[name]) for name in _SCALABLE}
  check(restore(written(layout, layout, params), scalable=True), params)


@_LAYOUTS
def test_more_stacked_layers_than_the_model_are_refused(written, layout):
  params = {name: params_of(name, _SCALABLE[name]) for name in _SCALABLE}
  deeper = dataclasses.replace(_SCALABLE['target'], num_decoder_layers=3)
  params['target'] = params_of('target', deeper)
  paths = written(layout, layout, params)
  wrong = ('decoder/decoder/', 'wants (6, 2, 2, 3)', 'has (6, 3, 2, 3)')
  refused(paths, 'target', *wrong, scalable=True)


@_BOTH
@_LAYOUTS
def test_more_layers_than_the_model_are_refused(written, layout, name):
  depth = _CONFIGS[name].num_decoder_layers
  deeper = dataclasses.replace(_CONFIGS[name], num_decoder_layers=depth + 1)
  more = params_of(name, deeper)
  paths = written(layout, layout, {name: more})
  extra = f'decoder/layers_{depth}/'
  refused(paths, name, extra, 'in the checkpoint, not in the model')


@_BOTH
@_LAYOUTS
def test_a_missing_array_is_named(written, layout, name):
  lacking = params_of(name)
  del lacking['encoder']['layers_0']['mlp']['wi_1']
  paths = written(layout, layout, {name: lacking})
  refused(paths, name, 'encoder/layers_0/mlp/wi_1/kernel: missing')


@_BOTH
@_LAYOUTS
def test_an_array_of_another_shape_is_named(written, layout, name):
  other = params_of(name)
  other['decoder']['logits_dense']['kernel'] = np.ones([3, 11], np.float32)
  paths = written(layout, layout, {name: other})
  refused(
      paths, name, 'decoder/logits_dense/kernel: the model wants', '(3, 11)'
  )


@_BOTH
@pytest.mark.parametrize('lost', ['', '.zarray', '0.0'])
def test_lost_files_of_an_array_are_not_zeros(written, name, lost):
  paths = written()
  array = pathlib.Path(paths[name], 'target.encoder.layers_0.mlp.wo.kernel')
  if lost:
    (array / lost).unlink()
  else:
    shutil.rmtree(array)
  refused(paths, name, array.name)


@_BOTH
@_LAYOUTS
def test_a_checkpoint_whose_save_did_not_end_is_refused(written, layout, name):
  paths = written(layout, layout)
  if layout == 'legacy':
    os.remove(f'{paths[name]}/checkpoint')
  else:
    shutil.rmtree(f'{paths[name]}/state')
  refused(paths, name)


@_BOTH
def test_the_folder_of_several_checkpoints_is_refused(written, name):
  paths = written()
  step = pathlib.Path(paths[name]).name
  paths[name] = str(pathlib.Path(paths[name]).parent)
  refused(paths, name, f'holds {step}: name one')


@_BOTH
def test_a_directory_that_is_no_checkpoint_is_refused(written, tmp_path, name):
  paths = written()
  paths[name] = str(tmp_path)
  refused(paths, name)


def test_a_draft_without_parameters_needs_no_checkpoint(written):
  from t5x_specdec import checkpoints

  paths = written()
  state = pair_initializer(scalable=False).global_train_state_shape
  target = checkpoints.PairCheckpointManager._split(state)[0]
  manager = checkpoints.PairCheckpointManager(
      paths['target'], target, partitioner()
  )
  restored = manager.restore(path=paths['target'])
  manager.close()
  expected = flat(params_of('target'))
  assert flat(restored.params).keys() == expected.keys()
  for path, leaf in flat(restored.params).items():
    np.testing.assert_array_equal(leaf, expected[path], err_msg=path)
  with pytest.raises(ValueError, match='target checkpoint .*does not fit'):
    checkpoints.PairCheckpointManager(
        paths['draft'], target, partitioner()
    ).restore(path=paths['draft'])
  with pytest.raises(ValueError, match='draft_restore_cfg, or give'):
    checkpoints.PairCheckpointManager(paths['target'], state, partitioner())


def test_a_model_without_draft_is_told_to_reorder_gin_files(written):
  from t5x import utils

  from t5x_specdec import checkpoints

  paths = written()
  state = pair_initializer(scalable=False).global_train_state_shape
  target = checkpoints.PairCheckpointManager._split(state)[0]
  config = utils.RestoreCheckpointConfig(path=paths['draft'], mode='specific')
  with pytest.raises(ValueError, match='after the target'):
    checkpoints.PairCheckpointManager(
        paths['target'], target, partitioner(), draft_restore_cfg=config
    )


_TF_NORMS = {
    'pre_attention_layer_norm': 0,
    'pre_self_attention_layer_norm': 0,
    'pre_cross_attention_layer_norm': 1,
}


def write_tensorflow(folder: pathlib.Path, params) -> str:
  """Writes the names that Mesh TensorFlow's T5 gave its variables."""
  import tensorflow as tf

  arrays = {'global_step': np.asarray(5, np.int64)}
  for path, leaf in flat(params).items():
    stack, *rest = path.split('/')
    if stack == 'token_embedder':
      name = 'shared/embedding'
    elif rest[0] == 'relpos_bias':
      name = f'{stack}/block_000/layer_000/SelfAttention/'
      name += 'relative_attention_bias'
    elif rest[0] == 'logits_dense':
      name = 'decoder/logits/kernel'
    elif rest[0].endswith('_norm'):
      name = f'{stack}/final_layer_norm/scale'
    else:
      layer, module, leaf_name = rest[0], rest[1], rest[2]
      block = f'{stack}/block_{int(layer[7:]):03}'
      last = 2 if stack == 'decoder' else 1
      if module == 'mlp':
        name = f'{block}/layer_{last:03}/DenseReluDense/{leaf_name}/kernel'
      elif module.endswith('norm'):
        norm = _TF_NORMS.get(module, last)
        name = f'{block}/layer_{norm:03}/layer_norm/scale'
      else:
        cross = module == 'encoder_decoder_attention'
        kind = 'EncDecAttention' if cross else 'SelfAttention'
        short = {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}[leaf_name]
        name = f'{block}/layer_{int(cross):03}/{kind}/{short}'
    arrays[name] = leaf
  folder.mkdir(exist_ok=True)
  prefix = str(folder / 'model.ckpt-5')
  tf.raw_ops.SaveV2(
      prefix=prefix,
      tensor_names=list(arrays),
      shape_and_slices=[''] * len(arrays),
      tensors=[tf.constant(x) for x in arrays.values()],
  )
  return prefix


@_BOTH
def test_tensorflow_checkpoints(written, tmp_path, name):
  paths = written()
  paths[name] = write_tensorflow(tmp_path / 'tf', params_of(name))
  check(restore(paths))


@_BOTH
def test_tensorflow_checkpoints_are_compared_too(written, tmp_path, name):
  depth = _CONFIGS[name].num_decoder_layers
  deeper = dataclasses.replace(_CONFIGS[name], num_decoder_layers=depth + 1)
  paths = written()
  paths[name] = write_tensorflow(tmp_path / 'tf', params_of(name, deeper))
  refused(paths, name, f'decoder/layers_{depth}/', 'not in the model')
