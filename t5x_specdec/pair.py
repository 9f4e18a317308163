# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target and a draft read from T5X checkpoints, without T5X or its gin."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from t5x_specdec import preparation
from t5x_specdec.checkpoint_reader import read_checkpoint
from t5x_specdec.config_reader import config_from_params
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.vocabulary import check_same
from t5x_specdec.vocabulary import Vocabulary

# English to German, trained on LibreOffice's help: see its CARD.md.
DEMO_PAIR = pathlib.Path(__file__).parent / 'demo_pair'
# Bigrams of the German texts that the pair was trained on.
DEMO_TABLE = DEMO_PAIR / 'bigrams.npz'


@dataclasses.dataclass(frozen=True)
class Model:
  """A decoder and its parameters on the device.

  Attributes:
    decoder: the network.
    params: its parameters, prepared for decoding (`T5.prepare`).
    path: the checkpoint they come from.
    step: the training step of it.
  """

  decoder: T5
  params: PyTree
  path: str
  step: int


@dataclasses.dataclass(frozen=True)
class Pair:
  """A target, a draft and the vocabulary they share."""

  target: Model
  draft: Model
  vocabulary: Vocabulary


def read_model(
    path: str | os.PathLike[str], *, dtype: str = 'float32'
) -> Model:
  """Reads a model from a T5X checkpoint; its shapes tell its config.

  Args:
    path: a checkpoint directory, or the parent of several.
    dtype: of activations and parameters, 'float32' or 'bfloat16'.

  Returns:
    The model.

  Raises:
    FileNotFoundError: no such directory.
    ValueError: no complete T5X checkpoint, or not that of a T5 model.
  """
  checkpoint = read_checkpoint(path, dtype=dtype)
  try:
    config = config_from_params(checkpoint.params, dtype=dtype)
  except ValueError as error:
    raise ValueError(f'{checkpoint.path}: {error}') from None
  params = preparation.ready(checkpoint.params, config)
  return Model(T5(config), params, checkpoint.path, checkpoint.step)


def read_checked(
    name: str,
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    *,
    dtype: str = 'float32',
) -> Model:
  """Reads a model and checks that it scores every piece of a vocabulary.

  Args:
    name: what it is called in an error, 'target' or 'draft'.
    path: see `read_model`.
    vocabulary: of the model.
    dtype: see `read_model`.

  Returns:
    The model.

  Raises:
    FileNotFoundError: no such directory.
    ValueError: no usable checkpoint, or one with fewer rows than pieces.
  """
  model = read_model(path, dtype=dtype)
  if model.decoder.vocab_size < vocabulary.pieces:
    raise ValueError(
        f'vocabulary {vocabulary.path} has {vocabulary.pieces} pieces, but the '
        f'{name} at {model.path} scores only {model.decoder.vocab_size}'
    )
  return model


def read_pair(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str],
    vocabulary: str | os.PathLike[str],
    *,
    draft_vocabulary: str | os.PathLike[str] | None = None,
    dtype: str = 'float32',
) -> Pair:
  """Reads a target, a draft and their vocabulary.

  Args:
    target: the target's checkpoint.
    draft: the draft's checkpoint.
    vocabulary: the target's SentencePiece model.
    draft_vocabulary: the draft's, where it is another file; compared.
    dtype: of both models.

  Returns:
    The pair.

  Raises:
    FileNotFoundError: a file or directory is missing.
    ValueError: a checkpoint is not usable, or the vocabularies are not the same
      or larger than what the models score.
  """
  words = Vocabulary(vocabulary)
  if draft_vocabulary is not None:
    check_same(words, Vocabulary(draft_vocabulary))
  return Pair(
      read_checked('target', target, words, dtype=dtype),
      read_checked('draft', draft, words, dtype=dtype),
      words,
  )


def read_demo_pair() -> Pair:
  """Reads the pair that ships with the package, English to German.

  Returns:
    The pair, in float32.
  """
  return read_pair(
      DEMO_PAIR / 'target',
      DEMO_PAIR / 'draft',
      DEMO_PAIR / 'vocabulary.model',
  )
