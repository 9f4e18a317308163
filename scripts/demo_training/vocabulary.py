# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""One SentencePiece vocabulary for both languages, with T5's special ids."""

from collections.abc import Sequence
import io
import pathlib

import sentencepiece

from demo_training import data
from demo_training import states

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2


def learn(
    pairs: Sequence[tuple[str, ...]], path: pathlib.Path, size: int
) -> None:
  """Learns a unigram vocabulary from both sides of `pairs`.

  Every character of the training text gets a piece (the default coverage drops
  rare capitals such as 'Ä'), and the text is not normalised, so what a model
  writes can equal the reference.

  Args:
    pairs: the training pairs; or texts, each a tuple of one.
    path: where to write the model.
    size: how many pieces.
  """
  learned = io.BytesIO()  # a file's path would be recorded in the model
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter([side for pair in pairs for side in pair]),
      model_writer=learned,
      vocab_size=size,
      model_type='unigram',
      character_coverage=1.0,
      normalization_rule_name='identity',
      pad_id=PAD_ID,
      eos_id=EOS_ID,
      unk_id=UNK_ID,
      bos_id=-1,
      num_threads=1,  # the sums of several threads round differently each time
      minloglevel=1,
  )
  with states.replacing(path) as file:
    file.write(learned.getvalue())


def load(path: pathlib.Path) -> sentencepiece.SentencePieceProcessor:
  """Loads a vocabulary that `learn` wrote."""
  return sentencepiece.SentencePieceProcessor(model_file=str(path))


def embedding_rows(pieces: sentencepiece.SentencePieceProcessor) -> int:
  """Returns the rows of the embedding: the size up to a multiple of 128."""
  return -(-pieces.get_piece_size() // 128) * 128


def within(
    pairs: list[data.Pair],
    pieces: sentencepiece.SentencePieceProcessor,
    limit: int,
    *,
    split_longer: bool,
) -> list[data.Pair]:
  """Keeps the pairs whose sides both fit in `limit` tokens, EOS included.

  Args:
    pairs: pairs of any length.
    pieces: the vocabulary.
    limit: the most tokens of a side.
    split_longer: whether the sentences of a longer pair take its place, where
      both sides have equally many.

  Returns:
    The pairs that fit, without repeats.
  """

  def fits(pair):
    return all(len(pieces.encode(side)) < limit for side in pair)

  kept = []
  for pair in pairs:
    if fits(pair):
      kept.append(pair)
    elif split_longer:
      kept.extend(filter(fits, data.sentences(*pair)))
  return list(dict.fromkeys(kept))
