# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps 3 and 4 of Algorithm 1: which drafts stand, and what follows them.

Pure functions of the two laws, the drafts and keys per row. The law of what
they emit is the target's, whatever q is, as long as q is the law the drafts
were drawn from. Two rules:

- `judge_tokens`, the paper's own: drafts are judged one by one, and the first
  that is rejected ends the round (Appendix A.1).
- `judge_block`, block verification (Sun et al., ICLR 2025, arXiv 2403.10444):
  drafts are judged together, at the same cost, and never fewer stand on
  average.

They leave the next token to be drawn by itself, when p and q have left their
room. At temperature 0 the two are one, `accept_greedy`.

Under lenience (Appendix A.5) the output's law is NOT the target's any more:
`judge_tokens` with `lenience` below 1, `accept_near_best` at temperature 0.
"""

from __future__ import annotations

import math

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


class Judgement(struct.PyTreeNode):
  """What is decided before the token after the drafts is drawn.

  Attributes:
    accepted: int32[rows], as in `Verdict`.
    rest: float32[rows, vocab], what the next token is to be drawn from, up to
      its norm.
    overlap: float32[rows, gamma], as in `Verdict`.
  """

  accepted: jax.Array
  rest: jax.Array
  overlap: jax.Array

  def conclude(self, next_keys: jax.Array) -> Verdict:
    """Draws the next token with key[rows]."""
    next_token = sampling.draw(next_keys, self.rest)
    return Verdict(self.accepted, next_token, self.overlap)

  def conclude_surely(self, _: jax.Array) -> Verdict:
    """The same where every row's `rest` leaves one token: no random numbers."""
    next_token = jnp.argmax(self.rest, axis=-1).astype(jnp.int32)
    return Verdict(self.accepted, next_token, self.overlap)


def _leading(stands: jax.Array, lengths: jax.Array) -> jax.Array:
  """Counts the leading True among the first lengths[b] of bool[rows, gamma]."""
  real = jnp.arange(stands.shape[1]) < lengths[:, None]
  run = jnp.cumprod((stands & real).astype(jnp.int32), axis=1)
  return jnp.sum(run, axis=1)


def _last(stands: jax.Array, lengths: jax.Array) -> jax.Array:
  """The last i for which prefix i stands, of bool[rows, gamma]; 0 for none."""
  i = jnp.arange(1, stands.shape[1] + 1)
  last = jnp.where(stands & (i <= lengths[:, None]), i, 0)
  return jnp.max(last, axis=1, initial=0)


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


def accept_near_best(
    logits: jax.Array, drafts: jax.Array, lengths: jax.Array, lenience: float
) -> Verdict:
  """LOSSY: lenience at temperature 0, a draft stands if it is likely enough.

  Draft x stands if p(x) >= l max(p), p being the model's own law, at
  temperature 1 and without filters (Appendix A.5).

  Args:
    logits: float32[rows, gamma + 1, vocab], as the target gives them.
    drafts: int32[rows, gamma].
    lengths: int32[rows], how many drafts of each row are real.
    lenience: l, in (0, 1).

  Returns:
    The verdict; the token after the drafts that stand is the argmax.
  """
  least = jnp.max(logits, axis=-1)[:, :-1] + math.log(lenience)
  stands = at_drafts(logits, drafts) >= least
  accepted = _leading(stands, lengths)
  best = jnp.argmax(logits, axis=-1).astype(jnp.int32)
  next_token = jnp.take_along_axis(best, accepted[:, None], axis=1)[:, 0]
  return Verdict(accepted, next_token, stands.astype(jnp.float32))


def residual(p: jax.Array, q: jax.Array, scale: jax.Array) -> jax.Array:
  """norm(max(0, scale p - q)) up to its norm; p where rounding leaves nothing.

  Where scale p equals q nothing is ever rejected in exact arithmetic, so
  whatever is returned then is drawn from with a probability of the order of
  rounding; p keeps it inside the target's support.

  Args:
    p: float32[rows, vocab].
    q: float32[rows, vocab], finite.
    scale: float32[rows], what p counts for: 1, or r of block verification.

  Returns:
    float32[rows, vocab], not negative, not all zero where p is not.
  """
  rest = jnp.maximum(scale[:, None] * p - q, 0.0)
  empty = jnp.sum(rest, axis=-1, keepdims=True) == 0
  return jnp.where(empty, p, rest)


def _usable(q: jax.Array, lengths: jax.Array) -> jax.Array:
  """Which drafts can be judged: real ones whose law is finite.

  Args:
    q: float32[rows, gamma, vocab].
    lengths: int32[rows], how many drafts of each row are real.

  Returns:
    bool[rows, gamma].
  """
  real = jnp.arange(q.shape[1]) < lengths[:, None]
  return jnp.isfinite(jnp.sum(q, axis=-1)) & real


def _counted(q: jax.Array, usable: jax.Array) -> jax.Array:
  """q, or what was read of it, zero for drafts that cannot be judged.

  What is left of p then is p itself. Called on what was read of q: XLA would
  store all of it once more.
  """
  return jnp.where(usable, q, 0.0)


def at_drafts(law: jax.Array, drafts: jax.Array) -> jax.Array:
  """float32[rows, gamma], the probability that a law gives each draft."""
  gamma = drafts.shape[1]
  tokens = jnp.pad(drafts, ((0, 0), (0, law.shape[1] - gamma)))
  found = jnp.take_along_axis(law, tokens[..., None], axis=-1)
  return found[:, :gamma, 0]


def _uniform(keys: jax.Array, gamma: int) -> jax.Array:
  """Independent u in [0, 1), float32[rows, gamma]."""
  return jax.vmap(lambda key: jax.random.uniform(key, [gamma]))(keys)


def at_next(law: jax.Array, accepted: jax.Array) -> jax.Array:
  """float32[rows, vocab], the law after the drafts that stand; 0 past its end.

  Args:
    law: float32[rows, block, vocab].
    accepted: int32[rows].
  """
  at = accepted[:, None, None]
  row = jnp.take_along_axis(law, at, axis=1, mode='fill', fill_value=0.0)
  return row[:, 0]


def _judgement(
    p: jax.Array,
    q: jax.Array,
    usable: jax.Array,
    accepted: jax.Array,
    scale: jax.Array,
) -> Judgement:
  """Finds what is left for the token after the drafts that stand.

  Args:
    p: float32[rows, gamma + 1, vocab].
    q: float32[rows, gamma, vocab].
    usable: bool[rows, gamma], drafts that can be judged.
    accepted: int32[rows], drafts that stand.
    scale: float32[rows], what p counts for in the residual.

  Returns:
    The judgement.
  """
  judged = at_next(usable[..., None], accepted)
  q_next = _counted(at_next(q, accepted), judged)
  rest = residual(at_next(p, accepted), q_next, scale)
  overlap = _counted(jnp.sum(jnp.minimum(p[:, :-1], q), axis=-1), usable)
  return Judgement(accepted, rest, jnp.nan_to_num(overlap))


def judge_tokens(
    p: jax.Array,
    q: jax.Array | None,
    drafts: jax.Array,
    lengths: jax.Array,
    accept_keys: jax.Array,
    lenience: float = 1.0,
) -> Judgement:
  """Algorithm 1, steps 3 and 4.

  Draft x stands if u q(x) < p(x) with u uniform in [0, 1): no division, and a
  token that the target cannot emit never stands.

  With lenience l below 1, which is LOSSY, l q takes the place of q in all of it
  (Appendix A.5): x stands with probability min(1, p(x) / (l q(x))), and what
  follows a rejection is drawn from norm(max(0, p - l q)). No token is emitted
  with a probability over p(x) / l. For with beta = sum(min(p / l, q)) a token
  comes from the draft with probability min(p / l, q), and from the residual
  with max(0, p / l - q) (1 - beta) / (1 / l - beta), whose factor is at most 1.
  Plain p in place of the residual would break that bound.

  Args:
    p: float32[rows, gamma + 1, vocab], the target's law at each position.
    q: float32[rows, gamma, vocab], the law each draft was drawn from; None for
      a draft that is certain of its token (one-hot q). A row of q that is not
      finite rejects its draft and counts as q = 0.
    drafts: int32[rows, gamma].
    lengths: int32[rows], how many drafts of each row are real.
    accept_keys: key[rows], for the uniform numbers u.
    lenience: l, in (0, 1]; 1 is exact.

  Returns:
    The judgement; `rest` is max(0, p - q) at the first rejection, or p after
    the last draft. Its overlap is the probability of acceptance under
    lenience, too: sum(min(p / l, q)).
  """
  q = jax.nn.one_hot(drafts, p.shape[-1]) if q is None else q
  usable = _usable(q, lengths)
  if lenience < 1:
    q = lenience * q
  u = _uniform(accept_keys, drafts.shape[1])
  stands = u * at_drafts(q, drafts) < at_drafts(p, drafts)
  accepted = _leading(stands & usable, lengths)
  judgement = _judgement(p, q, usable, accepted, jnp.ones(len(p)))
  if lenience < 1:
    judgement = judgement.replace(overlap=judgement.overlap / lenience)
  return judgement


def judge_block(
    p: jax.Array,
    q: jax.Array | None,
    drafts: jax.Array,
    lengths: jax.Array,
    accept_keys: jax.Array,
) -> Judgement:
  """Block verification: the longest prefix that stands, not the first failure.

  With r_0 = 1 and r_i = min(1, r_{i-1} p_i(x_i) / q_i(x_i)), the first i drafts
  stand together with probability h_i = Z_i / (Z_i + 1 - r_i), where Z_i is the
  sum of max(0, r_i p_{i+1} - q_{i+1}); after the last draft q is 0, so that h
  is r there. However far that reaches, r_i is the probability that at least i
  drafts stand.

  Args:
    p: float32[rows, gamma + 1, vocab], as for `judge_tokens`.
    q: float32[rows, gamma, vocab] or None.
    drafts: int32[rows, gamma].
    lengths: int32[rows].
    accept_keys: key[rows].

  Returns:
    The judgement; `rest` is max(0, r_n p_{n+1} - q_{n+1}) after n < gamma
    drafts, or p after the last one.
  """
  gamma = drafts.shape[1]
  q = jax.nn.one_hot(drafts, p.shape[-1]) if q is None else q
  usable = _usable(q, lengths)
  r = joint_ratios(
      *(_counted(at_drafts(law, drafts), usable) for law in (p, q))
  )
  rest = jnp.maximum(r[:, :-1, None] * p[:, :-1] - q, 0.0)
  z = jnp.sum(rest, axis=-1)
  # Drafts end before a law that is not finite, as they do after the last one:
  # that the target fails after a token must not tell against the token.
  finite = jnp.isfinite(jnp.sum(p, axis=-1))[:, :-1]
  z = jnp.where(usable & finite, z, r[:, :-1])
  z = jnp.append(z, r[:, -1:], axis=1)
  # Where nothing is left and r is 1, p is q and a longer prefix stands anyway.
  h = jnp.where(r < 1, z / (z + 1 - r), 1.0)
  stands = _uniform(accept_keys, gamma) < h[:, 1:]
  accepted = _last(stands, lengths)
  scale = jnp.take_along_axis(r, accepted[:, None], axis=1)[:, 0]
  return _judgement(p, q, usable, accepted, scale)


def joint_ratios(px: jax.Array, qx: jax.Array) -> jax.Array:
  """r_i = min(1, r_{i-1} px_i / qx_i), and r_0 = 1.

  The quotient is taken only where it is under 1: it never overflows, however
  small qx is.

  Args:
    px: float32[rows, gamma], the target's probability of each draft.
    qx: float32[rows, gamma], the draft's.

  Returns:
    float32[rows, gamma + 1].
  """
  r = [jnp.ones(len(px))]
  for i in range(px.shape[1]):
    mass = r[-1] * px[:, i]
    full = (mass >= qx[:, i]) & (mass > 0)
    below = jnp.where(qx[:, i] > mass, qx[:, i], 1.0)
    r.append(jnp.where(full, 1.0, mass / below))
  return jnp.nan_to_num(jnp.stack(r, axis=1))


# By the name that `speculative_decode` knows them by.
RULES = {'token': judge_tokens, 'block': judge_block}
