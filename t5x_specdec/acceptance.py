# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps 3 and 4 of Algorithm 1: which drafts stand, and what follows them.

Pure functions of the two laws, the drafts and keys per row. The law of what
they emit is the target's, whatever q is (Appendix A.1), as long as q is the law
the drafts were drawn from.
"""

from __future__ import annotations

from flax import struct
import jax
import jax.numpy as jnp

from t5x_specdec import sampling


class Verdict(struct.PyTreeNode):
  """What a round of verification decided.

  Attributes:
    accepted: int32[rows], n of Algorithm 1: leading drafts that stand.
    next_token: int32[rows], the token after them.
    overlap: float32[rows, gamma], sum over x of min(p(x), q(x)): the acceptance
      probability beta of each draft (Theorem 3.5).
  """

  accepted: jax.Array
  next_token: jax.Array
  overlap: jax.Array


def _leading(stands: jax.Array, lengths: jax.Array) -> jax.Array:
  """Counts the leading True among the first lengths[b] of bool[rows, gamma]."""
  real = jnp.arange(stands.shape[1]) < lengths[:, None]
  run = jnp.cumprod((stands & real).astype(jnp.int32), axis=1)
  return jnp.sum(run, axis=1)


def accept_greedy(
    best: jax.Array, drafts: jax.Array, lengths: jax.Array
) -> Verdict:
  """Algorithm 1 at temperature 0: a draft stands if it is the target's argmax.

  Args:
    best: int32[rows, gamma + 1], the target's argmax at each position.
    drafts: int32[rows, gamma].
    lengths: int32[rows], how many drafts of each row are real.

  Returns:
    The verdict.
  """
  stands = drafts == best[:, :-1]
  accepted = _leading(stands, lengths)
  next_token = jnp.take_along_axis(best, accepted[:, None], axis=1)[:, 0]
  return Verdict(accepted, next_token, stands.astype(jnp.float32))


def residual(p: jax.Array, q: jax.Array) -> jax.Array:
  """norm(max(0, p - q)) up to its norm; p itself where rounding leaves nothing.

  Where p equals q nothing is ever rejected in exact arithmetic, so whatever is
  returned then is drawn from with a probability of the order of rounding; p
  keeps it inside the target's support.

  Args:
    p: float32[rows, vocab].
    q: float32[rows, vocab], finite.

  Returns:
    float32[rows, vocab], not negative, not all zero where p is not.
  """
  rest = jnp.maximum(p - q, 0.0)
  empty = jnp.sum(rest, axis=-1, keepdims=True) == 0
  return jnp.where(empty, p, rest)


def accept(
    p: jax.Array,
    q: jax.Array | None,
    drafts: jax.Array,
    lengths: jax.Array,
    accept_keys: jax.Array,
    next_keys: jax.Array,
) -> Verdict:
  """Algorithm 1, steps 3 and 4.

  Draft x stands if u q(x) < p(x) with u uniform in [0, 1): no division, and a
  token that the target cannot emit never stands.

  Args:
    p: float32[rows, gamma + 1, vocab], the target's law at each position.
    q: float32[rows, gamma, vocab], the law each draft was drawn from; None for
      a draft that is certain of its token (one-hot q). A row of q that is not
      finite rejects its draft and counts as q = 0.
    drafts: int32[rows, gamma].
    lengths: int32[rows], how many drafts of each row are real.
    accept_keys: key[rows], for the uniform numbers u.
    next_keys: key[rows], for the token after the drafts that stand.

  Returns:
    The verdict; `next_token` is drawn from norm(max(0, p - q)) at the first
    rejection, or from p after the last draft.
  """
  rows, gamma = drafts.shape
  vocab = p.shape[-1]
  if q is None:
    q = jax.nn.one_hot(drafts, vocab)
  usable = jnp.all(jnp.isfinite(q), axis=-1)
  q = jnp.where(usable[..., None], q, 0.0)
  u = jax.vmap(lambda key: jax.random.uniform(key, [gamma]))(accept_keys)
  px, qx = (
      jnp.take_along_axis(law, drafts[..., None], axis=-1)[..., 0]
      for law in (p[:, :gamma], q)
  )
  stands = (u * qx < px) & usable
  accepted = _leading(stands, lengths)

  # One row of p and q each: the residual is needed at one position only.
  at = accepted[:, None, None]
  p_next = jnp.take_along_axis(p, at, axis=1)[:, 0]
  q_padded = jnp.concatenate([q, jnp.zeros([rows, 1, vocab])], axis=1)
  q_next = jnp.take_along_axis(q_padded, at, axis=1)[:, 0]
  rejected = (accepted < lengths)[:, None]
  weights = jnp.where(rejected, residual(p_next, q_next), p_next)
  next_token = sampling.draw(next_keys, weights)
  overlap = jnp.sum(jnp.minimum(p[:, :gamma], q), axis=-1)
  return Verdict(accepted, next_token, jnp.nan_to_num(overlap))
