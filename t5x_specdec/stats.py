# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counters of a run, per row, and the paper's quantities read off them."""

from __future__ import annotations

import dataclasses

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

# Where the aux of a T5X model has the counters of `Stats`.
SPECULATION = 'speculation'
# Counters with an axis of gamma + 1.
PER_GAMMA = ('histogram', 'rounds_by_gamma')


class Stats(struct.PyTreeNode):
  """What happened in each row; all leading axes are rows.

  Attributes:
    rounds: int32[...], target calls (prefilling a prompt is not counted).
    drafted: int32[...], tokens proposed within the row's length.
    judged: int32[...], drafts that were compared with the target: the accepted
      ones and the first rejected one of each round.
    accepted: int32[...], drafts that were emitted.
    emitted: int32[...], tokens generated, EOS included, the prompt not.
    histogram: int32[..., gamma + 1], rounds by the number of drafts accepted;
      gamma is the largest where it varies.
    rounds_by_gamma: int32[..., gamma + 1], rounds by the gamma they were run
      at.
    overlap: float32[...], sum(min(p, q)) added up over the judged drafts.
    nonfinite: int32[...], rounds in which the target's logits at a position
      that was used held a NaN or +inf, or nothing finite: the row's text is not
      to be trusted from there on.
    lenient: int32[...], rounds judged with a lenience below 1, whose text is
      not the target's; None where all were exact.
  """

  rounds: jax.Array
  drafted: jax.Array
  judged: jax.Array
  accepted: jax.Array
  emitted: jax.Array
  histogram: jax.Array
  rounds_by_gamma: jax.Array
  overlap: jax.Array
  nonfinite: jax.Array
  lenient: jax.Array | None = None

  @classmethod
  def zeros(cls, rows: int, gamma: int, lenient: bool = False) -> Stats:
    """Counters before the first round."""
    zero = jnp.zeros([rows], jnp.int32)
    return cls(
        rounds=zero,
        drafted=zero,
        judged=zero,
        accepted=zero,
        emitted=zero,
        histogram=jnp.zeros([rows, gamma + 1], jnp.int32),
        rounds_by_gamma=jnp.zeros([rows, gamma + 1], jnp.int32),
        overlap=jnp.zeros([rows], jnp.float32),
        nonfinite=zero,
        lenient=zero if lenient else None,
    )

  def add_round(
      self,
      *,
      live: jax.Array,
      lengths: jax.Array,
      verified: jax.Array,
      count: jax.Array,
      forced: jax.Array,
      overlap: jax.Array,
      finite: jax.Array,
  ) -> Stats:
    """Adds one round of the live rows.

    Args:
      live: bool[rows], rows that had not ended before it.
      lengths: int32[rows], drafts proposed.
      verified: int32[rows], drafts that verification let stand.
      count: int32[rows], tokens written; EOS may cut the verified ones short.
      forced: bool[rows], whether the last of them was the prompt's own.
      overlap: float32[rows, gamma], sum(min(p, q)) of each draft.
      finite: bool[rows], whether the target's logits were.

    Returns:
      The new counters.
    """
    accepted = jnp.minimum(verified, count)
    # A text that ended with its last verified draft has judged no other.
    rejected = (count > verified) & (verified < lengths)
    judged = accepted + rejected
    gamma = overlap.shape[1]
    was_judged = jnp.arange(gamma) < judged[:, None]
    live_int = live.astype(jnp.int32)
    width = self.histogram.shape[1]
    bins = jax.nn.one_hot(accepted, width, dtype=jnp.int32)
    ran_at = jax.nn.one_hot(gamma, width, dtype=jnp.int32)
    return Stats(
        rounds=self.rounds + live_int,
        drafted=self.drafted + live_int * lengths,
        judged=self.judged + live_int * judged,
        accepted=self.accepted + live_int * accepted,
        emitted=self.emitted + live_int * (count - forced),
        histogram=self.histogram + live_int[:, None] * bins,
        rounds_by_gamma=self.rounds_by_gamma + live_int[:, None] * ran_at,
        overlap=self.overlap
        + jnp.sum(jnp.where(was_judged & live[:, None], overlap, 0.0), axis=1),
        nonfinite=self.nonfinite + (live & ~finite).astype(jnp.int32),
        lenient=None if self.lenient is None else self.lenient + live_int,
    )

  def counters(self) -> dict[str, jax.Array]:
    """The counters by name, as a T5X model's aux has them."""
    return {
        field.name: getattr(self, field.name)
        for field in dataclasses.fields(self)
        if getattr(self, field.name) is not None
    }

  def summary(self) -> dict[str, float | int | list[int] | None]:
    """Totals over all rows and the ratios the paper speaks of.

    Returns:
      rounds, drafted, judged, accepted, emitted, nonfinite, histogram,
      rounds_by_gamma, and
      alpha_empirical: accepted / judged;
      alpha: Corollary 3.6, the mean of sum(min(p, q)) over the judged drafts;
      tokens_per_target_call: emitted / rounds, to hold against Equation 1;
      exact: whether every round kept the target's law, lenience being 1.
      A ratio without a denominator is None.
    """
    names = ('rounds', 'drafted', 'judged', 'accepted', 'emitted', 'nonfinite')
    total: dict = {name: int(np.sum(getattr(self, name))) for name in names}
    for name in PER_GAMMA:
      bins = np.asarray(getattr(self, name))
      total[name] = bins.reshape(-1, bins.shape[-1]).sum(axis=0).tolist()

    def ratio(numerator, denominator):
      return numerator / denominator if denominator else None

    overlap = float(np.sum(np.asarray(self.overlap, np.float64)))
    total['alpha'] = ratio(overlap, total['judged'])
    total['alpha_empirical'] = ratio(total['accepted'], total['judged'])
    total['tokens_per_target_call'] = ratio(total['emitted'], total['rounds'])
    total['exact'] = self.lenient is None or not np.any(self.lenient)
    return total
