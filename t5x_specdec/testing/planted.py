# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pairs of T5-shaped models with a known output and a planted acceptance rate.

For benchmarks only, never as evidence that caches or attention are right: the
decoder's output projections are zero, so what attention computes is thrown
away, while every matrix product runs at full cost. The logits layer is an
associative memory token -> successor, so greedy output is known in advance,
and a draft with other successors for a fraction 1 - alpha of the tokens is
accepted at exactly the rate alpha (up to which tokens the text visits).
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import math
from typing import Any

import numpy as np

from t5x_specdec import parameters
from t5x_specdec.parameters import Path
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config

# The ids that are not ordinary ones: padding (also the start) and EOS.
_SPECIAL = 2


@dataclasses.dataclass(frozen=True)
class PlantedPair:
  """Parameters of target and draft, and what they will do.

  Attributes:
    target_params: T5X tree of the target.
    draft_params: T5X tree of the draft.
    successor: int64[vocab], the target's greedy token after each token.
    draft_successor: int64[vocab], the draft's.
  """

  target_params: PyTree
  draft_params: PyTree
  successor: np.ndarray
  draft_successor: np.ndarray

  def text(self, start: int, length: int) -> list[int]:
    """The target's greedy text of `length` tokens after the token `start`."""
    text = []
    for _ in range(length):
      start = int(self.successor[start])
      text.append(start)
    return text

  def rounds(self, start: int, length: int, gamma: int) -> list[int]:
    """Drafts accepted in each round of greedy speculative decoding.

    Args:
      start: the last token before the text.
      length: tokens of text to generate, without an EOS.
      gamma: drafts per round; fewer where less room is left.

    Returns:
      One number per round; a round emits one token more.
    """
    accepted, token = [], start
    while length > 0:
      room = min(gamma, length - 1)
      n = 0
      while n < room and self.successor[token] == self.draft_successor[token]:
        token = int(self.successor[token])
        n += 1
      token = int(self.successor[token])
      accepted.append(n)
      length -= n + 1
    return accepted


class _Normals:
  """Standard normal arrays, quickly: one block of numbers, read from anywhere.

  Drawing every number of a large model takes longer than to benchmark it. The
  block's length is a prime, so that rows of a matrix longer than the block
  never repeat one another.
  """

  _LENGTH = 4_194_301

  def __init__(self, seed: int):
    self._seed = seed
    rng = np.random.default_rng(seed)
    self._block = rng.standard_normal(self._LENGTH, np.float32)

  def take(self, shape: tuple[int, ...], index: int) -> np.ndarray:
    """The array that belongs to an index, in memory of its own."""
    size, done = math.prod(shape), 0
    at = int(np.random.default_rng([self._seed, index]).integers(self._LENGTH))
    leaf = np.empty(size, np.float32)
    while done < size:
      part = self._block[at : at + size - done]
      leaf[done : done + len(part)] = part
      done, at = done + len(part), 0
    return leaf.reshape(shape)


def random_leaves(
    config: T5Config, *, seed: int, dtype: Any
) -> Iterator[tuple[Path, np.ndarray]]:
  """T5-shaped random parameters, at the scale of T5's own initializers.

  Args:
    config: any shape.
    seed: of the random matrices.
    dtype: of the leaves.

  Yields:
    Path and leaf of one parameter at a time: a benchmark turns each into what
    its framework wants before the next is made.
  """
  normals = _Normals(seed)
  for i, (path, shape) in enumerate(parameters.param_shapes(config).items()):
    if path[-1] == 'scale':
      yield path, np.ones(shape, dtype)
      continue
    leaf = normals.take(shape, i)
    if path[-1] != 'embedding':
      leaf *= shape[0] ** -0.5
    if path[-2] == 'query':
      # T5 folds the attention scale 1/sqrt(head_dim) into this initializer.
      leaf *= config.head_dim**-0.5
    yield path, leaf.astype(dtype, copy=False)


def planted_leaves(
    config: T5Config, successor: np.ndarray, *, seed: int, dtype: Any
) -> Iterator[tuple[Path, np.ndarray]]:
  """The leaves that plant `successor` into `random_leaves` of the same seed.

  Args:
    config: any T5 1.1 shape (untied logits).
    successor: int[vocab], a permutation.
    seed: of `random_leaves`.
    dtype: of the leaves.

  Yields:
    Path and leaf of the parameters that differ: the decoder's output
    projections, which are zero, and the logits layer.
  """
  if config.logits_via_embedding:
    raise ValueError('a planted model needs logits_via_embedding=False')
  shapes = parameters.param_shapes(config)
  for path, shape in shapes.items():
    if path[0] == 'decoder' and path[-2] in ('out', 'wo'):
      yield path, np.zeros(shape, dtype)
  path = parameters.embedding_path(config)
  embedding = _Normals(seed).take(shapes[path], list(shapes).index(path))
  embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
  logits = np.empty(embedding.shape[::-1], np.float32)
  logits[:, successor] = embedding.T
  yield ('decoder', 'logits_dense', 'kernel'), logits.astype(dtype, copy=False)


def planted_params(
    config: T5Config, successor: np.ndarray, *, seed: int, dtype: Any
) -> PyTree:
  """T5-shaped parameters whose greedy next token is `successor[token]`.

  The whole tree at once; see `random_leaves` and `planted_leaves` for one leaf
  at a time.

  Args:
    config: any T5 1.1 shape (untied logits).
    successor: int[vocab], a permutation.
    seed: of the random matrices.
    dtype: of the leaves.

  Returns:
    T5X parameter tree of NumPy arrays.
  """
  planted = dict(planted_leaves(config, successor, seed=seed, dtype=dtype))
  flat = dict(random_leaves(config, seed=seed, dtype=dtype))
  return parameters.unflatten(flat | planted)


def successors(
    vocab_size: int, alpha: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
  """Which token follows which, in the target's mind and in the draft's.

  Args:
    vocab_size: of both.
    alpha: in [0, 1]; round((1 - alpha) * ids) of the ordinary ids, chosen at
      random, have another successor in the draft.
    seed: of the choice.

  Returns:
    Two permutations int64[vocab_size], of one cycle each of the target's
    ordinary ids and the start token 0; EOS follows only itself.

  Raises:
    ValueError: for alpha outside [0, 1].
  """
  if not 0 <= alpha <= 1:
    raise ValueError(f'alpha must be in [0, 1], got {alpha}')
  rng = np.random.default_rng(seed)
  ids = rng.permutation(np.arange(_SPECIAL, vocab_size))
  cycle = np.concatenate([[0], ids])
  successor = np.arange(vocab_size)
  successor[cycle] = np.roll(cycle, -1)
  draft_successor = successor.copy()
  wrong = rng.permutation(ids)[: round((1 - alpha) * len(ids))]
  draft_successor[wrong] = successor[np.roll(wrong, 1)]
  return successor, draft_successor


def planted_pair(
    target: T5Config,
    draft: T5Config,
    *,
    alpha: float,
    seed: int = 0,
    dtype: Any = 'float32',
) -> PlantedPair:
  """A pair that accepts a fraction alpha of the tokens.

  Args:
    target: shape of the target.
    draft: shape of the draft, same vocabulary.
    alpha: in [0, 1], see `successors`.
    seed: of everything random.
    dtype: of the parameters.

  Returns:
    The pair. Texts never reach EOS and visit all other ids before repeating.

  Raises:
    ValueError: for different vocabularies, or alpha outside [0, 1].
  """
  if target.vocab_size != draft.vocab_size:
    raise ValueError(
        f'vocab_size of target ({target.vocab_size}) and draft '
        f'({draft.vocab_size}) differ'
    )
  successor, draft_successor = successors(target.vocab_size, alpha, seed)
  return PlantedPair(
      planted_params(target, successor, seed=seed + 1, dtype=dtype),
      planted_params(draft, draft_successor, seed=seed + 2, dtype=dtype),
      successor,
      draft_successor,
  )
