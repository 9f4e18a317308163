# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of a model in training: `latest.npz` goes on, `best.npz` is used."""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import Any

import numpy as np

from t5x_specdec import parameters
from t5x_specdec.parameters import PyTree


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes named arrays; whoever reads sees the old file or the new one."""
  part = path.with_suffix('.part')
  with part.open('wb') as file:
    np.savez(file, allow_pickle=False, **arrays)
  os.replace(part, path)


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
  with np.load(path) as file:
    flat = {
        tuple(name.split('/')[1:]): file[name]
        for name in file.files
        if name.startswith('params/')
    }
    return parameters.unflatten(flat), int(file['step'])


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
  with np.load(work / folder / 'latest.npz') as file:
    steps, minutes = int(file['step']), float(file['elapsed']) / 60.0
  if recipe['start']:
    before = record(work, recipe['start'])
    steps, minutes = steps + before['steps'], minutes + before['minutes']
  return {'steps': steps, 'minutes': minutes, 'recipe': recipe}
