# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the parameters of a T5X checkpoint without T5X.

T5X has written two layouts of a `checkpoint_<step>` directory:

- legacy: a msgpack file `checkpoint` that holds the tree of the train state,
  small leaves inline, and a zarr array in a folder of its own per parameter,
  which the tree points to by a TensorStore spec;
- Orbax: a folder `state` with the tree in `_METADATA` (at first in a msgpack
  file `checkpoint`) and zarr arrays, as a rule inside one OCDBT database.

Both are read with TensorStore alone, array by array, so that a fault is told
with the name of its array, and optimizer states are not touched. Nothing is
unpickled. A chunk that is not there is an error: zarr lets writers leave out
chunks equal to the fill value, but T5X and Orbax store them all, and a file
that was lost would otherwise come back as zeros. Flipped bits show only where
the layout has checksums: gzip's in legacy arrays, none in most of Orbax's.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
from typing import Any, Literal

from flax import serialization
from flax import traverse_util
import jax.numpy as jnp
import numpy as np
import tensorstore as ts

_Key = tuple[str, ...]

_STEP_DIRECTORY = re.compile(r'checkpoint_(\d+)')
# An unfinished save: `.tmp-<seconds>` is T5X's mark, the other one Orbax's.
_TEMPORARY = re.compile(r'\.(tmp-|orbax-checkpoint-tmp)')
# What points to an array from a tree: T5X's is a dict, Orbax's a string.
_SPEC_KEYS = {'driver', 'kvstore', 'metadata'}
_PLACEHOLDER = 'PLACEHOLDER://'


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A checkpoint's parameters on the host.

  Attributes:
    params: nested dict of numpy arrays in T5X's parameter tree (its `target`).
    step: the training step at which it was saved.
    layout: which of T5X's two layouts it was read from.
    path: the directory it was read from, absolute.
  """

  params: dict[str, Any]
  step: int
  layout: Literal['legacy', 'orbax']
  path: str


def read_checkpoint(
    path: str | os.PathLike[str], *, dtype: str | None = None
) -> Checkpoint:
  """Reads the parameters of a T5X checkpoint of either layout.

  Args:
    path: a local directory: a checkpoint, or the parent of several, of which
      the highest step whose save was completed is read.
    dtype: 'float32' or 'bfloat16' casts the floating point arrays; None leaves
      them as stored.

  Returns:
    The parameters, as numpy arrays, with the step and where they came from.

  Raises:
    FileNotFoundError: there is no such directory.
    ValueError: the directory holds no complete T5X checkpoint, or the tree or
      an array in it is missing, damaged or not of T5X's making. The message is
      one line that names the directory, and the array where there is one.
  """
  if dtype not in (None, 'float32', 'bfloat16'):
    raise ValueError(
        f"dtype must be 'float32', 'bfloat16' or None, not {dtype!r}"
    )
  directory, file = _find(os.fspath(path))
  legacy = file == os.path.join(directory, 'checkpoint')
  state = _legacy_tree(file) if legacy else _orbax_tree(file)
  resolve = functools.partial(
      _legacy_leaf if legacy else _orbax_leaf, os.path.dirname(file)
  )
  target = state.get('target')
  if not isinstance(target, dict) or not target:
    raise ValueError(f"{directory}: holds no parameters (no 'target')")
  params = _read(directory, _flatten({'target': target}), resolve, dtype)
  step = {k: v for k, v in _flatten(state).items() if k == ('state', 'step')}
  return Checkpoint(
      params=traverse_util.unflatten_dict(params)['target'],
      step=_step(directory, _read(directory, step, resolve, None)),
      layout='legacy' if legacy else 'orbax',
      path=directory,
  )


def _find(path: str) -> tuple[str, str]:
  """Returns the checkpoint that `path` is or holds, and its tree's file."""
  if '://' in path:
    raise ValueError(
        f'{path}: only local directories are read; copy the checkpoint first'
    )
  if not os.path.isdir(path):
    raise FileNotFoundError(f'{path}: no such checkpoint directory')
  path = os.path.abspath(path)
  if _TEMPORARY.search(os.path.basename(path)):
    raise ValueError(f'{path}: the temporary directory of an unfinished save')
  # Steps come before the directory's own marks: a model directory of
  # TensorFlow's holds a file named `checkpoint` too.
  names = sorted(n for n in os.listdir(path) if n.startswith('checkpoint_'))
  matches = filter(None, map(_STEP_DIRECTORY.fullmatch, names))
  for match in sorted(matches, key=lambda m: int(m[1]), reverse=True):
    directory = os.path.join(path, match[0])
    if (file := _tree_file(directory)) is not None:
      return directory, file
    logging.getLogger(__name__).warning(
        '%s: passed over, its save was not completed', directory
    )
  if (file := _tree_file(path)) is not None:
    return path, file
  only = f': only {", ".join(names)}' if names else ''
  raise ValueError(
      f'{path}: not a complete T5X checkpoint, nor the parent of one{only}'
  )


def _tree_file(directory: str) -> str | None:
  """Returns the file with the train state's tree, None where no save ended."""
  # A save ends by writing this file or by renaming the directory it is in. The
  # legacy layout's comes last: other files tell that Orbax wrote `checkpoint`.
  names = 'state/checkpoint', 'state/_METADATA', '_METADATA', 'checkpoint'
  files = (os.path.join(directory, name) for name in names)
  return next(filter(os.path.isfile, files), None)


def _legacy_tree(file: str) -> dict[str, Any]:
  """Returns the train state's tree from the file of a legacy checkpoint."""
  contents = _unpack(file)
  # Before the layouts had version numbers the state stood at the top.
  state = contents.get('optimizer', contents)
  if not isinstance(state, dict):
    raise ValueError(f"{file}: 'optimizer' is not the tree of a train state")
  return state


def _legacy_leaf(directory: str, leaf: Any) -> Any:
  """Returns a TensorStore spec for a leaf that points to an array."""
  if not (isinstance(leaf, dict) and leaf.keys() >= _SPEC_KEYS):
    return leaf
  # Before TensorStore 0.1.14 the path stood beside the store, not in it.
  path = leaf['kvstore'].get('path') or leaf['path']
  # Wherever it was written, the array is a folder in the checkpoint's own.
  folder = path.rstrip('/').rpartition('/')[2]
  if leaf['driver'] != 'zarr' or folder in ('', '.', '..'):
    raise ValueError(f'not a zarr array of this checkpoint: {path!r}')
  # Chunks and compression are for the array itself to say.
  return {
      'driver': 'zarr',
      'kvstore': _files(directory, folder),
      'metadata': {'shape': leaf['metadata']['shape']},
      **({'dtype': leaf['dtype']} if 'dtype' in leaf else {}),
  }


def _orbax_tree(file: str) -> dict[str, Any]:
  """Returns the train state's tree from the file of an Orbax checkpoint."""
  if os.path.basename(file) == 'checkpoint':
    return _unpack(file)
  leaves = {}
  try:
    with open(file, encoding='utf-8') as stream:
      metadata = json.load(stream)
    if metadata.get('use_zarr3'):
      raise ValueError('its arrays are zarr3, which T5X does not write')
    for entry in metadata['tree_metadata'].values():
      key = tuple(part['key'] for part in entry['key_metadata'])
      kind = entry['value_metadata']['value_type']
      stored = kind in ('jax.Array', 'np.ndarray', 'scalar')
      leaves[key] = _PLACEHOLDER + '.'.join(key) if stored else kind
    return traverse_util.unflatten_dict(leaves)
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
        f'{file}: not a tree that T5X wrote by Orbax: {_cause(error)}'
    ) from error


def _orbax_leaf(folder: str, leaf: Any) -> Any:
  """Returns a TensorStore spec for a leaf that points to an array."""
  if not (isinstance(leaf, str) and leaf.startswith(_PLACEHOLDER)):
    return leaf
  name = leaf.removeprefix(_PLACEHOLDER)
  store: dict[str, Any] = _files(folder, name)
  if os.path.isfile(os.path.join(folder, 'manifest.ocdbt')):
    store = {'driver': 'ocdbt', 'base': _files(folder, ''), 'path': f'{name}/'}
  return {'driver': 'zarr', 'kvstore': store}


def _files(directory: str, folder: str) -> dict[str, str]:
  return {'driver': 'file', 'path': os.path.join(directory, folder, '')}


def _unpack(file: str) -> dict[str, Any]:
  """Returns the tree in a msgpack file that flax wrote."""
  with open(file, 'rb') as stream:
    data = stream.read()
  if data.startswith(b'model_checkpoint_path'):
    raise ValueError(
        f'{file}: names a TensorFlow checkpoint; only those of T5X are read'
    )
  try:
    contents = serialization.msgpack_restore(data)
    if not isinstance(contents, dict):
      raise ValueError('no tree in it')
  # What is raised depends on where the bytes are broken, so it is all caught.
  except Exception as error:
    raise ValueError(
        f'{file}: not a msgpack file that T5X wrote: {_cause(error)}'
    ) from error
  return contents


def _flatten(tree: Mapping[str, Any]) -> dict[_Key, Any]:
  return traverse_util.flatten_dict(
      tree, is_leaf=lambda _, value: value.keys() >= _SPEC_KEYS
  )


def _read(
    directory: str,
    leaves: Mapping[_Key, Any],
    resolve: Callable[[Any], Any],
    dtype: str | None,
) -> dict[_Key, np.ndarray]:
  """Returns the leaves as arrays, those of a floating type cast."""
  arrays: dict[_Key, Any] = {}
  for key, leaf in leaves.items():
    with _naming(directory, key):
      arrays[key] = _start(resolve(leaf), dtype)
  for key, array in arrays.items():
    with _naming(directory, key):
      if isinstance(array, ts.Future):
        arrays[key] = array.result()
  return arrays


def _start(leaf: Any, dtype: str | None) -> np.ndarray | ts.Future:
  """Returns an array that was inline, or the reading of one that was not."""
  if isinstance(leaf, dict):
    store = ts.open({**leaf, 'fill_missing_data_reads': False}).result()
    if store.dtype == ts.uint16:
      raise ValueError('bfloat16 as uint16, as T5X wrote before 2021-06')
    floating = jnp.issubdtype(store.dtype.numpy_dtype, jnp.floating)
    return (ts.cast(store, dtype) if dtype and floating else store).read()
  if not isinstance(leaf, (np.ndarray, np.generic, int, float)):
    kind = leaf if isinstance(leaf, str) else type(leaf).__name__
    raise ValueError(f'not an array but {kind}')
  array = np.asarray(leaf)
  floating = jnp.issubdtype(array.dtype, jnp.floating)
  return array.astype(jnp.dtype(dtype)) if dtype and floating else array


@contextlib.contextmanager
def _naming(directory: str, key: _Key) -> Iterator[None]:
  """Turns any error of reading an array into one line that names it."""
  try:
    yield
  except Exception as error:
    raise ValueError(
        f'{directory}: cannot read array {".".join(key)}: {_cause(error)}'
    ) from error


def _cause(error: Exception) -> str:
  """Returns an error's first line, without the spec TensorStore appends."""
  lines = str(error).split(' [tensorstore_spec=')[0].splitlines()
  return lines[0] if lines and isinstance(error, ValueError) else repr(error)


def _step(directory: str, leaves: Mapping[_Key, np.ndarray]) -> int:
  """Returns the training step from the state, else from the folder's name."""
  for step in leaves.values():
    if step.size == 1:
      return int(step.item())
  match = _STEP_DIRECTORY.fullmatch(os.path.basename(directory))
  if match is None:
    raise ValueError(f"{directory}: no 'state.step', nor a step in its name")
  return int(match[1])
