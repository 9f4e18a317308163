# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""One round of speculative decoding: draft, verify, accept, commit.

The body of the loop that `decoding` compiles. Rows of a batch stand at
different positions and never wait for each other; a row that has ended keeps
its place and is not counted.
"""

from __future__ import annotations

from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from t5x_specdec import acceptance
from t5x_specdec import sampling
from t5x_specdec import verification
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import Draft
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method
from t5x_specdec.stats import Stats
from t5x_specdec.trace import Trace


class LoopState(struct.PyTreeNode):
  """Carry of the decoding loop.

  Attributes:
    tokens: int32[rows, width] decoder inputs: the start token 0, then the text.
    lengths: int32[rows], tokens of text so far, prompt included; at the same
      time the position of the row's last token.
    ended: bool[rows].
    scores: float32[rows].
    target: the target's state.
    draft: the draft's state.
    stats: counters so far.
    trace: rounds so far, None where nobody asked for them.
  """

  tokens: jax.Array
  lengths: jax.Array
  ended: jax.Array
  scores: jax.Array
  target: Any
  draft: Any
  stats: Stats
  trace: Trace | None


class Request(struct.PyTreeNode):
  """What is constant over the loop, per row, all traced.

  Attributes:
    forced: int32[rows, width] decoder inputs that the prompt fixes, 0 where
      free.
    max_len: int32[rows], length of text at which a row ends.
    eos_id: int32[].
    method: temperature, top-k, top-p.
    keys: key[rows].
  """

  forced: jax.Array
  max_len: jax.Array
  eos_id: jax.Array
  method: Method
  keys: jax.Array


def _free_drafts(state: LoopState, request: Request, gamma: int) -> jax.Array:
  """How many drafts each row has room for, int32[rows].

  One token of the target's own always follows, and a token that the prompt
  fixes is never drafted, so drafts end where either would stand.
  """
  room = request.max_len - state.lengths - 1
  slots = state.lengths[:, None] + 1 + jnp.arange(gamma)
  forced = jnp.take_along_axis(request.forced, slots, axis=1) != 0
  free = jnp.sum(jnp.cumprod(1 - forced.astype(jnp.int32), axis=1), axis=1)
  return jnp.clip(jnp.minimum(room, free), 0, gamma)


def _commit(
    state: LoopState,
    request: Request,
    verdict: acceptance.Verdict,
    emitted: jax.Array,
    scores: jax.Array,
) -> tuple[LoopState, jax.Array, jax.Array]:
  """Writes what a round emitted; ends rows at EOS or at their length.

  Args:
    state: the loop before.
    request: what is constant over the loop.
    verdict: the round's verdict.
    emitted: int32[rows, gamma + 1].
    scores: float32[rows, gamma + 1].

  Returns:
    The loop with tokens, lengths, ended and scores updated; how many tokens
    each row wrote, int32[rows]; whether the last was the prompt's, bool[rows].
  """
  column = jnp.arange(emitted.shape[1])
  slots = state.lengths[:, None] + 1 + column
  prompt = jnp.take_along_axis(request.forced, slots, axis=1)
  at_end = column == verdict.accepted[:, None]
  emitted = jnp.where(at_end & (prompt != 0), prompt, emitted)
  forced = jnp.any(at_end & (prompt != 0), axis=1)

  written = column <= verdict.accepted[:, None]
  eos = written & (emitted == request.eos_id) & (prompt == 0)
  any_eos = jnp.any(eos, axis=1)
  count = jnp.where(any_eos, jnp.argmax(eos, axis=1), verdict.accepted) + 1
  forced &= count == verdict.accepted + 1
  count = jnp.where(state.ended, 0, count)

  slot = jnp.arange(state.tokens.shape[1]) - (state.lengths[:, None] + 1)
  new = jnp.take_along_axis(
      emitted, jnp.clip(slot, 0, emitted.shape[1] - 1), axis=1
  )
  is_new = (slot >= 0) & (slot < count[:, None])
  scored = (column < count[:, None]) & (prompt == 0)
  lengths = state.lengths + count
  state = state.replace(
      tokens=jnp.where(is_new, new, state.tokens),
      lengths=lengths,
      ended=state.ended | any_eos | (lengths >= request.max_len),
      scores=state.scores + jnp.sum(jnp.where(scored, scores, 0.0), axis=1),
  )
  return state, count, forced


def run_round(
    state: LoopState,
    request: Request,
    target: BlockDecoder,
    draft: Draft,
    target_params: PyTree,
    draft_params: PyTree,
    gamma: int,
    rescale_log_probs: bool,
    rule: str,
    lenience: float = 1.0,
) -> LoopState:
  """One round for every row that has not ended.

  Args:
    state: the loop before.
    request: what is constant over the loop.
    target: the model whose law is sampled.
    draft: the source of drafts.
    target_params: from `target.prepare`.
    draft_params: from `draft.prepare`.
    gamma: drafts of this round, at most the counters' and the trace's; 0 is a
      plain step.
    rescale_log_probs: whether scores include the sampling method.
    rule: how drafts are judged, a key of `acceptance.RULES`.
    lenience: 1, or less for a LOSSY round.

  Returns:
    The loop after.
  """
  positions = state.lengths
  draft_keys, accept_keys, next_keys = sampling.round_keys(
      request.keys, positions, gamma
  )
  with jax.named_scope('draft'):
    room = _free_drafts(state, request, gamma)
    # A row that has ended drafts nothing for others to wait for.
    room = jnp.where(state.ended, 0, room)
    proposal, draft_state = draft.propose(
        draft_params,
        state.draft,
        state.tokens,
        positions,
        request.method,
        gamma,
        room,
        draft_keys,
    )
    proposal = proposal.replace(lengths=jnp.minimum(proposal.lengths, room))
  with jax.named_scope('verify'):
    logits, target_state = verification.call_target(
        target,
        target_params,
        state.target,
        state.tokens,
        positions,
        proposal,
        draft.may_abstain,
    )
  with jax.named_scope('accept'):
    verdict, emitted, scores = verification.verify(
        logits,
        proposal,
        request.method,
        accept_keys,
        next_keys,
        rescale_log_probs,
        rule,
        lenience,
    )
    live = ~state.ended
    state, count, forced = _commit(state, request, verdict, emitted, scores)
    finite = jnp.isfinite(jnp.max(logits, axis=-1))
    judged = jnp.arange(gamma + 1) <= verdict.accepted[:, None]
    stats = state.stats.add_round(
        live=live,
        lengths=proposal.lengths,
        verified=verdict.accepted,
        count=count,
        forced=forced,
        overlap=verdict.overlap,
        finite=jnp.all(finite | ~judged, axis=1),
    )
    trace = state.trace
    if trace is not None:
      trace = trace.add_round(
          live,
          positions,
          proposal.tokens,
          proposal.lengths,
          verdict.accepted,
          count,
          verification.chances(logits, proposal, request.method),
      )
  return state.replace(
      target=target_state, draft=draft_state, stats=stats, trace=trace
  )
