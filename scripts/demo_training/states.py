# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of a model in training: `latest.npz` goes on, `best.npz` is used."""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
from typing import Any, BinaryIO

import numpy as np

from t5x_specdec import parameters
from t5x_specdec.parameters import PyTree


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
  """A file to write; whoever reads `path` sees the old one or the new one."""
  part = path.with_name(f'{path.name}.part')
  try:
    with part.open('wb') as file:
      yield file
    os.replace(part, path)
  except BaseException:
    part.unlink(missing_ok=True)  # it may be what fills the disk
    raise


def write_text(path: pathlib.Path, text: str) -> None:
  """Writes a text in one step, see `replacing`."""
  with replacing(path) as file:
    file.write(text.encode('utf-8'))


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes named arrays in one step, see `replacing`."""
  with replacing(path) as file:
    np.savez(file, allow_pickle=False, **arrays)


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads what `write` wrote; ValueError where it is damaged."""
  try:
    with np.load(path, allow_pickle=False) as file:
      return dict(file)
  except FileNotFoundError:
    raise
  # Whatever a damaged archive makes zipfile, zlib or NumPy raise.
  except Exception as error:
    raise ValueError(f'{path} cannot be read: {error!r}') from error


def named_params(params: PyTree, step: int) -> dict[str, np.ndarray]:
  """Returns parameters and step as `load_params` reads them back."""
  named = {
      'params/' + '/'.join(path): np.asarray(leaf)
      for path, leaf in parameters.flatten(params).items()
  }
  return {**named, 'step': np.asarray(step, np.int64)}


def load_params(path: pathlib.Path) -> tuple[PyTree, int]:
  """Reads parameters and step of a model in training.

  Args:
    path: `latest.npz` or `best.npz` of its folder.

  Returns:
    The T5X parameter tree of float32 arrays, and the step.
  """
  arrays = read(path)
  flat = {
      tuple(name.split('/')[1:]): leaf
      for name, leaf in arrays.items()
      if name.startswith('params/')
  }
  return parameters.unflatten(flat), int(arrays['step'])


def record(work: pathlib.Path, folder: str) -> dict[str, Any]:
  """Returns what is known of how a model was trained.

  Args:
    work: folder of the training results.
    folder: folder below it of the model's training.

  Returns:
    Steps and minutes, those of the trainings it started from included, and the
    recipe of the last.
  """
  recipe = json.loads((work / folder / 'recipe.json').read_text())
  arrays = read(work / folder / 'latest.npz')
  steps, minutes = int(arrays['step']), float(arrays['elapsed']) / 60.0
  if recipe['start']:
    before = record(work, recipe['start'])
    steps, minutes = steps + before['steps'], minutes + before['minutes']
  return {'steps': steps, 'minutes': minutes, 'recipe': recipe}
