# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the decoding loop asks of a source of drafts."""

from __future__ import annotations

from typing import Any, Protocol

from flax import struct
import jax
import jax.numpy as jnp

from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method


class Proposal(struct.PyTreeNode):
  """The drafts of one round.

  Attributes:
    tokens: int32[rows, gamma].
    lengths: int32[rows], how many leading tokens of each row are real.
    q: float32[rows, gamma, vocab], the law each token was drawn from, the
      array itself and not another computation of it; None where the source is
      certain of its token (one-hot q).
  """

  tokens: jax.Array
  lengths: jax.Array
  q: jax.Array | None

  @classmethod
  def empty(cls, rows: int, vocab_size: int) -> Proposal:
    """Of a round of gamma = 0, from a source whose q is no one-hot law."""
    return cls(
        tokens=jnp.zeros([rows, 0], jnp.int32),
        lengths=jnp.zeros([rows], jnp.int32),
        q=jnp.zeros([rows, 0, vocab_size]),
    )


class Draft(Protocol):
  """A source of drafts; hashable, its parameters and state are explicit."""

  @property
  def vocab_size(self) -> int | None:
    """Ids it can propose; None where it takes them from the text itself."""
    ...

  @property
  def has_encoder(self) -> bool | None:
    """Whether `init` needs inputs; None where it does not mind."""
    ...

  @property
  def may_abstain(self) -> bool:
    """Whether it may propose nothing at all to a whole batch.

    The target then is asked for a single token, at the price of compiling its
    block twice.
    """
    ...

  def check(self, params: PyTree) -> None:
    """Raises ValueError where `params` are not this draft's."""
    ...

  def prepare(self, params: PyTree) -> PyTree:
    """Does once per call what every round would repeat."""
    ...

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      prompt: jax.Array,
      max_len: int,
  ) -> Any:
    """State before the first round.

    Args:
      params: from `prepare`.
      inputs: int32[batch, S], 0 at padding, or None.
      prompt: int32[rows, P] decoder inputs at positions 0 to P - 1; rows is a
        multiple of the batch, P may be 0.
      max_len: positions that will be asked for, slack included.

    Returns:
      Any pytree.
    """
    ...

  def propose(
      self,
      params: PyTree,
      state: Any,
      tokens: jax.Array,
      positions: jax.Array,
      method: Method,
      gamma: int,
      room: jax.Array,
      keys: jax.Array,
  ) -> tuple[Proposal, Any]:
    """Drafts up to gamma tokens per row.

    Args:
      params: from `prepare`.
      state: from `init` or the round before.
      tokens: int32[rows, max_len] decoder inputs; valid up to and including
        each row's position.
      positions: int32[rows], position of each row's last token. It tells how
        many drafts of the round before were kept.
      method: the target's own sampling method (Section 2.2).
      gamma: drafts to propose; 0 in a round without, which a draft with a
        state is told of all the same: it may have to note the positions.
      room: int32[rows] in [0, gamma], how many drafts of each row are used at
        most; 0 where the row has ended. What is proposed beyond is cut off.
      keys: key[rows, gamma], one per draft.

    Returns:
      The proposal and the new state.
    """
    ...
