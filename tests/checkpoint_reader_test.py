"""Both T5X layouts are read exactly, and what is damaged is refused by name."""

from collections.abc import Callable
import dataclasses
import logging
import os
import pathlib
import pickle
import re
import runpy
import shutil
from typing import Any

from flax import serialization
from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore as ts

from t5x_specdec import checkpoint_reader
from t5x_specdec.testing import checkpoint_writer

_DATA = pathlib.Path(__file__).parent / 'data'
_LAYOUTS = ('legacy', 'orbax')
_ARRAY = 'target.decoder.logits.kernel'

Tree = dict[str, Any]


def _params() -> Tree:
  random = np.random.default_rng(0)
  return {
      'decoder': {
          'logits': {'kernel': random.normal(size=(6, 4)).astype(np.float32)},
          'norm': {'scale': np.ones(4, np.float32)},
          # Equal to zarr's fill value, which a writer may want to skip.
          'zeros': {'kernel': np.zeros((4, 4), np.float32)},
      },
      'embedding': random.normal(size=(8, 4)).astype(np.float32),
  }


def _same(actual: Any, expected: Any, dtype: Any = None) -> None:
  actual, expected = (
      traverse_util.flatten_dict(serialization.to_state_dict(tree), sep='/')
      for tree in (actual, expected)
  )
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    value = np.asarray(value)
    value = value if dtype is None else value.astype(jnp.dtype(dtype))
    assert isinstance(actual[name], np.ndarray), name
    assert actual[name].dtype == value.dtype, name
    np.testing.assert_array_equal(actual[name], value, err_msg=name)


def _edit(path: str, change: Callable[[Tree], Any]) -> None:
  """Changes the tree in the msgpack file of a legacy checkpoint."""
  file = pathlib.Path(path, 'checkpoint')
  contents = serialization.msgpack_restore(file.read_bytes())
  contents = change(contents) or contents
  file.write_bytes(serialization.msgpack_serialize(contents))


def _kernel(contents: Tree) -> Tree:
  return contents['optimizer']['target']['decoder']['logits']['kernel']


def _refused(
    path: Any, *parts: str, kind: type[Exception] = ValueError
) -> None:
  """Asserts that reading is refused in one line that holds all the parts."""
  with pytest.raises(kind) as caught:
    checkpoint_reader.read_checkpoint(path)
  message = str(caught.value)
  assert '\n' not in message
  for part in (str(path), *parts):
    assert part in message


def _rewrite(file: pathlib.Path, data: bytes) -> None:
  assert file.is_file()
  file.write_bytes(data)


@pytest.fixture(name='path')
def _path(tmp_path: pathlib.Path) -> str:
  """A legacy checkpoint, written by us."""
  return checkpoint_writer.write_checkpoint(
      tmp_path / 'model', _params(), step=12, dtype='float32'
  )


@pytest.fixture(name='orbax')
def _orbax(tmp_path: pathlib.Path) -> pathlib.Path:
  """An Orbax checkpoint to damage, written by stock T5X."""
  shutil.copytree(_DATA / 'orbax_checkpoint', tmp_path / 'orbax')
  return tmp_path / 'orbax' / 'checkpoint_7'


# What stock T5X wrote.


@pytest.mark.parametrize('layout', _LAYOUTS)
@pytest.mark.parametrize('dtype', [None, 'float32', 'bfloat16'])
def test_reads_what_t5x_wrote(layout: str, dtype: str | None):
  parent = _DATA / f'{layout}_checkpoint'
  checkpoint = checkpoint_reader.read_checkpoint(parent, dtype=dtype)
  with np.load(_DATA / 'checkpoint_arrays.npz') as arrays:
    expected = traverse_util.unflatten_dict(dict(arrays), sep='/')
  stored = 'bfloat16' if layout == 'legacy' else 'float32'
  _same(checkpoint.params, expected, dtype or stored)
  assert len(jax.tree.leaves(checkpoint.params)) == 29
  assert checkpoint.step == 7
  assert checkpoint.layout == layout
  assert checkpoint.path == str(parent / 'checkpoint_7')
  with pytest.raises(dataclasses.FrozenInstanceError):
    checkpoint.step = 8  # pyright: ignore[reportAttributeAccessIssue]


# What we write.


@pytest.mark.parametrize('dtype', [None, 'float32', 'bfloat16'])
def test_roundtrip(tmp_path: pathlib.Path, dtype: str | None):
  params = _params()
  params['decoder']['norm'] = {'scale': jnp.ones(4, jnp.bfloat16)}
  params['count'] = np.arange(3, dtype=np.int32)
  params['scalar'] = np.float32(0.1)
  path = checkpoint_writer.write_checkpoint(
      tmp_path, params, step=0, dtype=dtype
  )
  assert path == str(tmp_path / 'checkpoint_0')
  assert os.listdir(tmp_path) == ['checkpoint_0']
  checkpoint = checkpoint_reader.read_checkpoint(path)
  count = params.pop('count'), checkpoint.params.pop('count')
  _same(checkpoint.params, params, dtype)
  _same({'count': count[1]}, {'count': count[0]})
  assert checkpoint.step == 0
  assert checkpoint.layout == 'legacy'


def test_reader_casts_as_numpy_does(path: str):
  checkpoint = checkpoint_reader.read_checkpoint(path, dtype='bfloat16')
  _same(checkpoint.params, _params(), 'bfloat16')


def test_writer_refuses(tmp_path: pathlib.Path):
  write = checkpoint_writer.write_checkpoint
  with pytest.raises(ValueError, match='step must be in .* not -1'):
    write(tmp_path, _params(), step=-1)
  with pytest.raises(ValueError, match="dtype must be .* not 'float16'"):
    write(tmp_path, _params(), step=1, dtype='float16')
  with pytest.raises(ValueError, match='params is empty'):
    write(tmp_path, {}, step=1)
  path = write(tmp_path, _params(), step=1)
  with pytest.raises(FileExistsError, match=re.escape(path)):
    write(tmp_path, _params(), step=1)


def test_a_write_that_fails_leaves_nothing(tmp_path: pathlib.Path):
  with pytest.raises((TypeError, ValueError)):
    checkpoint_writer.write_checkpoint(
        tmp_path, {'a': np.ones(2), 'b': np.array([None])}, step=1
    )
  assert not list(tmp_path.iterdir())


# Which checkpoint is read.


def test_highest_step_is_read(tmp_path: pathlib.Path):
  for step in (9, 10, 2):
    params = {'x': np.full(3, step, np.float32)}
    checkpoint_writer.write_checkpoint(tmp_path, params, step=step)
  checkpoint = checkpoint_reader.read_checkpoint(str(tmp_path))
  assert checkpoint.step == 10
  assert checkpoint.path == str(tmp_path / 'checkpoint_10')
  assert (checkpoint.params['x'] == 10).all()
  nine = checkpoint_reader.read_checkpoint(tmp_path / 'checkpoint_9')
  assert nine.step == 9


def test_unfinished_saves_are_passed_over(
    path: str, caplog: pytest.LogCaptureFixture
):
  parent = pathlib.Path(path).parent
  names = (
      'checkpoint_13.tmp-1700000000',
      'checkpoint_14.orbax-checkpoint-tmp',
      'checkpoint_15.orbax-checkpoint-tmp-1700000000',
  )
  for name in names:
    shutil.copytree(path, parent / name)
  (parent / 'checkpoint_16' / 'state').mkdir(parents=True)
  (parent / 'checkpoint_latest').write_text('17')
  with caplog.at_level(logging.WARNING):
    assert checkpoint_reader.read_checkpoint(parent).step == 12
  assert [record.getMessage() for record in caplog.records] == [
      f'{parent / "checkpoint_16"}: passed over, its save was not completed'
  ]
  for name in names:
    _refused(parent / name, 'the temporary directory of an unfinished save')
  shutil.rmtree(path)
  _refused(parent, 'not a complete T5X checkpoint', *names, 'checkpoint_16')


def test_a_checkpoint_may_have_any_name(path: str, tmp_path: pathlib.Path):
  moved = tmp_path / 'best'
  os.rename(path, moved)
  checkpoint = checkpoint_reader.read_checkpoint(moved)
  _same(checkpoint.params, _params())
  assert checkpoint.step == 12


def test_directories_without_a_checkpoint(tmp_path: pathlib.Path):
  missing = tmp_path / 'missing'
  reason = 'no such checkpoint directory'
  _refused(missing, reason, kind=FileNotFoundError)
  file = tmp_path / 'file'
  file.write_text('')
  _refused(file, reason, kind=FileNotFoundError)
  empty = tmp_path / 'checkpoint_3'
  empty.mkdir()
  _refused(empty, 'not a complete T5X checkpoint')
  _refused('gs://bucket/checkpoint_3', 'only local directories are read')


def test_dtype_is_checked(path: str):
  with pytest.raises(ValueError, match="dtype must be .* not 'float16'"):
    checkpoint_reader.read_checkpoint(path, dtype='float16')


# What stands in the tree of the legacy layout.


def test_optimizer_states_are_not_read(path: str):
  def change(contents: Tree) -> None:
    lost = {**_kernel(contents), 'kvstore': {'driver': 'file', 'path': 'lost/'}}
    contents['optimizer']['state']['param_states'] = {'kernel': {'m': lost}}
    contents['optimizer']['flax_mutables'] = {'cache': lost}

  _edit(path, change)
  _same(checkpoint_reader.read_checkpoint(path).params, _params())


@pytest.mark.parametrize(
    'kvstore',
    [
        {'driver': 'gcs', 'bucket': 't5x-dummy-bucket', 'path': f'{_ARRAY}/'},
        {
            'driver': 'gcs',
            'bucket': 'b',
            'path': f'runs/1/checkpoint_12/{_ARRAY}/',
        },
        {'driver': 'gfile', 'path': f'/elsewhere/checkpoint_12/{_ARRAY}'},
        {'driver': 'file'},
    ],
)
def test_arrays_are_sought_in_the_checkpoint(path: str, kvstore: Tree):
  def change(contents: Tree) -> None:
    _kernel(contents)['kvstore'] = kvstore
    if 'path' not in kvstore:  # Before TensorStore 0.1.14.
      _kernel(contents)['path'] = _ARRAY

  _edit(path, change)
  _same(checkpoint_reader.read_checkpoint(path).params, _params())


def test_tree_without_a_version(path: str):
  _edit(path, lambda contents: contents['optimizer'])
  checkpoint = checkpoint_reader.read_checkpoint(path)
  _same(checkpoint.params, _params())
  assert checkpoint.step == 12


def test_order_of_keys_does_not_matter(path: str):
  _edit(path, lambda contents: dict(reversed(contents.items())))
  _same(checkpoint_reader.read_checkpoint(path).params, _params())


def test_arrays_may_stand_in_the_tree(path: str):
  value = _params()['embedding']

  def change(contents: Tree) -> None:
    contents['optimizer']['target']['embedding'] = value

  _edit(path, change)
  shutil.rmtree(pathlib.Path(path, 'target.embedding'))
  read = checkpoint_reader.read_checkpoint
  _same(read(path).params, _params())
  _same(read(path, dtype='bfloat16').params, _params(), 'bfloat16')


def test_step_may_stand_in_the_name_alone(path: str, tmp_path: pathlib.Path):
  _edit(path, lambda contents: contents['optimizer'].pop('state') and None)
  assert checkpoint_reader.read_checkpoint(path).step == 12
  moved = tmp_path / 'best'
  os.rename(path, moved)
  _refused(moved, "no 'state.step', nor a step in its name")


# Damage to the legacy layout.


def test_missing_arrays_are_refused(path: str):
  shutil.rmtree(pathlib.Path(path, _ARRAY))
  _refused(path, f'cannot read array {_ARRAY}', 'does not exist')


def test_missing_chunks_are_refused(path: str):
  """Also where there are several, and where they held the fill value."""
  for name in (_ARRAY, 'target.decoder.zeros.kernel'):
    folder = pathlib.Path(path, name)
    shutil.rmtree(folder)
    spec = {
        'driver': 'zarr',
        'kvstore': {'driver': 'file', 'path': f'{folder}/'},
        'dtype': 'float32',
        'metadata': {'chunks': [2, 2]},
    }
    keys = name.split('.')[1:]
    value = _params()[keys[0]][keys[1]][keys[2]]
    ts.open(spec, create=True, shape=value.shape).result().write(value).result()
    _same(checkpoint_reader.read_checkpoint(path).params, _params())
    kept = (folder / '1.1').read_bytes()
    (folder / '1.1').unlink()
    _refused(path, f'cannot read array {name}', '1.1', 'missing')
    (folder / '1.1').write_bytes(kept)


@pytest.mark.parametrize('compressor', [{'id': 'gzip', 'level': 1}, None])
def test_damaged_chunks_are_refused(path: str, compressor: Tree | None):
  folder = pathlib.Path(path, 'target.embedding')
  shutil.rmtree(folder)
  value = _params()['embedding']
  spec = {
      'driver': 'zarr',
      'kvstore': {'driver': 'file', 'path': f'{folder}/'},
      'metadata': {'compressor': compressor},
  }
  store = ts.open(spec, create=True, shape=value.shape, dtype=ts.float32)
  store.result().write(value).result()
  chunk = folder / '0.0'
  whole = chunk.read_bytes()
  # gzip ends in 8 bytes of checksum and length, which hold no values.
  for size in (0, 1, len(whole) // 2, len(whole) - 9):
    _rewrite(chunk, whole[:size])
    _refused(path, 'cannot read array target.embedding')
  if compressor:
    middle = len(whole) // 2
    flipped = bytes([whole[middle] ^ 1])
    _rewrite(chunk, whole[:middle] + flipped + whole[middle + 1 :])
    _refused(path, 'cannot read array target.embedding')
  _rewrite(chunk, whole)
  _same(checkpoint_reader.read_checkpoint(path).params, _params())


def test_damaged_array_metadata_is_refused(path: str):
  _rewrite(pathlib.Path(path, _ARRAY, '.zarray'), b'{"zarr_format"')
  _refused(path, f'cannot read array {_ARRAY}')


@pytest.mark.parametrize(
    ('changed', 'reason'),
    [
        ({'metadata': {'shape': [6, 5]}}, 'shape'),
        ({'metadata': {}}, 'shape'),
        ({'dtype': 'bfloat16'}, 'float32'),
        ({'driver': 'n5'}, 'not a zarr array of this checkpoint'),
        ({'kvstore': {'driver': 'file', 'path': '../..'}}, 'not a zarr array'),
        ({'kvstore': {'driver': 'file'}}, 'path'),
        ({'kvstore': None}, 'NoneType'),
    ],
)
def test_specs_that_do_not_fit_are_refused(
    path: str, changed: Tree, reason: str
):
  _edit(path, lambda contents: _kernel(contents).update(changed))
  _refused(path, f'cannot read array {_ARRAY}', reason)


@pytest.mark.parametrize('value', [None, 'kernel', [1.0]])
def test_leaves_that_are_no_arrays_are_refused(path: str, value: Any):
  def change(contents: Tree) -> None:
    contents['optimizer']['target']['decoder']['logits']['kernel'] = value

  _edit(path, change)
  _refused(path, f'cannot read array {_ARRAY}', 'not an array but')


def test_bfloat16_as_uint16_is_refused(tmp_path: pathlib.Path):
  """As in T5X's version 2; the numbers would be taken for weights."""
  path = checkpoint_writer.write_checkpoint(
      tmp_path, {'x': np.arange(4, dtype=np.uint16)}, step=1
  )
  _refused(path, 'cannot read array target.x', 'bfloat16 as uint16')


def test_trees_that_cannot_be_parsed_are_refused(path: str):
  file = pathlib.Path(path, 'checkpoint')
  whole = file.read_bytes()
  for data in (b'', whole[:1], whole[: len(whole) // 2], whole[:-1]):
    _rewrite(file, data)
    _refused(path, 'not a msgpack file that T5X wrote')
  for data in (b'\xc1' * 9, serialization.msgpack_serialize([1])):
    _rewrite(file, data)
    _refused(path, 'not a msgpack file that T5X wrote')
  _rewrite(file, b'model_checkpoint_path: "model.ckpt-12"\n')
  _refused(path, 'names a TensorFlow checkpoint')


def test_trees_without_parameters_are_refused(path: str):
  for change in (
      lambda contents: contents['optimizer'].pop('target') and None,
      lambda contents: {'optimizer': {'target': {}}},
      lambda contents: {'optimizer': {'target': 1}},
      lambda contents: {'version': 3},
  ):
    _edit(path, change)
    _refused(path, "holds no parameters (no 'target')")
    shutil.rmtree(path)
    checkpoint_writer.write_checkpoint(
        pathlib.Path(path).parent, _params(), step=12
    )
  _edit(path, lambda contents: {'optimizer': 3})
  _refused(path, "'optimizer' is not the tree of a train state")


class _Trap:

  def __reduce__(self):
    return os.mkdir, (os.environ['TRAP'],)


@pytest.mark.parametrize('place', ['checkpoint', f'{_ARRAY}/0.0'])
def test_nothing_is_unpickled(
    path: str,
    place: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
):
  monkeypatch.setenv('TRAP', str(tmp_path / 'sprung'))
  _rewrite(pathlib.Path(path, place), pickle.dumps(_Trap()))
  _refused(path)
  assert not (tmp_path / 'sprung').exists()


# Damage to the Orbax layout.


def test_orbax_data_that_is_missing_is_refused(orbax: pathlib.Path):
  (data,) = (orbax / 'state' / 'd').iterdir()
  whole = data.read_bytes()
  data.unlink()
  _refused(orbax, 'cannot read array target.', data.name)
  data.write_bytes(whole[: len(whole) // 2])
  _refused(orbax, 'cannot read array target.', data.name)
  data.write_bytes(whole[:-1] + b'\0')
  _refused(orbax, 'cannot read array target.')


def test_orbax_chunks_that_are_missing_are_refused(orbax: pathlib.Path):
  """Where the database is whole, as after a merge that lost a process."""
  base = {'driver': 'file', 'path': f'{orbax}/state/'}
  store = ts.KvStore.open({'driver': 'ocdbt', 'base': base}).result()
  name = 'target.token_embedder.embedding'
  assert f'{name}/0.0'.encode() in store.list().result()
  store.delete_range(ts.KvStore.KeyRange(f'{name}/0.0', f'{name}/0.1')).result()
  _refused(orbax, f'cannot read array {name}', 'missing')


def test_orbax_database_that_is_missing_is_refused(orbax: pathlib.Path):
  manifest = orbax / 'state' / 'manifest.ocdbt'
  _rewrite(manifest, manifest.read_bytes()[:50])
  _refused(orbax, 'cannot read array target.', 'manifest.ocdbt')
  manifest.unlink()
  _refused(orbax, 'cannot read array target.', 'does not exist')


@pytest.mark.parametrize(
    'data',
    [
        b'',
        b'{"tree_metadata": {"x": {}}}',
        b'{}',
        b'[]',
        b'\xff',
        b'{"tree_metadata": {}, "use_zarr3": true}',
    ],
)
def test_orbax_trees_that_cannot_be_parsed_are_refused(
    orbax: pathlib.Path, data: bytes
):
  _rewrite(orbax / 'state' / '_METADATA', data)
  _refused(orbax, 'not a tree that T5X wrote by Orbax')


def test_orbax_trees_of_something_else_are_refused(orbax: pathlib.Path):
  file = orbax / 'state' / '_METADATA'
  text = file.read_text()
  file.write_text(text.replace('jax.Array', 'str'))
  _refused(orbax, 'cannot read array target.', 'not an array but str')
  file.write_text(text.replace('"key": "target"', '"key": "params"'))
  _refused(orbax, "holds no parameters (no 'target')")


def test_orbax_without_its_tree_is_no_checkpoint(orbax: pathlib.Path):
  (orbax / 'state' / '_METADATA').unlink()
  _refused(orbax, 'not a complete T5X checkpoint')


def test_orbax_tree_in_msgpack_is_read(path: str):
  """As it was before `_METADATA`; arrays lie in folders of their own."""
  state = pathlib.Path(path, 'state')
  state.mkdir()
  for folder in pathlib.Path(path).glob('target.*'):
    folder.rename(state / folder.name)
  pathlib.Path(path, 'checkpoint').unlink()
  keys = traverse_util.flatten_dict({'target': _params()})
  leaves = {key: 'PLACEHOLDER://' + '.'.join(key) for key in keys}
  tree = traverse_util.unflatten_dict(leaves) | {'state': {'step': 5}}
  file = state / 'checkpoint'
  file.write_bytes(serialization.msgpack_serialize(tree))
  checkpoint = checkpoint_reader.read_checkpoint(path)
  _same(checkpoint.params, _params())
  assert checkpoint.layout == 'orbax'
  assert checkpoint.step == 5
  (state / _ARRAY / '0.0').unlink()
  _refused(path, f'cannot read array {_ARRAY}', 'missing')


# With T5X at hand.


@pytest.fixture(name='stock', scope='module')
def _stock() -> Callable[..., Any]:
  """The functions that save tiny states with stock T5X."""
  return runpy.run_path(str(_DATA / 'make_checkpoints.py'))


@pytest.mark.t5x
@pytest.mark.parametrize('layout', _LAYOUTS)
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('optimizer', [False, True])
def test_reads_what_stock_t5x_saves(
    stock: Any, tmp_path: pathlib.Path, layout: str, dtype: str, optimizer: bool
):
  made = stock['tiny_state'](optimizer)
  path = stock['save'](str(tmp_path), layout, dtype, made)
  checkpoint = checkpoint_reader.read_checkpoint(path)
  # Stock's save_dtype has no effect in the Orbax layout, so no dtype is asked.
  _same(
      jax.tree.map(lambda x: x.astype(np.float32), checkpoint.params),
      made[0].state_dict()['target'],
  )
  if layout == 'legacy':
    dtypes = {str(x.dtype) for x in jax.tree.leaves(checkpoint.params)}
    assert dtypes == {dtype}
  assert checkpoint.layout == layout
  assert checkpoint.step == 7


@pytest.mark.t5x
@pytest.mark.parametrize('use_orbax', [True, False])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_stock_t5x_restores_what_we_write(
    stock: Any, tmp_path: pathlib.Path, use_orbax: bool, dtype: str
):
  """By the calls of stock's infer.py, where use_orbax=True is the default."""
  from t5x import utils

  state, initializer, partitioner = stock['tiny_state'](False)
  params = state.state_dict()['target']
  path = checkpoint_writer.write_checkpoint(
      tmp_path, params, step=12, dtype=dtype
  )
  config = utils.RestoreCheckpointConfig(path=path, mode='specific')
  config.strict = False
  restored, _ = utils.create_checkpoint_manager_and_restore(
      initializer,
      partitioner,
      config,
      path,
      jax.random.PRNGKey(1),
      use_orbax=use_orbax,
  )
  assert restored is not None
  actual = jax.tree.map(np.asarray, restored.state_dict()['target'])
  _same(actual, params, dtype)
  assert restored.step == 12
