# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps 3 and 4 of Algorithm 1: which drafts stand, and what follows them.

Pure functions of the two laws, the drafts and keys per row. The law of what
they emit is the target's, whatever q is, as long as q is the law the drafts
were drawn from. Two rules:

- `accept_tokens`, the paper's own: drafts are judged one by one, and the first
  that is rejected ends the round (Appendix A.1).
- `accept_block`, block verification (Sun et al., ICLR 2025, arXiv 2403.10444):
  drafts are judged together, at the same cost, and never fewer stand on
  average.

At temperature 0 the two are one, `accept_greedy`.

Under lenience (Appendix A.5) the output's law is NOT the target's any more:
`accept_tokens` with `lenience` below 1, `accept_near_best` at temperature 0.
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
  stands = _at_drafts(logits, drafts) >= least
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


def _usable(
    q: jax.Array | None, drafts: jax.Array, lengths: jax.Array, vocab: int
) -> tuple[jax.Array, jax.Array]:
  """Which drafts can be judged, and q with zeros where they cannot.

  Args:
    q: float32[rows, gamma, vocab], None for one-hot laws.
    drafts: int32[rows, gamma].
    lengths: int32[rows], how many drafts of each row are real.
    vocab: size of the vocabulary.

  Returns:
    bool[rows, gamma], real drafts whose law is finite, and the laws, zero for
    every other draft: what is left of p then is p itself.
  """
  if q is None:
    q = jax.nn.one_hot(drafts, vocab)
  real = jnp.arange(drafts.shape[1]) < lengths[:, None]
  usable = jnp.all(jnp.isfinite(q), axis=-1) & real
  return usable, jnp.where(usable[..., None], q, 0.0)


def _at_drafts(law: jax.Array, drafts: jax.Array) -> jax.Array:
  """float32[rows, gamma], the probability that a law gives each draft."""
  law = law[:, : drafts.shape[1]]
  return jnp.take_along_axis(law, drafts[..., None], axis=-1)[..., 0]


def _uniform(keys: jax.Array, gamma: int) -> jax.Array:
  """Independent u in [0, 1), float32[rows, gamma]."""
  return jax.vmap(lambda key: jax.random.uniform(key, [gamma]))(keys)


def _conclude(
    p: jax.Array,
    q: jax.Array,
    accepted: jax.Array,
    scale: jax.Array,
    next_keys: jax.Array,
) -> Verdict:
  """Draws the token after the drafts that stand.

  Args:
    p: float32[rows, gamma + 1, vocab].
    q: float32[rows, gamma, vocab], zeros where no draft was judged.
    accepted: int32[rows], drafts that stand.
    scale: float32[rows], what p counts for in the residual.
    next_keys: key[rows].

  Returns:
    The verdict.
  """
  at = accepted[:, None, None]
  p_next = jnp.take_along_axis(p, at, axis=1)[:, 0]
  q_next = jnp.take_along_axis(q, at, axis=1, mode='fill', fill_value=0.0)
  next_token = sampling.draw(next_keys, residual(p_next, q_next[:, 0], scale))
  overlap = jnp.sum(jnp.minimum(p[:, :-1], q), axis=-1)
  return Verdict(accepted, next_token, jnp.nan_to_num(overlap))


def accept_tokens(
    p: jax.Array,
    q: jax.Array | None,
    drafts: jax.Array,
    lengths: jax.Array,
    accept_keys: jax.Array,
    next_keys: jax.Array,
    lenience: float = 1.0,
) -> Verdict:
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
    next_keys: key[rows], for the token after the drafts that stand.
    lenience: l, in (0, 1]; 1 is exact.

  Returns:
    The verdict; `next_token` is drawn from norm(max(0, p - q)) at the first
    rejection, or from p after the last draft. Its overlap is the probability
    of acceptance under lenience, too: sum(min(p / l, q)).
  """
  usable, q = _usable(q, drafts, lengths, p.shape[-1])
  if lenience < 1:
    q = lenience * q
  u = _uniform(accept_keys, drafts.shape[1])
  stands = u * _at_drafts(q, drafts) < _at_drafts(p, drafts)
  accepted = _leading(stands & usable, lengths)
  verdict = _conclude(p, q, accepted, jnp.ones(len(p)), next_keys)
  if lenience < 1:
    verdict = verdict.replace(overlap=verdict.overlap / lenience)
  return verdict


def accept_block(
    p: jax.Array,
    q: jax.Array | None,
    drafts: jax.Array,
    lengths: jax.Array,
    accept_keys: jax.Array,
    next_keys: jax.Array,
) -> Verdict:
  """Block verification: the longest prefix that stands, not the first failure.

  With r_0 = 1 and r_i = min(1, r_{i-1} p_i(x_i) / q_i(x_i)), the first i drafts
  stand together with probability h_i = Z_i / (Z_i + 1 - r_i), where Z_i is the
  sum of max(0, r_i p_{i+1} - q_{i+1}); after the last draft q is 0, so that h
  is r there. However far that reaches, r_i is the probability that at least i
  drafts stand.

  Args:
    p: float32[rows, gamma + 1, vocab], as for `accept_tokens`.
    q: float32[rows, gamma, vocab] or None.
    drafts: int32[rows, gamma].
    lengths: int32[rows].
    accept_keys: key[rows].
    next_keys: key[rows].

  Returns:
    The verdict; `next_token` is drawn from norm(max(0, r_n p_{n+1} - q_{n+1}))
    after n < gamma drafts, or from p after the last one.
  """
  gamma = drafts.shape[1]
  usable, q = _usable(q, drafts, lengths, p.shape[-1])
  r = joint_ratios(
      jnp.where(usable, _at_drafts(p, drafts), 0.0), _at_drafts(q, drafts)
  )
  q_next = jnp.pad(q, ((0, 0), (0, 1), (0, 0)))
  z = jnp.sum(jnp.maximum(r[..., None] * p - q_next, 0.0), axis=-1)
  # Drafts end before a law that is not finite, as they do after the last one:
  # that the target fails after a token must not tell against the token.
  z = jnp.where(jnp.all(jnp.isfinite(p), axis=-1), z, r)
  # Where nothing is left and r is 1, p is q and a longer prefix stands anyway.
  h = jnp.where(r < 1, z / (z + 1 - r), 1.0)
  stands = _uniform(accept_keys, gamma) < h[:, 1:]
  accepted = _last(stands, lengths)
  scale = jnp.take_along_axis(r, accepted[:, None], axis=1)[:, 0]
  return _conclude(p, q, accepted, scale, next_keys)


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
RULES = {'token': accept_tokens, 'block': accept_block}
