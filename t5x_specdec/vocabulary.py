# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text to ids and back with a SentencePiece model, as T5 does it.

The same ids as `seqio.SentencePieceVocabulary(path, extra_ids)` without
importing TensorFlow.
"""

from __future__ import annotations

import hashlib
import os
import re

import sentencepiece

EOS_ID = 1
_EXTRA_ID = re.compile(r'<extra_id_(\d+)>')


class Vocabulary:
  """A SentencePiece model with T5's sentinels `<extra_id_k>` on top.

  The sentinels take the ids above the pieces, `<extra_id_0>` the highest.

  Attributes:
    path: the SentencePiece model's file.
    extra_ids: number of sentinels.
  """

  def __init__(self, path: str | os.PathLike[str], extra_ids: int = 100):
    self.path = os.fspath(path)
    self.extra_ids = extra_ids
    if not os.path.isfile(self.path):
      raise FileNotFoundError(f'no SentencePiece model at {self.path}')
    with open(self.path, 'rb') as file:
      content = file.read()
    self._processor = sentencepiece.SentencePieceProcessor()
    try:
      self._processor.LoadFromSerializedProto(content)
    except RuntimeError:
      raise ValueError(f'{self.path} is not a SentencePiece model') from None
    if self._processor.eos_id() != EOS_ID:
      raise ValueError(
          f'{self.path} has EOS id {self._processor.eos_id()}; T5X models end '
          f'with {EOS_ID}'
      )
    self._fingerprint = hashlib.sha256(content).hexdigest()

  @property
  def pieces(self) -> int:
    """Number of pieces, sentinels not counted."""
    return self._processor.GetPieceSize()

  @property
  def size(self) -> int:
    """Number of ids that mean something."""
    return self.pieces + self.extra_ids

  @property
  def fingerprint(self) -> str:
    """SHA-256 of the SentencePiece model, to tell vocabularies apart."""
    return self._fingerprint

  def encode(self, text: str) -> list[int]:
    """Ids of a text, without EOS.

    Args:
      text: any string; `<extra_id_k>` becomes a sentinel.

    Returns:
      Ids in [0, size).
    """
    ids = []
    for i, part in enumerate(_EXTRA_ID.split(text)):
      if i % 2 == 0:
        ids += self._processor.EncodeAsIds(part)
      elif int(part) < self.extra_ids:
        ids.append(self.size - 1 - int(part))
      else:
        ids += self._processor.EncodeAsIds(f'<extra_id_{part}>')
    return ids

  def piece(self, token: int) -> str:
    """The text of one id as it stands inside a sentence, space included.

    Args:
      token: any id.

    Returns:
      Its piece with a space for SentencePiece's word mark; '</s>' for EOS.
    """
    if 0 <= token < self.pieces:
      return self._processor.IdToPiece(token).replace('\u2581', ' ')
    return f' {self.decode([token])}'

  def decode(self, ids) -> str:
    """Text of ids up to the first EOS.

    Args:
      ids: sequence of int; an id that means nothing reads as unknown.

    Returns:
      The text.
    """
    runs: list[list[int] | str] = [[]]
    for token in map(int, ids):
      if token == EOS_ID:
        break
      if self.pieces <= token < self.size:
        runs += [f'<extra_id_{self.size - 1 - token}>', []]
      else:
        known = token if 0 <= token < self.pieces else self._processor.unk_id()
        assert isinstance(runs[-1], list)
        runs[-1].append(known)
    texts = [
        run if isinstance(run, str) else self._processor.DecodeIds(run)
        for run in runs
    ]
    return ' '.join(filter(None, texts))


def check_same(target: Vocabulary, draft: Vocabulary) -> None:
  """Raises ValueError, naming both, where two vocabularies are not the same.

  Ids of another vocabulary decode without complaint into unrelated text, so
  equal size is not enough.

  Args:
    target: the target's vocabulary.
    draft: the draft's.
  """
  if target.fingerprint != draft.fingerprint:
    described = [
        f'{words.path} ({words.pieces} pieces, SHA-256 '
        f'{words.fingerprint[:12]}...)'
        for words in (target, draft)
    ]
    raise ValueError(
        'target and draft must share one vocabulary, but '
        f'{" and ".join(described)} differ'
    )
