# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Drafts from counted n-grams, the paper's Section 3.6: of negligible cost.

The law of the next token is Witten and Bell's interpolation, from the unigrams
up: with N occurrences of a context, followed by T different tokens,

  q(x | context) = (count(context, x) + T q(x | shorter context)) / (N + T),

and a context that was never seen has the law of the shorter one.

The table is a trie. Its entries are all n-grams of length 1 to n, the ones of a
length in lexicographic order, and each entry tells where the ones that go on
from it stand. What follows a context is found by binary search, token by token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import operator
import os
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import sampling
from t5x_specdec.drafts.base import Proposal
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method

_MAX_ORDER = 4
_ARRAYS = ('tokens', 'counts', 'starts', 'ends')
# What a file says of the draft, in this order.
_SHAPE = ('vocab_size', 'order', 'unigrams', 'fanout')


@dataclasses.dataclass(frozen=True)
class Ngram:
  """A `Draft` by the last order - 1 tokens; a unigram draft at order 1.

  Its parameters are a table of `count`: {'tokens', 'counts', 'starts', 'ends'},
  int32[entries], what each entry ends with, how often it was seen, and where
  the entries that go on from it start and end.

  Attributes:
    vocab_size: ids that are scored.
    order: n, from 1 to 4.
    unigrams: entries of one token, the first of the table.
    fanout: most tokens that follow any context.
    argmax: draft the likeliest token at every temperature, certain of it, and
      not one drawn from the law.
  """

  vocab_size: int
  order: int
  unigrams: int
  fanout: int
  argmax: bool = False

  has_encoder = None
  may_abstain = False

  def check(self, params: PyTree) -> None:
    """Raises ValueError where `params` are not a table of this shape."""
    shapes = {name: np.shape(params.get(name)) for name in _ARRAYS}
    entries = shapes['tokens']
    if len(entries) != 1 or set(shapes.values()) != {entries}:
      raise ValueError(f'not an n-gram table, shapes {shapes}')
    if not (
        1 <= self.order <= _MAX_ORDER
        and self.vocab_size >= 1
        and 1 <= self.unigrams <= entries[0]
        and 1 <= self.fanout <= entries[0]
    ):
      raise ValueError(f'n-gram table of {entries[0]} entries for {self}')

  def prepare(self, params: PyTree) -> PyTree:
    """Adds 'unigram', float32[vocab]: it is the same for every context."""
    params = {name: jnp.asarray(params[name]) for name in _ARRAYS}
    first = slice(0, self.unigrams)
    counts = params['counts'][first].astype(jnp.float32)
    law = jnp.zeros([self.vocab_size]).at[params['tokens'][first]].set(counts)
    return {**params, 'unigram': law / jnp.sum(law)}

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      prompt: jax.Array,
      max_len: int,
  ) -> tuple[()]:
    """There is no state: the text is all that counts."""
    return ()

  def law(self, params: PyTree, context: jax.Array) -> jax.Array:
    """Witten-Bell's law of the token after a context.

    Args:
      params: from `prepare`.
      context: int32[rows, order - 1], the last tokens, -1 before the start.

    Returns:
      float32[rows, vocab].
    """
    rows = len(context)
    q = jnp.broadcast_to(params['unigram'], [rows, self.vocab_size])
    for length in range(1, self.order):
      start, end = self._find(params, context[:, self.order - 1 - length :])
      at = start[:, None] + jnp.arange(self.fanout)
      inside = at < end[:, None]
      at = jnp.where(inside, at, 0)
      counts = jnp.where(inside, params['counts'][at], 0).astype(jnp.float32)
      total = jnp.sum(counts, axis=1, keepdims=True)
      kinds = (end - start)[:, None].astype(jnp.float32)
      # An id outside the vocabulary is dropped: entries that are not there.
      tokens = jnp.where(inside, params['tokens'][at], self.vocab_size)
      seen = (kinds * q).at[jnp.arange(rows)[:, None], tokens].add(
          counts, mode='drop'
      )
      q = jnp.where(kinds > 0, seen / jnp.maximum(total + kinds, 1), q)
    return q

  def propose(
      self,
      params: PyTree,
      state: tuple[()],
      tokens: jax.Array,
      positions: jax.Array,
      method: Method,
      gamma: int,
      room: jax.Array,
      keys: jax.Array,
  ) -> tuple[Proposal, tuple[()]]:
    """Draws gamma tokens, each after the ones before; see `Draft.propose`."""
    if not gamma:
      return Proposal.empty(len(positions), self.vocab_size), state
    if self.argmax:
      greedy = jnp.zeros_like(method.temperature)
      method = method.replace(temperature=greedy)
    back = positions[:, None] - jnp.arange(self.order - 2, -1, -1)
    context = jnp.take_along_axis(tokens, jnp.maximum(back, 0), axis=1)
    context = jnp.where(back >= 0, context, -1)
    drafts, laws = [], []
    for i in range(gamma):
      logits = jnp.log(self.law(params, context))
      token, q = sampling.choose(logits, method, keys[:, i])
      context = jnp.concatenate([context, token[:, None]], axis=1)[:, 1:]
      drafts.append(token)
      laws.append(q)
    proposal = Proposal(
        tokens=jnp.stack(drafts, axis=1),
        lengths=jnp.full_like(positions, gamma),
        q=None if self.argmax else jnp.stack(laws, axis=1),
    )
    return proposal, state

  def _find(
      self, params: PyTree, context: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Where the entries that go on from a context start and end.

    Args:
      params: the table.
      context: int32[rows, length].

    Returns:
      Two int32[rows], equal where the context was never seen.
    """
    start = jnp.zeros([len(context)], jnp.int32)
    end = jnp.full_like(start, self.unigrams)
    steps = max(self.unigrams, self.fanout, 1).bit_length()
    for i in range(context.shape[1]):
      token = context[:, i]

      def halve(_, bounds, token=token):
        low, high = bounds
        middle = (low + high) // 2
        less = (low < high) & (params['tokens'][middle] < token)
        return jnp.where(less, middle + 1, low), jnp.where(less, high, middle)

      at, _ = lax.fori_loop(0, steps, halve, (start, end))
      at = jnp.minimum(at, end - 1)
      found = (start < end) & (params['tokens'][at] == token)
      start, end = (
          jnp.where(found, params[name][at], 0) for name in ('starts', 'ends')
      )
    return start, end


class Table(NamedTuple):
  """A draft, its parameters, and the vocabulary that they speak of.

  Attributes:
    draft: reads `params`.
    params: see `Ngram`.
    fingerprint: of the vocabulary, see `Vocabulary.fingerprint`.
  """

  draft: Ngram
  params: dict[str, np.ndarray]
  fingerprint: str


def count(
    texts: Iterable[Sequence[int]], vocab_size: int, order: int
) -> tuple[Ngram, dict[str, np.ndarray]]:
  """Counts the n-grams of texts, each after the decoder's start token 0.

  Args:
    texts: token ids of each text, EOS included, 0 never.
    vocab_size: ids that are scored, the model's.
    order: n, from 1 to 4.

  Returns:
    The draft and its table.

  Raises:
    TypeError: an id that is no integer.
    ValueError: an order or an id that cannot be, or no text at all.
  """
  if not 1 <= order <= _MAX_ORDER:
    raise ValueError(f'order must be in [1, {_MAX_ORDER}], got {order}')
  rows = [np.asarray([0, *map(operator.index, text)]) for text in texts]
  if not any(len(row) > 1 for row in rows):
    raise ValueError('no text to count')
  joined = np.concatenate(rows)
  place = np.concatenate([np.arange(len(row)) for row in rows])
  inside = joined[place > 0]
  if inside.min() < 1 or inside.max() >= vocab_size:
    raise ValueError(
        f'ids must be in [1, {vocab_size - 1}], got some in [{inside.min()}, '
        f'{inside.max()}]'
    )
  levels = []
  for n in range(1, order + 1):
    ends = np.flatnonzero(place >= n - 1)
    grams = joined[ends[:, None] - np.arange(n - 1, -1, -1)]
    levels.append(np.unique(grams, axis=0, return_counts=True))
  # The start token was never generated; its entry is there to go on from.
  unigrams, counts = levels[0]
  counts[unigrams[:, 0] == 0] = 0

  table: dict[str, list[np.ndarray]] = {name: [] for name in _ARRAYS}
  offset, fanout = 0, 1
  for n, (grams, counts) in enumerate(levels):
    offset += len(grams)
    first, last = np.zeros([2, len(grams)], np.int64)
    if n + 1 < order:
      longer = levels[n + 1][0][:, :-1]
      known, starts, sizes = np.unique(
          longer, axis=0, return_index=True, return_counts=True
      )
      # Both are in lexicographic order, and every prefix is an entry.
      which = _rows_in(known, grams)
      first[which] = offset + starts
      last[which] = offset + starts + sizes
      fanout = max(fanout, int(sizes.max(initial=1)))
    for name, leaf in zip(_ARRAYS, (grams[:, -1], counts, first, last)):
      table[name].append(leaf)
  params = {
      name: np.concatenate(leaves).astype(np.int32)
      for name, leaves in table.items()
  }
  return Ngram(vocab_size, order, len(unigrams), fanout), params


def _rows_in(some: np.ndarray, all_rows: np.ndarray) -> np.ndarray:
  """Where each row of `some` stands among the sorted rows of another."""
  joined, inverse = np.unique(
      np.concatenate([all_rows, some]), axis=0, return_inverse=True
  )
  assert len(joined) == len(all_rows)
  return inverse.ravel()[len(all_rows) :]


def save(path: str | os.PathLike[str], table: Table) -> None:
  """Writes a table as a compressed file of arrays, `.npz` by custom."""
  arrays: dict[str, Any] = {
      'fingerprint': np.asarray(table.fingerprint),
      'shape': np.asarray([getattr(table.draft, name) for name in _SHAPE]),
      **table.params,
  }
  with open(path, 'wb') as file:
    np.savez_compressed(file, **arrays)


def load(path: str | os.PathLike[str], *, argmax: bool = False) -> Table:
  """Reads a table; nothing in it is ever unpickled.

  Args:
    path: of a file from `save`.
    argmax: see `Ngram`; no part of the file.

  Returns:
    The table.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: it is not such a file, or not whole.
  """
  name = os.fspath(path)
  if not os.path.exists(path):
    raise FileNotFoundError(f'no n-gram table at {name}')
  try:
    with np.load(path, allow_pickle=False) as file:
      arrays: dict[str, Any] = dict(file)
    shape = dict(zip(_SHAPE, map(int, arrays.pop('shape')), strict=True))
    draft = Ngram(**shape, argmax=argmax)
    fingerprint = str(arrays.pop('fingerprint'))
    _check_content(draft, arrays)
  # Whatever a damaged archive makes zipfile, zlib or NumPy raise.
  except Exception as error:
    raise ValueError(f'{name} is not an n-gram table: {error!r}') from error
  return Table(draft, arrays, fingerprint)


def _check_content(draft: Ngram, params: dict[str, np.ndarray]) -> None:
  """Raises ValueError where no `count` could have made a table."""
  if set(params) != set(_ARRAYS):
    raise ValueError(f'arrays {sorted(params)}')
  draft.check(params)
  if any(leaf.dtype != np.int32 for leaf in params.values()):
    raise ValueError('arrays of another dtype than int32')
  starts, ends = params['starts'], params['ends']
  inside = (0 <= starts) & (starts <= ends) & (ends <= len(starts))
  if not np.all(inside & (ends - starts <= draft.fanout)):
    raise ValueError('entries that go on outside of the table')
  tokens, counts = params['tokens'], params['counts']
  if np.any((tokens < 0) | (tokens >= draft.vocab_size) | (counts < 0)):
    raise ValueError('ids outside of the vocabulary, or counts below 0')
