# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the decoding loop, and rounds of them, each compiled alone.

Every loop runs over the caches that decoding uses, at positions spread over the
whole text, and passes its state on as the decoding loop does. Nothing of what a
part computes can be left out: logits are reduced to their largest, proposals
are carried.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import sampling
from t5x_specdec import verification
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import Proposal
from t5x_specdec.drafts.model import ModelDraftState
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method


@dataclasses.dataclass
class Held:
  """A model's state, which one loop at a time takes, and leaves another."""

  state: Any


def spread(start: int, end: int, steps: int) -> np.ndarray:
  """Positions int32[steps] evenly spread over [start, end), fewer if short."""
  steps = min(steps, end - start)
  return start + np.arange(steps, dtype=np.int32) * (end - start) // steps


@functools.partial(jax.jit, static_argnames=('decoder', 'rows', 'max_len'))
def encode(
    params: PyTree,
    inputs: jax.Array,
    prompt: jax.Array,
    *,
    decoder: BlockDecoder,
    rows: int,
    max_len: int,
) -> Any:
  """The target's state before the first round, as `decoding` makes it.

  Args:
    params: from `decoder.prepare`.
    inputs: int32[batch, S].
    prompt: int32[rows, P] decoder inputs that come before the last one known; P
      may be 0.
    decoder: the target.
    rows: rows to decode.
    max_len: of the caches.

  Returns:
    The decoder's state.
  """
  state = decoder.init(params, inputs, rows, max_len)
  if prompt.shape[1]:
    start = jnp.zeros([rows], jnp.int32)
    _, state = decoder.decode_block(params, state, prompt, start)
  return state


@functools.partial(jax.jit, static_argnames=('draft', 'max_len'))
def encode_draft(
    params: PyTree,
    inputs: jax.Array,
    prompt: jax.Array,
    *,
    draft: Draft,
    max_len: int,
) -> Any:
  """The draft's state before the first round; see `encode`."""
  return draft.init(params, inputs, prompt, max_len)


@functools.partial(
    jax.jit, static_argnames=('decoder', 'width'), donate_argnames='state'
)
def _blocks(params, state, text, positions, *, decoder, width):
  rows = text.shape[0]

  def step(i, carry):
    state, largest = carry
    at = positions[i]
    block = lax.dynamic_slice_in_dim(text, at, width, axis=1)
    logits, state = decoder.decode_block(
        params, state, block, jnp.broadcast_to(at, [rows])
    )
    return state, jnp.maximum(largest, jnp.max(logits))

  return lax.fori_loop(0, len(positions), step, (state, -jnp.inf))


def _propose(params, state, text, at, method, keys, *, draft, gamma):
  # Positions are apart; as from one round to the next, there is no hole.
  if isinstance(state, ModelDraftState):
    state = state.replace(reach=at)
  room = jnp.full_like(at, gamma)
  return draft.propose(params, state, text, at, method, gamma, room, keys)


@functools.partial(
    jax.jit, static_argnames=('draft', 'gamma'), donate_argnames='state'
)
def _proposals(params, state, text, positions, method, *, draft, gamma):
  keys = sampling.row_keys(jax.random.key(0), text.shape[0])
  keys = jax.vmap(lambda key: jax.random.split(key, gamma))(keys)

  def propose(state, at):
    at = jnp.broadcast_to(at, [text.shape[0]])
    return _propose(
        params, state, text, at, method, keys, draft=draft, gamma=gamma
    )

  shapes = jax.eval_shape(propose, state, positions[0])[0]
  empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  return lax.fori_loop(
      0,
      len(positions),
      lambda i, carry: propose(carry[0], positions[i])[::-1],
      (state, empty),
  )


def _judge(params, state, text, at, proposal, method, keys, *, decoder, rule):
  """The state after, and int32[rows] of what was accepted and emitted."""
  logits, state = verification.call_target(
      decoder, params, state, text, at, proposal, False
  )
  accept_keys, next_keys = keys
  verdict, tokens, _ = verification.verify(
      logits, proposal, method, accept_keys, next_keys, True, rule
  )
  return state, verdict.accepted + tokens[:, 0]


@functools.partial(
    jax.jit, static_argnames=('decoder', 'rule'), donate_argnames='state'
)
def _judgements(
    params, state, text, positions, proposal, method, *, decoder, rule
):
  rows = text.shape[0]
  keys = sampling.row_keys(jax.random.key(0), rows)

  def step(i, carry):
    state, last = carry
    at = jnp.broadcast_to(positions[i], [rows])
    _, *judge_keys = sampling.round_keys(keys, at, proposal.tokens.shape[1])
    state, outcome = _judge(
        params, state, text, at, proposal, method, judge_keys,
        decoder=decoder, rule=rule,
    )
    return state, last + outcome

  start = state, jnp.zeros([rows], jnp.int32)
  return lax.fori_loop(0, len(positions), step, start)


@functools.partial(
    jax.jit,
    static_argnames=('models', 'gamma', 'rule'),
    donate_argnames='states',
)
def _rounds(params, states, text, positions, method, *, models, gamma, rule):
  rows = text.shape[0]
  keys = sampling.row_keys(jax.random.key(0), rows)
  decoder, draft = models

  def step(i, carry):
    (target_state, draft_state), last = carry
    at = jnp.broadcast_to(positions[i], [rows])
    draft_keys, *judge_keys = sampling.round_keys(keys, at, gamma)
    proposal, draft_state = _propose(
        params[1], draft_state, text, at, method, draft_keys,
        draft=draft, gamma=gamma,
    )
    target_state, outcome = _judge(
        params[0], target_state, text, at, proposal, method, judge_keys,
        decoder=decoder, rule=rule,
    )
    return (target_state, draft_state), last + outcome

  start = states, jnp.zeros([rows], jnp.int32)
  return lax.fori_loop(0, len(positions), step, start)


def _repeat(loop: Callable[[Any], tuple[Any, Any]], held: Held):
  """A function that runs the loop once more on the state that is held."""

  def run():
    held.state, rest = loop(held.state)
    jax.block_until_ready((held.state, rest))

  return run


def blocks(
    decoder: BlockDecoder,
    params: PyTree,
    held: Held,
    text: np.ndarray,
    positions: np.ndarray,
    width: int,
) -> Callable[[], None]:
  """Scores a block of `width` tokens at each position.

  Args:
    decoder: target or draft model.
    params: from `decoder.prepare`.
    held: the state, from `encode`.
    text: int32[rows, max_len] decoder inputs.
    positions: int32[steps].
    width: of the block.

  Returns:
    A function that does so and waits for the end.
  """

  def loop(state):
    return _blocks(
        params, state, text, positions, decoder=decoder, width=width
    )

  return _repeat(loop, held)


def proposals(
    draft: Draft,
    params: PyTree,
    held: Held,
    text: np.ndarray,
    positions: np.ndarray,
    method: Method,
    gamma: int,
) -> Callable[[], None]:
  """Drafts `gamma` tokens at each position: the whole draft phase.

  Args:
    draft: the source of drafts.
    params: from `draft.prepare`.
    held: the state, from `encode_draft`.
    text: int32[rows, max_len] decoder inputs.
    positions: int32[steps].
    method: temperature, top-k, top-p.
    gamma: drafts per round.

  Returns:
    A function that does so and waits for the end.
  """

  def loop(state):
    return _proposals(
        params, state, text, positions, method, draft=draft, gamma=gamma
    )

  return _repeat(loop, held)


def judgements(
    decoder: BlockDecoder,
    params: PyTree,
    held: Held,
    text: np.ndarray,
    positions: np.ndarray,
    method: Method,
    gamma: int,
    rule: str,
) -> Callable[[], None]:
  """Scores `gamma` drafts and judges them, or takes a plain step at gamma 0.

  Args:
    decoder: the target.
    params: from `decoder.prepare`.
    held: the state, from `encode`.
    text: int32[rows, max_len] decoder inputs.
    positions: int32[steps].
    method: temperature, top-k, top-p.
    gamma: drafts per round, the same ones in all.
    rule: a key of `acceptance.RULES`.

  Returns:
    A function that does so and waits for the end.
  """
  rows = text.shape[0]
  shape = (rows, gamma, decoder.vocab_size)
  proposal = Proposal(
      tokens=jnp.asarray(text[:, 1 : gamma + 1]),
      lengths=jnp.full([rows], gamma, jnp.int32),
      q=jnp.full(shape, 1 / decoder.vocab_size) if gamma else None,
  )
  # Without drafts the rules are one.
  rule = rule if gamma else 'token'

  def loop(state):
    return _judgements(
        params,
        state,
        text,
        positions,
        proposal,
        method,
        decoder=decoder,
        rule=rule,
    )

  return _repeat(loop, held)


def rounds(
    models: tuple[BlockDecoder, Draft],
    params: tuple[PyTree, PyTree],
    held: tuple[Held, Held],
    text: np.ndarray,
    positions: np.ndarray,
    method: Method,
    gamma: int,
    rule: str,
) -> Callable[[], None]:
  """Drafts `gamma` tokens, scores and judges them, at each position.

  It may cost more than `proposals` and `judgements` do alone: the weights of
  one model push those of the other out of a processor's caches. What decoding
  does besides, to write tokens and to count, is left out.

  Args:
    models: the target and the source of drafts.
    params: theirs, prepared.
    held: the states, from `encode` and `encode_draft`.
    text: int32[rows, max_len] decoder inputs.
    positions: int32[steps].
    method: temperature, top-k, top-p.
    gamma: drafts per round, >= 1.
    rule: a key of `acceptance.RULES`.

  Returns:
    A function that does so and waits for the end.
  """
  target, draft = held

  def run():
    states, rest = _rounds(
        params, (target.state, draft.state), text, positions, method,
        models=models, gamma=gamma, rule=rule,
    )  # fmt: skip
    target.state, draft.state = states
    jax.block_until_ready((states, rest))

  return run


@functools.partial(jax.jit, static_argnames=('decoder', 'width'))
def teacher_forced(
    params: PyTree,
    inputs: jax.Array,
    tokens: jax.Array,
    *,
    decoder: BlockDecoder,
    width: int,
) -> jax.Array:
  """Logits of a text that is read block by block, through the caches.

  Args:
    params: the model's parameters.
    inputs: int32[rows, S], 0 at padding.
    tokens: int32[rows, L] decoder inputs, L a multiple of `width`.
    decoder: the model.
    width: of a block.

  Returns:
    float32[rows, L, vocab].
  """
  params = decoder.prepare(params)
  rows, length = tokens.shape
  state = decoder.init(params, inputs, rows, length)

  def step(state, at):
    block = lax.dynamic_slice_in_dim(tokens, at, width, axis=1)
    logits, state = decoder.decode_block(
        params, state, block, jnp.broadcast_to(at, [rows])
    )
    return state, logits

  _, logits = lax.scan(step, state, jnp.arange(0, length, width))
  return logits.swapaxes(0, 1).reshape(rows, length, -1)
