# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of a few fixed shapes, in an order fixed by the seed."""

import dataclasses

import numpy as np
import sentencepiece

from demo_training import data
from demo_training import vocabulary

WIDTHS = (8, 16, 24, 32, 48, 64)


@dataclasses.dataclass(frozen=True)
class Batch:
  """Token ids padded with 0; rows added to fill the batch are all 0.

  Attributes:
    inputs: int32[batch, width], the source, EOS included.
    targets: int32[batch, width], the translation, EOS included.
  """

  inputs: np.ndarray
  targets: np.ndarray


def encode(
    pairs: list[data.Pair], pieces: sentencepiece.SentencePieceProcessor
) -> list[tuple[list[int], list[int]]]:
  """Encodes both sides of every pair and ends them with EOS."""
  sides = [
      [ids + [vocabulary.EOS_ID] for ids in pieces.encode(list(texts))]
      for texts in zip(*pairs)
  ]
  return list(zip(*sides))


class Batches:
  """Cuts encoded pairs into batches of about equally many target tokens.

  A pair goes to the narrowest width of `WIDTHS` that holds both its sides, and
  every batch of a width has the same number of rows, so a jitted step compiles
  once per width.
  """

  def __init__(
      self,
      examples: list[tuple[list[int], list[int]]],
      *,
      tokens: int,
      seed: int,
  ):
    """Sorts the examples into widths.

    Args:
      examples: source and target ids of each pair.
      tokens: target slots of a batch, padding included.
      seed: fixes the order of every epoch.
    """
    self._examples = examples
    self._tokens = tokens
    self._seed = seed
    longest = np.array([max(map(len, example)) for example in examples])
    if longest.max() > WIDTHS[-1]:
      raise ValueError(
          f'a pair has {longest.max()} tokens on a side, more than {WIDTHS[-1]}'
      )
    widths = np.searchsorted(WIDTHS, longest)
    self._members = [np.flatnonzero(widths == i) for i in range(len(WIDTHS))]

  def _rows(self, width: int) -> int:
    return max(1, round(self._tokens / width))

  @property
  def per_epoch(self) -> int:
    """The number of batches that hold every pair once."""
    return sum(
        -(-len(members) // self._rows(width))
        for width, members in zip(WIDTHS, self._members)
    )

  def epoch(self, number: int | None) -> list[tuple[int, np.ndarray]]:
    """Returns width and members of each batch of an epoch.

    Args:
      number: which epoch, for its order; None keeps the order of the pairs.
    """
    result = []
    rng = None if number is None else np.random.default_rng((
        self._seed, number,
    ))
    for width, members in zip(WIDTHS, self._members):
      if rng is not None:
        members = rng.permutation(members)
      rows = self._rows(width)
      result += [
          (width, members[i : i + rows]) for i in range(0, len(members), rows)
      ]
    if rng is not None:
      rng.shuffle(result)
    return result

  def build(self, width: int, members: np.ndarray) -> Batch:
    """Pads the pairs `members` to one batch of a width."""
    arrays = np.zeros((2, self._rows(width), width), np.int32)
    for row, member in enumerate(members):
      for side, ids in enumerate(self._examples[member]):
        arrays[side, row, : len(ids)] = ids
    return Batch(*arrays)
