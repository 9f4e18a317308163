# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sources of drafts by the names that the command line has for them.

- `model`: a smaller model.
- `unigram`, `bigram`: n-grams (Section 3.6) of a table, cut to that length.
- `ngram`: n-grams, the table as it is.
- `lookup`: prompt lookup, what followed these words last time.
- `chain`: lookup where it has something to say, else the model.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts.base import Draft
from t5x_specdec.drafts.lookup import PromptLookup
from t5x_specdec.drafts.model import ModelDraft
from t5x_specdec.drafts.ngram import Table
from t5x_specdec.parameters import PyTree
from t5x_specdec.vocabulary import Vocabulary

KINDS = ('model', 'unigram', 'bigram', 'ngram', 'lookup', 'chain')
# Kinds that a model, and kinds that a table of n-grams, belongs to.
OF_MODEL = ('model', 'chain')
OF_TABLE = ('unigram', 'bigram', 'ngram')
_ORDERS = {'unigram': 1, 'bigram': 2}


def make(
    kind: str,
    vocab_size: int,
    *,
    model: tuple[BlockDecoder, PyTree] | None = None,
    table: Table | None = None,
) -> tuple[Draft, PyTree]:
  """The draft of a kind.

  Args:
    kind: one of `KINDS`.
    vocab_size: ids that the target scores.
    model: network and parameters of a draft model, for kinds of `OF_MODEL`.
    table: n-grams, for kinds of `OF_TABLE`.

  Returns:
    The draft and its parameters.

  Raises:
    ValueError: an unknown kind, one without what it needs, or a table that is
      too short or holds ids that the target does not score.
  """
  if kind == 'lookup':
    return PromptLookup(), {}
  if kind in OF_TABLE and table is not None:
    fitted = resized(truncated(table, _ORDERS.get(kind)), vocab_size)
    return fitted.draft, fitted.params
  if kind in OF_MODEL and model is not None:
    decoder, params = model
    if kind == 'chain':
      return _chain(decoder, params)
    return ModelDraft(decoder), params
  raise ValueError(
      f'no such draft, or without a model or n-grams: {kind!r}, one of {KINDS}'
  )


def _chain(decoder: BlockDecoder, params: PyTree) -> tuple[Draft, PyTree]:
  """Lookup, and the model where lookup finds nothing."""
  try:
    # pylint: disable-next=g-import-not-at-top
    from t5x_specdec.drafts.chain import Chain  # pyright: ignore
  except ImportError:
    raise ValueError('the draft `chain` is not available yet') from None
  chain = Chain(first=PromptLookup(), then=ModelDraft(decoder))
  return chain, {'first': {}, 'then': params}


def check_same_vocabulary(
    table: Table, name: str, vocabulary: Vocabulary
) -> None:
  """Raises ValueError where n-grams are of another vocabulary.

  Args:
    table: of n-grams.
    name: of its file.
    vocabulary: the target's.
  """
  if table.fingerprint != vocabulary.fingerprint:
    raise ValueError(
        f'target and draft must share one vocabulary, but the n-grams of {name}'
        f' are of one with SHA-256 {table.fingerprint[:12]}... and '
        f'{vocabulary.path} has {vocabulary.fingerprint[:12]}...'
    )


def truncated(table: Table, order: int | None) -> Table:
  """The shorter n-grams of a table alone.

  Args:
    table: of n-grams up to some length.
    order: the longest to keep; None keeps all.

  Returns:
    What counting the same texts with this order would have given.

  Raises:
    ValueError: the table is of shorter n-grams.
  """
  draft, params = table.draft, table.params
  if order is None or order == draft.order:
    return table
  if order > draft.order:
    raise ValueError(
        f'a table of n-grams up to length {draft.order} has none of length '
        f'{order}'
    )
  # Entries of a length stand together, and those that go on from them next.
  start, end = 0, draft.unigrams
  for _ in range(order - 1):
    start, end = end, max(end, int(np.max(params['ends'][start:end])))
  arrays = {name: np.array(leaf[:end]) for name, leaf in params.items()}
  for name in ('starts', 'ends'):
    arrays[name][start:] = 0
  fanout = max(1, int(np.max(arrays['ends'] - arrays['starts'])))
  draft = dataclasses.replace(draft, order=order, fanout=fanout)
  return Table(draft, arrays, table.fingerprint)


def resized(table: Table, vocab_size: int) -> Table:
  """The same n-grams for a model with more or fewer rows than were counted.

  T5's models score more ids than their vocabulary has, so that the rows are a
  round number; which ids mean something is the fingerprint's matter.

  Args:
    table: of n-grams.
    vocab_size: ids that the model scores.

  Returns:
    The table, its draft of that size.

  Raises:
    ValueError: an id has no row.
  """
  largest = int(np.max(table.params['tokens']))
  if largest >= vocab_size:
    raise ValueError(
        f'n-grams hold the id {largest}, but the target scores only '
        f'{vocab_size}'
    )
  draft = dataclasses.replace(table.draft, vocab_size=vocab_size)
  return table._replace(draft=draft)
