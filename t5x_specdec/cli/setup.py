# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads a target and what drafts for it: what `generate` and `demo` share."""

from __future__ import annotations

import argparse
import dataclasses
import sys

import jax

from t5x_specdec import pair as pairs
from t5x_specdec.cli import options
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.parameters import PyTree
from t5x_specdec.vocabulary import check_same
from t5x_specdec.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Setup:
  """A target, a source of drafts, and the vocabulary they share.

  Attributes:
    target: the target.
    draft: where drafts come from.
    draft_params: its parameters.
    draft_model: the draft model, where there is one.
    vocabulary: of both.
  """

  target: pairs.Model
  draft: Draft
  draft_params: PyTree
  draft_model: pairs.Model | None
  vocabulary: Vocabulary


def load(args: argparse.Namespace) -> Setup:
  """Reads what `options.add_pair` names, after cheap checks."""
  for name in ('batch_size', 'max_input_len', 'max_decode_len'):
    if getattr(args, name) < 1:
      raise ValueError(f'--{name} must be >= 1, got {getattr(args, name)}')
  choice = options.draft_choice(args)
  words = Vocabulary(args.vocabulary)
  table = model = None
  if choice.table is not None:
    table = ngram.load(choice.table)
    kinds.check_same_vocabulary(table, choice.table, words)
  if args.draft_vocabulary is not None:
    check_same(words, Vocabulary(args.draft_vocabulary))
  target = pairs.read_checked('target', args.target, words, dtype=args.dtype)
  if choice.checkpoint is not None:
    model = pairs.read_checked(
        'draft', choice.checkpoint, words, dtype=args.dtype
    )
    _warn_if_swapped(target, model)
  draft, params = kinds.make(
      choice.kind,
      target.decoder.vocab_size,
      model=None if model is None else (model.decoder, model.params),
      table=table,
  )
  return Setup(target, draft, params, model, words)


def _warn_if_swapped(target: pairs.Model, draft: pairs.Model) -> None:
  """Warns of a draft model that is larger than its target."""
  ours, theirs = (
      sum(leaf.size for leaf in jax.tree.leaves(model.params))
      for model in (target, draft)
  )
  if theirs > ours:
    print(
        f'WARNING: the draft has {theirs:,} parameters and the target '
        f'{ours:,}: are they swapped?',
        file=sys.stderr,
    )
