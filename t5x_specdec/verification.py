# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The target's call and what it decides: `call_target`, then `verify`."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
import jax.numpy as jnp

from t5x_specdec import acceptance
from t5x_specdec import sampling
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import Proposal
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method


def call_target(
    target: BlockDecoder,
    target_params: PyTree,
    state: Any,
    tokens: jax.Array,
    positions: jax.Array,
    proposal: Proposal,
    may_abstain: bool,
) -> tuple[jax.Array, Any]:
  """One call of the target: the last token of each row and its drafts.

  Args:
    target: the model whose law is sampled.
    target_params: from `target.prepare`.
    state: the target's, before.
    tokens: int32[rows, width] decoder inputs.
    positions: int32[rows], where each row's last token stands.
    proposal: the drafts.
    may_abstain: whether a block of one token is worth compiling, for rounds in
      which no row has a draft.

  Returns:
    float32[rows, gamma + 1, vocab] logits, zeros after position 0 where there
    are no drafts, and the target's state.
  """
  last = jnp.take_along_axis(tokens, positions[:, None], axis=1)
  block = jnp.concatenate([last, proposal.tokens], axis=1)

  def score(block):
    return target.decode_block(target_params, state, block, positions)

  def score_last():
    logits, target_state = score(last)
    rest = ((0, 0), (0, proposal.tokens.shape[1]), (0, 0))
    return jnp.pad(logits, rest), target_state

  if not (may_abstain and proposal.tokens.shape[1]):
    return score(block)
  return lax.cond(
      jnp.any(proposal.lengths > 0), lambda: score(block), score_last
  )


def verify(
    logits: jax.Array,
    proposal: Proposal,
    method: Method,
    accept_keys: jax.Array,
    next_keys: jax.Array,
    rescale_log_probs: bool,
    rule: str,
    lenience: float = 1.0,
) -> tuple[acceptance.Verdict, jax.Array, jax.Array]:
  """Judges the drafts by the target's logits.

  Args:
    logits: float32[rows, gamma + 1, vocab].
    proposal: the drafts.
    method: temperature, top-k, top-p.
    accept_keys: key[rows], for the acceptance.
    next_keys: key[rows], for the token after the drafts that stand.
    rescale_log_probs: whether scores include the sampling method.
    rule: how drafts are judged, a key of `acceptance.RULES`.
    lenience: below 1, with the rule 'token' only, the outcome is LOSSY.

  Returns:
    The verdict, the tokens it emits int32[rows, gamma + 1] (those past
    `accepted` + 1 are meaningless) and their scores, float32 of that shape.
  """
  drafts, lengths = proposal.tokens, proposal.lengths
  all_greedy = jnp.all(method.greedy)

  def judge_greedily():
    if lenience < 1:
      verdict = acceptance.accept_near_best(logits, drafts, lengths, lenience)
    else:
      best = jnp.argmax(logits, axis=-1).astype(jnp.int32)
      verdict = acceptance.accept_greedy(best, drafts, lengths)
    certain = jax.nn.one_hot(verdict.next_token, logits.shape[-1])
    return acceptance.Judgement(verdict.accepted, certain, verdict.overlap)

  def greedy():
    judgement = judge_greedily()
    # The argmax has probability 1 under its own law, so T5X reports 0.0.
    return judgement, (jnp.ones(drafts.shape), judgement.rest)

  def sampled():
    p = sampling.law(logits, method)
    lenient = {'lenience': lenience} if lenience < 1 else {}
    judgement = acceptance.RULES[rule](
        p, proposal.q, drafts, lengths, accept_keys, **lenient
    )
    if lenient:
      # Greedy rows among others are lenient by their own rule.
      judgement = jax.tree.map(
          lambda near, drawn: jnp.where(
              method.greedy.reshape((-1,) + (1,) * (near.ndim - 1)),
              near,
              drawn,
          ),
          judge_greedily(),
          judgement,
      )
    at_drafts = acceptance.at_drafts(p, drafts)
    return judgement, (at_drafts, acceptance.at_next(p, judgement.accepted))

  judgement, (at_drafts, p_next) = lax.cond(all_greedy, greedy, sampled)
  # Drawn by itself: noise takes room, and by now the laws have left theirs.
  verdict = lax.cond(
      all_greedy, judgement.conclude_surely, judgement.conclude, next_keys
  )

  def emit(of_drafts, of_next):
    column = jnp.arange(drafts.shape[1] + 1)
    padded = jnp.pad(of_drafts, ((0, 0), (0, 1)))
    return jnp.where(
        column == verdict.accepted[:, None], of_next[:, None], padded
    )

  tokens = emit(drafts, verdict.next_token)
  if not rescale_log_probs:
    return verdict, tokens, _log_probs(logits, tokens)
  next_token = verdict.next_token[:, None]
  at_next = jnp.take_along_axis(p_next, next_token, axis=1)[:, 0]
  scores = jnp.log(emit(at_drafts, at_next))
  if lenience < 1:
    scores = jnp.where(method.greedy[:, None], 0.0, scores)
  return verdict, tokens, scores


def chances(
    logits: jax.Array, proposal: Proposal, method: Method
) -> tuple[jax.Array, jax.Array]:
  """What target and draft gave each draft, for those who want to look at it.

  Args:
    logits: float32[rows, gamma + 1, vocab], of the target.
    proposal: the drafts.
    method: temperature, top-k, top-p.

  Returns:
    p(x) and q(x), float32[rows, gamma] each, under the laws that are sampled.
  """
  drafts = proposal.tokens[..., None]

  def of(law):
    return jnp.take_along_axis(law, drafts, axis=-1)[..., 0]

  certain = jnp.ones(proposal.tokens.shape)
  q = certain if proposal.q is None else of(proposal.q)
  logits = logits[:, : drafts.shape[1]]
  p = lax.cond(
      jnp.all(method.greedy),
      lambda: (jnp.argmax(logits, axis=-1) == proposal.tokens) * certain,
      lambda: of(sampling.law(logits, method)),
  )
  # Where all rows are greedy no draft computes its law.
  return p, jnp.where(method.greedy[:, None], certain, q)


def _log_probs(logits: jax.Array, tokens: jax.Array) -> jax.Array:
  """Log-probabilities float32[rows, block] of tokens under the logits."""
  chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
  return chosen - jax.nn.logsumexp(logits, axis=-1)
