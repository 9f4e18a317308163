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

import dataclasses
from typing import Any

import numpy as np

from t5x_specdec import parameters
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config

# The ids that no text visits as a token: padding (also the start) and EOS.
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


def planted_params(
    config: T5Config, successor: np.ndarray, *, seed: int, dtype: Any
) -> PyTree:
  """T5-shaped parameters whose greedy next token is `successor[token]`.

  Args:
    config: any T5 1.1 shape (untied logits).
    successor: int[vocab], a permutation.
    seed: of the random matrices; leaves are made one by one.
    dtype: of the leaves.

  Returns:
    T5X parameter tree of NumPy arrays.
  """
  if config.logits_via_embedding:
    raise ValueError('a planted model needs logits_via_embedding=False')
  rng = np.random.default_rng(seed)
  flat = {}
  embedding = None
  for path, shape in parameters.param_shapes(config).items():
    if path[-1] == 'scale':
      leaf = np.ones(shape, np.float32)
    elif path[0] == 'decoder' and path[-2] in ('out', 'wo'):
      leaf = np.zeros(shape, np.float32)
    elif path[-2] == 'logits_dense':
      assert embedding is not None
      leaf = np.empty(shape, np.float32)
      norm = np.linalg.norm(embedding, axis=1, keepdims=True)
      leaf[:, successor] = (embedding / norm).T
    else:
      leaf = rng.standard_normal(shape, np.float32)
      leaf *= 1.0 if path[-1] == 'embedding' else shape[0] ** -0.5
    if path[-1] == 'embedding':
      embedding = leaf
    flat[path] = leaf.astype(dtype)
  return parameters.unflatten(flat)


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
    alpha: in [0, 1]; round((1 - alpha) * ids) ids, chosen at random, have
      another successor in the draft.
    seed: of everything random.
    dtype: of the parameters.

  Returns:
    The pair. Texts never reach EOS and visit all ids before repeating.

  Raises:
    ValueError: for different vocabularies, or alpha outside [0, 1].
  """
  if target.vocab_size != draft.vocab_size:
    raise ValueError(
        f'vocab_size of target ({target.vocab_size}) and draft '
        f'({draft.vocab_size}) differ'
    )
  if not 0 <= alpha <= 1:
    raise ValueError(f'alpha must be in [0, 1], got {alpha}')
  rng = np.random.default_rng(seed)
  vocab = target.vocab_size
  cycle = rng.permutation(np.arange(_SPECIAL, vocab))
  successor = np.arange(vocab)
  successor[cycle] = np.roll(cycle, -1)
  draft_successor = successor.copy()
  wrong = rng.permutation(cycle)[: round((1 - alpha) * len(cycle))]
  draft_successor[wrong] = successor[np.roll(wrong, 1)]
  return PlantedPair(
      planted_params(target, successor, seed=seed + 1, dtype=dtype),
      planted_params(draft, draft_successor, seed=seed + 2, dtype=dtype),
      successor,
      draft_successor,
  )
