# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The compiled whole: encode, prefill, loop over rounds, sort the decodes."""

from __future__ import annotations

from collections.abc import Callable
import functools

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp

from t5x_specdec import sampling
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import Draft
from t5x_specdec.gamma import Policy
from t5x_specdec.parameters import PyTree
from t5x_specdec.rounds import LoopState
from t5x_specdec.rounds import Request
from t5x_specdec.rounds import run_round
from t5x_specdec.sampling import Method
from t5x_specdec.stats import Stats
from t5x_specdec.trace import Trace


class DecodeResult(struct.PyTreeNode):
  """What a decode returns, `num_decodes` decodes of each input.

  Attributes:
    tokens: int32[batch, num_decodes, max_decode_len], the prompt included, EOS
      kept, zeros after it; decodes in order of rising score, as in T5X.
    scores: float32[batch, num_decodes], the target's log-probability (nats) of
      the generated tokens up to and including EOS.
    stats: counters with leading axes [batch, num_decodes].
    trace: the rounds, where asked for with `trace=True`.
  """

  tokens: jax.Array
  scores: jax.Array
  stats: Stats
  trace: Trace | None


def _start(
    prompts: jax.Array | None, rows: int, width: int
) -> tuple[jax.Array, jax.Array]:
  """Decoder inputs that a prompt fixes, and how many tokens it opens with.

  Args:
    prompts: int32[batch, P], 0 where free, or None.
    rows: rows to decode, a multiple of the batch.
    width: of the token buffer.

  Returns:
    int32[rows, width], the start token and free slots being 0, and
    int32[rows].
  """
  if prompts is None:
    return jnp.zeros([rows, width], jnp.int32), jnp.zeros([rows], jnp.int32)
  text = jnp.repeat(prompts, rows // prompts.shape[0], axis=0)
  opening = jnp.cumprod((text != 0).astype(jnp.int32), axis=1)
  padding = width - 1 - prompts.shape[1]
  forced = jnp.pad(text, ((0, 0), (1, padding)))
  return forced, jnp.sum(opening, axis=1)


def _run_rounds(
    state: LoopState, policy: Policy, run: Callable[..., LoopState]
) -> LoopState:
  """Runs rounds until every row has ended, each at the gamma of its turn.

  A round is compiled for each gamma, in a loop of its own that goes on as long
  as the policy stays with it; they are in a loop that goes on until the end. A
  switch would do the same, but XLA copies the caches for its branches in every
  round, and updates them in place in loops.

  Args:
    state: before the first round.
    policy: of gamma.
    run: `run_round`, given all but the state and gamma.

  Returns:
    The state after the last round.
  """

  def is_live(carry):
    return ~jnp.all(carry[0].ended)

  if len(policy.gammas) == 1:
    only = functools.partial(run, gamma=policy.gammas[0])
    return lax.while_loop(is_live, lambda carry: (only(*carry),), (state,))[0]

  def choose(belief):
    return jnp.clip(policy.choose(belief), 0, len(policy.gammas) - 1)

  def round_of(gamma):
    def step(carry):
      state, belief, _ = carry
      after = run(state, gamma=gamma)
      counters = jax.tree.map(jnp.subtract, after.stats, state.stats)
      belief = policy.update(belief, counters)
      return after, belief, choose(belief)

    return step

  def in_turn(carry):
    for i, gamma in enumerate(policy.gammas):
      carry = lax.while_loop(
          lambda carry, i=i: is_live(carry) & (carry[2] == i),
          round_of(gamma),
          carry,
      )
    return carry

  belief = policy.init()
  return lax.while_loop(is_live, in_turn, (state, belief, choose(belief)))[0]


@functools.partial(
    jax.jit,
    static_argnames=(
        'target',
        'draft',
        'max_decode_len',
        'policy',
        'num_decodes',
        'rescale_log_probs',
        'verification',
        'lenience',
        'trace',
    ),
)
def decode(
    target_params: PyTree,
    draft_params: PyTree,
    inputs: jax.Array | None,
    prompts: jax.Array | None,
    keys: jax.Array,
    method: Method,
    eos_id: jax.Array,
    max_decode_steps: jax.Array | None,
    *,
    target: BlockDecoder,
    draft: Draft,
    max_decode_len: int,
    policy: Policy,
    num_decodes: int,
    rescale_log_probs: bool,
    verification: str,
    lenience: float,
    trace: bool,
) -> DecodeResult:
  """The compiled whole: encode, prefill, loop, sort; all arguments checked."""
  target_params = target.prepare(target_params)
  draft_params = draft.prepare(draft_params)
  batch = keys.shape[0]
  rows = batch * num_decodes
  largest = max(policy.gammas)
  # A row stands at most at max_decode_len, and a round looks at the gamma + 1
  # decoder inputs after it.
  width = max_decode_len + largest + 2
  forced, opening = _start(prompts, rows, width)

  if max_decode_steps is None:
    max_len = jnp.full([rows], max_decode_len, jnp.int32)
  else:
    steps = jnp.repeat(jnp.broadcast_to(max_decode_steps, [batch]), num_decodes)
    max_len = jnp.sum(forced != 0, axis=1) + steps
    max_len = jnp.minimum(max_len, max_decode_len)
  lengths = jnp.minimum(opening, max_len)
  request = Request(
      forced=forced,
      max_len=max_len,
      eos_id=eos_id,
      method=jax.tree.map(
          lambda x: jnp.repeat(x, num_decodes) if x.ndim else x, method
      ),
      keys=sampling.fold_rows(
          jnp.repeat(keys, num_decodes),
          jnp.tile(jnp.arange(num_decodes), batch),
      ),
  )

  prompt = forced[:, : prompts.shape[1] if prompts is not None else 0]
  with jax.named_scope('encode'):
    target_state = target.init(target_params, inputs, rows, width)
    if prompt.shape[1]:
      _, target_state = target.decode_block(
          target_params, target_state, prompt, jnp.zeros_like(lengths)
      )
    draft_state = draft.init(draft_params, inputs, prompt, width)
  state = LoopState(
      tokens=forced,
      lengths=lengths,
      ended=lengths >= max_len,
      scores=jnp.zeros([rows], jnp.float32),
      target=target_state,
      draft=draft_state,
      stats=Stats.zeros(rows, largest, lenient=lenience < 1),
      trace=Trace.empty(rows, max_decode_len, largest) if trace else None,
  )
  state = _run_rounds(
      state,
      policy,
      functools.partial(
          run_round,
          request=request,
          target=target,
          draft=draft,
          target_params=target_params,
          draft_params=draft_params,
          rescale_log_probs=rescale_log_probs,
          rule=verification,
          lenience=lenience,
      ),
  )

  text = state.tokens[:, 1 : max_decode_len + 1]
  inside = jnp.arange(max_decode_len) < state.lengths[:, None]
  result = DecodeResult(
      jnp.where(inside, text, 0), state.scores, state.stats, state.trace
  )
  result = jax.tree.map(
      lambda x: x.reshape(batch, num_decodes, *x.shape[1:]), result
  )
  order = jnp.argsort(result.scores, axis=1)
  return jax.tree.map(
      lambda x: jax.vmap(lambda rows, i: rows[i])(x, order), result
  )
