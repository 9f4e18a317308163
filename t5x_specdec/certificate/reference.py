# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The target's own word on finished texts, and where they stand in its law.

A text is scored in one block from position 0 with an empty cache: no loop, no
rollback. Its law is shaped in float64 by sorting, apart from `sampling`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.parameters import PyTree
from t5x_specdec.testing import toys

# Float rounding, relative to a logit. A logit is the end of a long sum in a
# model's dtype: what two orders of it differ by is a few of these.
_EPSILON = {'float32': 2.0**-23, 'bfloat16': 2.0**-8}
_ROUNDINGS = 8
# Float64 laws in memory at a time, in numbers.
_CHUNK = 2**22


class Setting(NamedTuple):
  """How tokens are drawn."""

  temperature: float
  topk: int = 0
  topp: float = 0.0

  def __str__(self) -> str:
    text = f'T={self.temperature:g}'
    if self.topk:
      text += f' topk={self.topk}'
    return text + (f' topp={self.topp:g}' if self.topp else '')


@functools.partial(jax.jit, static_argnames='decoder')
def text_logits(
    decoder: BlockDecoder,
    params: PyTree,
    inputs: jax.Array | None,
    texts: jax.Array,
) -> jax.Array:
  """Logits of every token of a text given those before it.

  Args:
    decoder: the model.
    params: its parameters.
    inputs: int32[batch, S] encoder inputs, None for decoder-only.
    texts: int32[rows, length], rows a multiple of the batch.

  Returns:
    float32[rows, length, vocab].
  """
  params = decoder.prepare(params)
  rows, length = texts.shape
  state = decoder.init(params, inputs, rows, length)
  block = jnp.pad(texts, ((0, 0), (1, 0)))[:, :-1]
  start = jnp.zeros([rows], jnp.int32)
  return decoder.decode_block(params, state, block, start)[0]


def tolerance(logits: np.ndarray, dtype: str) -> np.ndarray:
  """What rounding in a model's dtype may move logits by, over the last axis."""
  return _ROUNDINGS * _EPSILON[dtype] * np.abs(logits).max(-1)


@dataclasses.dataclass(frozen=True)
class Positions:
  """Where each generated token stands in the law that it was drawn from.

  Given all before it, each of these has a known law if the text is the
  target's: `rank` and `draft` are uniform, `surprise` has mean 0.

  Attributes:
    row: int[n], of the decode.
    position: int[n], in the text.
    rank: float64[n] in [0, 1], mass of the tokens more likely than this, plus a
      random share of its own: low where likely tokens come too often.
    draft: float64[n], as rank, by how much more likely the draft model finds a
      token than the target: low where drafts come too often; None without one.
    log_prob: float64[n], of the token, nats.
    surprise: float64[n], log_prob less its expectation.
    variance: float64[n], of log_prob.
    outside: float64[n], how far the token is outside the filter, in units of
      what rounding explains; 0 inside.
  """

  row: np.ndarray
  position: np.ndarray
  rank: np.ndarray
  draft: np.ndarray | None
  log_prob: np.ndarray
  surprise: np.ndarray
  variance: np.ndarray
  outside: np.ndarray

  @classmethod
  def concatenate(cls, parts: list[Positions]) -> Positions:
    """All positions of several batches."""
    columns = {}
    for field in dataclasses.fields(cls):
      arrays = [getattr(part, field.name) for part in parts]
      has = all(array is not None for array in arrays)
      columns[field.name] = np.concatenate(arrays) if has else None
    return cls(**columns)


def place(
    logits: np.ndarray,
    draft_logits: np.ndarray | None,
    texts: np.ndarray,
    generated: np.ndarray,
    setting: Setting,
    rng: np.random.Generator,
    dtype: str,
    first_row: int = 0,
) -> Positions:
  """Finds where the generated tokens of some texts stand in their law.

  Args:
    logits: float32[rows, length, vocab], the target's of whole texts.
    draft_logits: the draft model's, None without one.
    texts: int[rows, length].
    generated: bool[rows, length], the tokens to look at.
    setting: how they were drawn, at a temperature > 0.
    rng: splits the mass of single tokens.
    dtype: of the models.
    first_row: number of the first row.

  Returns:
    The positions.
  """
  parts = []
  step = max(_CHUNK // logits[0].size, 1)
  for start in range(0, len(texts), step):
    rows = slice(start, start + step)
    chosen = generated[rows]
    row, position = np.nonzero(chosen)
    parts.append(
        _place(
            logits[rows][chosen].astype(np.float64),
            None if draft_logits is None else draft_logits[rows][chosen],
            texts[rows][chosen],
            first_row + start + row,
            position,
            setting,
            rng,
            dtype,
        )
    )
  return Positions.concatenate(parts)


def _place(
    logits: np.ndarray,
    draft_logits: np.ndarray | None,
    tokens: np.ndarray,
    row: np.ndarray,
    position: np.ndarray,
    setting: Setting,
    rng: np.random.Generator,
    dtype: str,
) -> Positions:
  """`place` for float64[n, vocab] logits of int[n] tokens."""
  law = toys.exact_law(logits, **setting._asdict())
  logs = np.log(np.where(law > 0, law, 1.0))
  mean = np.einsum('nv,nv->n', law, logs)
  square = np.einsum('nv,nv,nv->n', law, logs, logs)
  at = np.arange(len(tokens)), tokens
  inside = law[at] > 0
  log_prob = np.where(inside, logs[at], -np.inf)
  share = rng.random([2, len(tokens)])

  def uniform(order, share):
    own = order[at][:, None]
    above = np.sum(law, axis=-1, where=order > own)
    return above + share * np.sum(law, axis=-1, where=order == own)

  return Positions(
      row=row,
      position=position,
      rank=uniform(law, share[0]),
      draft=None
      if draft_logits is None
      else uniform(draft_logits - logits, share[1]),
      log_prob=log_prob,
      surprise=np.where(inside, log_prob - mean, 0.0),
      variance=np.maximum(square - mean**2, 0.0),
      outside=np.where(inside, 0.0, _outside(logits, tokens, setting, dtype)),
  )


def _outside(
    logits: np.ndarray, tokens: np.ndarray, setting: Setting, dtype: str
) -> np.ndarray:
  """How far tokens are outside the filter, over what rounding explains."""
  own = np.take_along_axis(logits, tokens[:, None], axis=-1)
  if setting.topk:
    least = -np.sort(-logits, axis=-1)[:, setting.topk - 1]
    excess = (least - own[:, 0]) / setting.temperature
  elif setting.topp:
    law = toys.exact_law(logits, setting.temperature)
    excess = np.where(logits > own, law, 0.0).sum(-1) - setting.topp
  else:
    return np.full(len(tokens), np.inf)
  return excess / (tolerance(logits, dtype) / setting.temperature)
