# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trees of parameters against what a model wants: names both ways, and shapes.

A tree with MORE layers than its model decodes without complaint and wrongly, so
it is refused as well as one that lacks some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from t5x_specdec import parameters
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config


def _first_few(wrong: list[str]) -> str:
  """The first three of what is wrong, and how many more there are."""
  more = f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''
  return '; '.join(wrong[:3]) + more


def check_params(params: PyTree, config: T5Config, model: str) -> None:
  """Checks that a parameter tree is exactly the one the config describes.

  Args:
    params: parameter tree; leaves need only a `shape`.
    config: the network's hyperparameters.
    model: how to call the model in messages, 'target' or 'draft'.

  Raises:
    ValueError: naming the model and up to three offending paths.
  """
  expected = parameters.param_shapes(config)
  flat = parameters.flatten(params)
  found = {path: tuple(np.shape(leaf)) for path, leaf in flat.items()}
  wrong = [
      f'{"/".join(path)}: config wants {shape}, found '
      f'{found.get(path, "nothing")}'
      for path, shape in expected.items()
      if found.get(path) != shape
  ]
  wrong += [
      f'{"/".join(path)}: not in the config, found {shape}'
      for path, shape in found.items()
      if path not in expected
  ]
  if wrong:
    raise ValueError(
        f'{model} params do not fit the {model} config: '
        f'{_first_few(wrong)}'
    )


def _shape(leaf: Any) -> tuple[int, ...] | None:
  """Shape of an array of a checkpoint's tree, None where it does not say."""
  if isinstance(leaf, Mapping):  # TensorStore's spec, in the legacy layout
    return tuple(leaf['metadata']['shape'])
  return tuple(leaf.shape) if hasattr(leaf, 'shape') else None


def check_checkpoint(
    model: str,
    path: str,
    expected: Mapping[str, Any],
    found: Mapping[str, Any],
    may_lack: bool = False,
) -> None:
  """Compares a checkpoint's parameters with its model's.

  Args:
    model: 'target' or 'draft'.
    path: the checkpoint.
    expected: {'decoder/...': leaf}, the model's.
    found: the same of the checkpoint; a leaf's shape may be unknown.
    may_lack: whether arrays that are missing will come from elsewhere.

  Raises:
    ValueError: naming model, path and up to three arrays.
  """
  wrong = []
  for name, leaf in expected.items():
    want = tuple(leaf.shape)
    if name not in found:
      if not may_lack:
        wrong.append(f'{name}: missing, the model wants {want}')
    elif (have := _shape(found[name])) not in (None, want):
      wrong.append(f'{name}: the model wants {want}, the checkpoint has {have}')
  wrong += [
      f'{name}: in the checkpoint, not in the model'
      for name in found
      if name not in expected
  ]
  if wrong:
    raise ValueError(
        f'{model} checkpoint {path}: does not fit the {model} model; '
        f'{_first_few(wrong)}'
    )
