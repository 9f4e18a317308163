# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompt lookup: what followed these words last time, in the input or the text.

A draft without a model, for texts that copy: summaries, corrections, edits.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from t5x_specdec.drafts.base import Proposal
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method

# Stands where no token is; equal to none.
_NONE = -1


@dataclasses.dataclass(frozen=True)
class PromptLookup:
  """A `Draft` that continues the text as it went on before.

  Looks for the last tokens of the text, up to `longest` of them, in the
  encoder's input and in the text so far. The longest match wins, and of equally
  long ones the last. What followed it is proposed as certain (one-hot q), as
  far as it goes. Without a match nothing is, and the round is a plain step.

  Attributes:
    longest: most tokens that are compared, >= 1.
  """

  longest: int = 3

  vocab_size = None
  has_encoder = None
  may_abstain = True

  def __post_init__(self):
    if self.longest < 1:
      raise ValueError(f'longest must be >= 1, got {self.longest}')

  def check(self, params: PyTree) -> None:
    """There are no parameters to check."""

  def prepare(self, params: PyTree) -> PyTree:
    """Returns the (empty) parameters."""
    return params

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      prompt: jax.Array,
      max_len: int,
  ) -> jax.Array:
    """The encoder's input per row, int32[rows, S]; see `Draft.init`."""
    rows = prompt.shape[0]
    if inputs is None:
      return jnp.zeros([rows, 0], jnp.int32)
    inputs = jnp.repeat(inputs, rows // inputs.shape[0], axis=0)
    return jnp.where(inputs > 0, inputs, _NONE)

  def propose(
      self,
      params: PyTree,
      state: jax.Array,
      tokens: jax.Array,
      positions: jax.Array,
      method: Method,
      gamma: int,
      room: jax.Array,
      keys: jax.Array,
  ) -> tuple[Proposal, jax.Array]:
    """Copies what followed the longest match; see `Draft.propose`."""
    column = jnp.arange(tokens.shape[1])
    # The start token keeps a match from reaching from the text into the input.
    is_text = (column > 0) & (column <= positions[:, None])
    seen = jnp.concatenate([state, jnp.where(is_text, tokens, _NONE)], axis=1)
    end = state.shape[1] + positions
    match = _match(seen, end, self.longest)
    width = seen.shape[1]
    goes_on = jnp.pad(seen[:, 1:], ((0, 0), (0, 1)), constant_values=_NONE) >= 0
    rank = jnp.where(
        (match > 0) & goes_on, match * width + jnp.arange(width), _NONE
    )
    best = jnp.argmax(rank, axis=1)
    copied = jnp.take_along_axis(
        seen,
        best[:, None] + 1 + jnp.arange(gamma),
        axis=1,
        mode='fill',
        fill_value=_NONE,
    )
    copied = jnp.where(jnp.max(rank, axis=1)[:, None] >= 0, copied, _NONE)
    going = jnp.cumprod((copied >= 0).astype(jnp.int32), axis=1)
    proposal = Proposal(
        tokens=jnp.maximum(copied, 0), lengths=jnp.sum(going, axis=1), q=None
    )
    return proposal, state


def _match(seen: jax.Array, end: jax.Array, longest: int) -> jax.Array:
  """How many tokens up to each place are those up to `end`, at most `longest`.

  Args:
    seen: int32[rows, width], `_NONE` where no token is.
    end: int32[rows], place of the text's last token.
    longest: most tokens to compare.

  Returns:
    int32[rows, width], 0 at `end` itself.
  """
  equal = jnp.ones(seen.shape, bool)
  total = jnp.zeros(seen.shape, jnp.int32)
  for back in range(longest):
    at = jnp.maximum(end - back, 0)
    last = jnp.take_along_axis(seen, at[:, None], axis=1)
    earlier = jnp.pad(
        seen, ((0, 0), (back, 0)), constant_values=_NONE
    )[:, : seen.shape[1]]
    equal &= (earlier == last) & (last >= 0) & (end - back >= 0)[:, None]
    total += equal
  return jnp.where(jnp.arange(seen.shape[1]) == end[:, None], 0, total)
