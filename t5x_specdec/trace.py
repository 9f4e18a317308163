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
    gamma: drafts that it was run for; the row may have had room for fewer, or
      the draft nothing to say.
    drafted: ids the draft proposed.
    accepted: how many of them the target let stand.
    next_token: the target's own token after these, None where the text ended
      before it.
    p: probability of each draft under the target's law at its place, as it is
      sampled; at temperature 0 it is 1 or 0.
    q: the same under the law the draft was drawn from.
  """

  position: int
  gamma: int
  drafted: list[int]
  accepted: int
  next_token: int | None
  p: list[float]
  q: list[float]


class Trace(struct.PyTreeNode):
  """The rounds of all decodes; leading axes as in `DecodeResult.tokens`.

  Attributes:
    gamma: int32[..., length], that of the round that started from each length
      of text, -1 where no round started.
    drafted: int32[..., length, gamma], the drafts of the round that started
      from each length of text, -1 where there is none; gamma is the largest
      where it varies.
    accepted: int32[..., length], drafts of that round that are in the text, -1
      where no round started.
    count: int32[..., length], tokens that round wrote: `accepted`, and one more
      unless the text ended with them.
    p: float32[..., length, gamma], the target's probability of each draft; 0
      where there is none.
    q: float32[..., length, gamma], the draft's own.
  """

  gamma: jax.Array
  drafted: jax.Array
  accepted: jax.Array
  count: jax.Array
  p: jax.Array
  q: jax.Array

  @classmethod
  def empty(cls, rows: int, length: int, gamma: int) -> Trace:
    """A trace without rounds."""
    return cls(
        gamma=jnp.full([rows, length], -1, jnp.int32),
        drafted=jnp.full([rows, length, gamma], -1, jnp.int32),
        accepted=jnp.full([rows, length], -1, jnp.int32),
        count=jnp.zeros([rows, length], jnp.int32),
        p=jnp.zeros([rows, length, gamma]),
        q=jnp.zeros([rows, length, gamma]),
    )

  def add_round(
      self,
      live: jax.Array,
      positions: jax.Array,
      drafts: jax.Array,
      lengths: jax.Array,
      verified: jax.Array,
      count: jax.Array,
      chances: tuple[jax.Array, jax.Array],
  ) -> Trace:
    """Files one round of the live rows.

    Args:
      live: bool[rows].
      positions: int32[rows], tokens of text before the round.
      drafts: int32[rows, gamma], of any gamma up to the trace's.
      lengths: int32[rows], drafts that are real.
      verified: int32[rows], drafts that verification let stand.
      count: int32[rows], tokens written; EOS may cut the verified ones short.
      chances: float32[rows, gamma] twice, from `verification.chances`.

    Returns:
      The new trace.
    """
    rows = jnp.arange(drafts.shape[0])
    # Ended rows are filed out of range, and so nowhere.
    at = jnp.where(live, positions, self.accepted.shape[1])
    real = jnp.arange(drafts.shape[1]) < lengths[:, None]
    missing = self.drafted.shape[2] - drafts.shape[1]

    def file(old, new, empty):
      new = jnp.pad(
          jnp.where(real, new, empty),
          ((0, 0), (0, missing)),
          constant_values=empty,
      )
      return old.at[rows, at].set(new, mode='drop')

    return Trace(
        gamma=self.gamma.at[rows, at].set(drafts.shape[1], mode='drop'),
        drafted=file(self.drafted, drafts, -1),
        accepted=self.accepted.at[rows, at].set(
            jnp.minimum(verified, count), mode='drop'
        ),
        count=self.count.at[rows, at].set(count, mode='drop'),
        p=file(self.p, chances[0], 0.0),
        q=file(self.q, chances[1], 0.0),
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
    gamma, drafted, accepted, count, p, q = (
        np.asarray(leaf[index])
        for leaf in (
            self.gamma,
            self.drafted,
            self.accepted,
            self.count,
            self.p,
            self.q,
        )
    )
    rounds = []
    for start in map(int, np.flatnonzero(accepted >= 0)):
      n, real = int(accepted[start]), drafted[start] >= 0
      rounds.append(
          Round(
              position=start,
              gamma=int(gamma[start]),
              drafted=drafted[start][real].tolist(),
              accepted=n,
              next_token=int(tokens[start + n]) if count[start] > n else None,
              p=p[start][real].tolist(),
              q=q[start][real].tolist(),
          )
      )
    return rounds
