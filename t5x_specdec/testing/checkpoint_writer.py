# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes T5X checkpoint directories without T5X, for tests and demos.

The layout is T5X's own from before Orbax, which T5X still restores by default:
one msgpack file `checkpoint` that holds the state's tree, and beside it one
zarr array per parameter, which the tree points to by a TensorStore spec.
"""

from collections.abc import Mapping
import os
import shutil
import time
from typing import Any

from flax import serialization
from flax import traverse_util
import jax.numpy as jnp
import numpy as np
import tensorstore as ts

# T5X's number for the layout in which bfloat16 arrays are stored as such.
_LAYOUT_VERSION = 3


def write_checkpoint(
    directory: str | os.PathLike[str],
    params: Mapping[str, Any],
    *,
    step: int,
    dtype: str | None = 'bfloat16',
) -> str:
  """Writes parameters as `directory/checkpoint_<step>/`.

  Stock T5X restores the result for inference (`utils.RestoreCheckpointConfig`
  with `path` set to the returned path), and so does
  `t5x_specdec.checkpoint_reader`. It holds no optimizer state.

  Args:
    directory: the parent, created where missing.
    params: nested dict of arrays in T5X's parameter tree (T5X's `target`).
    step: the training step recorded and named, in [0, 2**31).
    dtype: 'float32' or 'bfloat16' casts the floating point arrays; None stores
      them as they are.

  Returns:
    The path of the checkpoint, which appears there only once it is complete.

  Raises:
    ValueError: a step or dtype out of range, or no parameters.
    FileExistsError: the step has been written already.
  """
  if not 0 <= step < 2**31:
    raise ValueError(f'step must be in [0, 2**31), not {step}')
  if dtype not in (None, 'float32', 'bfloat16'):
    raise ValueError(
        f"dtype must be 'float32', 'bfloat16' or None, not {dtype!r}"
    )
  flat = traverse_util.flatten_dict(serialization.to_state_dict(params))
  if not flat:
    raise ValueError('params is empty: there is nothing to write')
  final = os.path.join(os.fspath(directory), f'checkpoint_{step}')
  if os.path.exists(final):
    raise FileExistsError(f'checkpoint exists already: {final}')
  # T5X's own name for a save under way: its readers, and ours, pass it over.
  temporary = f'{final}.tmp-{time.time_ns()}'
  os.makedirs(temporary)
  try:
    specs = {
        key: _write_array(temporary, '.'.join(('target', *key)), value, dtype)
        for key, value in flat.items()
    }
    state = {
        'target': traverse_util.unflatten_dict(specs),
        'state': {'step': np.asarray(step, np.int32)},
    }
    contents = {'version': _LAYOUT_VERSION, 'optimizer': state}
    with open(os.path.join(temporary, 'checkpoint'), 'wb') as file:
      file.write(serialization.msgpack_serialize(contents))
    os.rename(temporary, final)
  except BaseException:
    shutil.rmtree(temporary, ignore_errors=True)
    raise
  return final


def _write_array(
    directory: str, name: str, value: Any, dtype: str | None
) -> dict[str, Any]:
  """Writes one array and returns the spec that the msgpack points to it by."""
  array = np.asarray(value)
  if dtype is not None and jnp.issubdtype(array.dtype, jnp.floating):
    array = array.astype(jnp.dtype(dtype))
  spec = {
      'driver': 'zarr',
      'dtype': array.dtype.name,
      'kvstore': {'driver': 'file', 'path': f'{name}/'},
      'metadata': {
          'shape': list(array.shape),
          'chunks': [max(1, size) for size in array.shape],
          'compressor': {'id': 'gzip', 'level': 1},
      },
  }
  # The spec that is kept has a relative path, so that the directory can move.
  path = os.path.join(os.path.abspath(directory), name, '')
  store = ts.open(
      {**spec, 'kvstore': {'driver': 'file', 'path': path}}, create=True
  )
  store.result().write(array).result()
  return spec
