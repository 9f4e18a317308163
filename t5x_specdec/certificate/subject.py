# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A pair on trial, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import functools

import jax
import numpy as np

import t5x_specdec
from t5x_specdec import sampling
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.certificate import reference
from t5x_specdec.certificate.reference import Positions
from t5x_specdec.certificate.reference import Setting
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.parameters import PyTree


@dataclasses.dataclass(frozen=True)
class Subject:
  """A pair and what it decodes.

  Attributes:
    name: for reports.
    target: the target.
    draft: where drafts come from.
    target_params: the target's parameters.
    draft_params: the draft's.
    text: int32[inputs, S], 0 at padding: encoder inputs, or the prompts of a
      decoder-only target; a whole number of batches.
    steps: most tokens to generate.
    batch_size: inputs decoded together.
    dtype: of the models, 'float32' or 'bfloat16'.
    eos_id: ends a text.
    seed: of all random numbers.
  """

  name: str
  target: BlockDecoder
  draft: Draft
  target_params: PyTree
  draft_params: PyTree
  text: np.ndarray
  steps: int
  batch_size: int
  dtype: str = 'float32'
  eos_id: int = 1
  seed: int = 0

  @property
  def prompt_len(self) -> int:
    """Columns of the text that the inputs take up."""
    return 0 if self.target.has_encoder else self.text.shape[1]

  @property
  def draft_decoder(self) -> BlockDecoder | None:
    """The draft model, where drafts come from one alone."""
    return self.draft.decoder if isinstance(self.draft, ModelDraft) else None

  def batches(self) -> Iterator[np.ndarray]:
    """The text, batch by batch."""
    for start in range(0, len(self.text), self.batch_size):
      yield self.text[start : start + self.batch_size]

  def decode(
      self,
      setting: Setting,
      *,
      gamma: int,
      rule: str = 'token',
      decodes: int = 1,
      run: int = 0,
  ) -> np.ndarray:
    """Decodes all inputs, with the target alone at gamma 0.

    Args:
      setting: how tokens are drawn.
      gamma: drafts per round.
      rule: how they are judged.
      decodes: of each input.
      run: number of this run, whose keys no other has.

    Returns:
      int32[inputs * decodes, prompt_len + steps].
    """
    if gamma:
      decode = functools.partial(
          t5x_specdec.speculative_decode,
          self.target,
          self.draft,
          self.target_params,
          self.draft_params,
          gamma=gamma,
          verification=rule,
      )
    else:
      decode = functools.partial(
          t5x_specdec.autoregressive_decode, self.target, self.target_params
      )
    key = jax.random.fold_in(jax.random.key(self.seed), run)
    keys = sampling.row_keys(key, len(self.text))
    found = []
    for i, text in enumerate(self.batches()):
      first = i * self.batch_size
      encoded = bool(self.target.has_encoder)
      result = decode(
          text if encoded else None,
          prompts=None if encoded else text,
          max_decode_len=self.prompt_len + self.steps,
          max_decode_steps=self.steps,
          row_keys=keys[first : first + len(text)],
          num_decodes=decodes,
          eos_id=self.eos_id,
          **setting._asdict(),
      )
      tokens = np.asarray(result.tokens)
      found.append(tokens.reshape(-1, tokens.shape[-1]))
    return np.concatenate(found)

  def generated(self, tokens: np.ndarray) -> np.ndarray:
    """Which tokens a right decoder has generated, bool[rows, length].

    Args:
      tokens: int32[rows, length] from `decode`.

    Returns:
      True after the prompt, up to and including the first EOS or the last step.
    """
    opening = np.zeros(len(tokens), int)
    if self.prompt_len:
      opening = np.sum(self.text != 0, axis=1)
      opening = np.repeat(opening, len(tokens) // len(opening))
    column = np.arange(tokens.shape[1]) - opening[:, None]
    room = (column >= 0) & (column < self.steps)
    eos = (tokens == self.eos_id) & room
    return room & (np.cumsum(eos, axis=1) - eos == 0)

  def logits(
      self, tokens: np.ndarray, decodes: int, *, of_draft: bool = False
  ) -> Iterator[np.ndarray]:
    """What a model says of finished texts, batch by batch.

    Args:
      tokens: int32[inputs * decodes, length] from `decode`.
      decodes: of each input.
      of_draft: of the draft model, instead of the target.

    Yields:
      float32[batch * decodes, length, vocab].
    """
    decoder = self.draft_decoder if of_draft else self.target
    assert decoder is not None
    params = self.draft_params if of_draft else self.target_params
    step = self.batch_size * decodes
    for i, text in enumerate(self.batches()):
      inputs = text if self.target.has_encoder else None
      texts = tokens[i * step : (i + 1) * step]
      yield np.asarray(reference.text_logits(decoder, params, inputs, texts))

  def places(
      self, tokens: np.ndarray, decodes: int, setting: Setting, run: int
  ) -> Positions:
    """Where all generated tokens stand in the target's law.

    Args:
      tokens: int32[inputs * decodes, length] from `decode`.
      decodes: of each input.
      setting: how they were drawn.
      run: as for `decode`.

    Returns:
      The positions, rows counted over all batches.
    """
    rng = np.random.default_rng([self.seed, run])
    generated = self.generated(tokens)
    step = self.batch_size * decodes
    drafts = None
    if self.draft_decoder is not None:
      drafts = self.logits(tokens, decodes, of_draft=True)
    parts = []
    for i, logits in enumerate(self.logits(tokens, decodes)):
      rows = slice(i * step, (i + 1) * step)
      parts.append(
          reference.place(
              logits,
              None if drafts is None else next(drafts),
              tokens[rows],
              generated[rows],
              setting,
              rng,
              self.dtype,
              first_row=i * step,
          )
      )
    return Positions.concatenate(parts)
