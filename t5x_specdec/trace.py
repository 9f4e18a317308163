# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What was drafted in each round and how much of it stood: Figure 1's colours.

Recorded inside the compiled loop when asked for. A row's position grows with
every round, so rounds are filed under the position they started from.
"""

from __future__ import annotations

from typing import NamedTuple

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np


class Round(NamedTuple):
  """One round of one decode.

  Attributes:
    position: tokens of text before it.
    drafted: ids the draft proposed.
    accepted: how many of them the target let stand.
    next_token: the target's own token after these, None where the text ended
      before it.
  """

  position: int
  drafted: list[int]
  accepted: int
  next_token: int | None


class Trace(struct.PyTreeNode):
  """The rounds of all decodes; leading axes as in `DecodeResult.tokens`.

  Attributes:
    drafted: int32[..., length, gamma], the drafts of the round that started
      from each length of text, -1 where there is none; gamma is the largest
      where it varies.
    accepted: int32[..., length], drafts of that round that are in the text, -1
      where no round started.
    count: int32[..., length], tokens that round wrote: `accepted`, and one more
      unless the text ended with them.
  """

  drafted: jax.Array
  accepted: jax.Array
  count: jax.Array

  @classmethod
  def empty(cls, rows: int, length: int, gamma: int) -> Trace:
    """A trace without rounds."""
    return cls(
        drafted=jnp.full([rows, length, gamma], -1, jnp.int32),
        accepted=jnp.full([rows, length], -1, jnp.int32),
        count=jnp.zeros([rows, length], jnp.int32),
    )

  def add_round(
      self,
      live: jax.Array,
      positions: jax.Array,
      drafts: jax.Array,
      lengths: jax.Array,
      verified: jax.Array,
      count: jax.Array,
  ) -> Trace:
    """Files one round of the live rows.

    Args:
      live: bool[rows].
      positions: int32[rows], tokens of text before the round.
      drafts: int32[rows, gamma], of any gamma up to the trace's.
      lengths: int32[rows], drafts that are real.
      verified: int32[rows], drafts that verification let stand.
      count: int32[rows], tokens written; EOS may cut the verified ones short.

    Returns:
      The new trace.
    """
    rows = jnp.arange(drafts.shape[0])
    # Ended rows are filed out of range, and so nowhere.
    at = jnp.where(live, positions, self.accepted.shape[1])
    real = jnp.arange(drafts.shape[1]) < lengths[:, None]
    missing = self.drafted.shape[2] - drafts.shape[1]
    drafts = jnp.pad(
        jnp.where(real, drafts, -1),
        ((0, 0), (0, missing)),
        constant_values=-1,
    )
    return Trace(
        drafted=self.drafted.at[rows, at].set(drafts, mode='drop'),
        accepted=self.accepted.at[rows, at].set(
            jnp.minimum(verified, count), mode='drop'
        ),
        count=self.count.at[rows, at].set(count, mode='drop'),
    )

  def rounds(
      self, index: tuple[int, ...], tokens: jax.Array | np.ndarray
  ) -> list[Round]:
    """The rounds of one decode, in order.

    Args:
      index: of the decode, as in `DecodeResult.tokens[index]`.
      tokens: int[length], its text.

    Returns:
      One entry per round; what EOS cut off is left out.
    """
    drafted, accepted, count = (
        np.asarray(leaf[index])
        for leaf in (self.drafted, self.accepted, self.count)
    )
    rounds = []
    for start in map(int, np.flatnonzero(accepted >= 0)):
      n = int(accepted[start])
      rounds.append(
          Round(
              position=start,
              drafted=[int(token) for token in drafted[start] if token >= 0],
              accepted=n,
              next_token=int(tokens[start + n]) if count[start] > n else None,
          )
      )
    return rounds
