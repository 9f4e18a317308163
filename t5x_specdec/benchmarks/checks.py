# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether what was timed is right: logits of random weights, and the texts.

A planted model discards what its attention computes, so equal texts say nothing
about it. Before anything is timed, the same shapes with nothing planted score a
short text in every framework, in ours through the caches, one token and a whole
block at a time.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

# Largest difference that rounding explains, of logits that are about standard
# normal: float32 sums in another order, or bfloat16 rounded in other places.
TOLERANCE = {'float32': 1e-3, 'bfloat16': 0.25}

# One row: with two, oneDNN as XLA's CPU backend calls it ends the process.
_ROWS = 1
_INPUT_LEN = 12
_PADDING = 4


@dataclasses.dataclass(frozen=True)
class CheckText:
  """Random ids.

  Attributes:
    inputs: int32[rows, S]; the last ones are padding.
    vocab_size: ids are below it.
  """

  inputs: np.ndarray
  vocab_size: int

  def tokens(self, width: int) -> np.ndarray:
    """Decoder inputs int32[rows, 3 * width]: three blocks."""
    rng = np.random.default_rng(1)
    shape = [_ROWS, 3 * width]
    ids = rng.integers(2, self.vocab_size, shape, dtype=np.int32)
    ids[:, 0] = 0
    return ids


def text(vocab_size: int) -> CheckText:
  """The text that all frameworks score, the same in every process."""
  rng = np.random.default_rng(0)
  shape = [_ROWS, _INPUT_LEN]
  inputs = rng.integers(2, vocab_size, shape, dtype=np.int32)
  inputs[:, -_PADDING:] = 0
  return CheckText(inputs, vocab_size)


def compare_logits(
    logits: dict[tuple[str, str, int], np.ndarray], dtype: str
) -> dict[str, Any]:
  """Compares everybody's logits with ours of one token at a time.

  Args:
    logits: float32[rows, L, vocab] by worker, model and width of the blocks.
    dtype: of the models.

  Returns:
    differences: the largest by 'worker model', or 'ours model blocks of K';
    tolerance; agree: whether all are within it. A NaN is not.
  """
  differences = {}
  for (name, model, width), found in logits.items():
    reference = logits['ours', model, 1]
    if found is reference:
      continue
    key = f'{name} {model}'
    if name == 'ours':
      key += f' blocks of {width}'
    differences[key] = float(np.max(np.abs(found - reference)))
  tolerance = TOLERANCE[dtype]
  agree = all(value <= tolerance for value in differences.values())
  return {
      'differences': differences,
      'tolerance': tolerance,
      'agree': agree,
  }


def identical(tokens: list, reference: list | None) -> bool | None:
  """Whether texts are those of the reference; None where there is none."""
  if reference is None:
    return None
  return bool(np.array_equal(np.array(tokens), np.array(reference)))
