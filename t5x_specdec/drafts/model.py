# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A smaller model as the source of drafts: the paper's M_q."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp

from t5x_specdec import sampling
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts.base import Draft
from t5x_specdec.drafts.base import Proposal
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method

# Tokens of text in a block that fills a hole: such a block costs about as much
# as one token does.
_CATCH_UP = 8


class ModelDraftState(struct.PyTreeNode):
  """The draft model's cache and how far it can be trusted.

  Attributes:
    cache: the decoder's own state.
    reach: int32[rows]; slots below it hold the tokens fed last time, and of
      these the ones below the row's next position are those of the text,
      whatever is accepted.
  """

  cache: Any
  reach: jax.Array


@dataclasses.dataclass(frozen=True)
class ModelDraft:
  """Drafts autoregressively with a model of the target's vocabulary.

  The last draft of a round is never fed back to the model that made it. When
  all are accepted its cache slot is a hole, which would cost acceptance in
  silence; so the first block of a round starts at the hole and is 2 wide.
  Rounds in which this model had no say leave larger holes. They are filled from
  the text, block by block, before it drafts again; a round that finds none pays
  for asking, and for nothing else.

  Attributes:
    decoder: the draft model; it encodes the inputs with its own encoder.
  """

  decoder: BlockDecoder

  may_abstain = False

  @property
  def vocab_size(self) -> int:
    """Number of ids the draft model scores."""
    return self.decoder.vocab_size

  @property
  def has_encoder(self) -> bool | None:
    """Whether the draft model needs inputs; None if it does not mind."""
    return self.decoder.has_encoder

  def check(self, params: PyTree) -> None:
    """Raises ValueError where `params` do not fit the draft's config."""
    self.decoder.check(params, 'draft')

  def prepare(self, params: PyTree) -> PyTree:
    """Casts the weights once; see `BlockDecoder.prepare`."""
    return self.decoder.prepare(params)

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      prompt: jax.Array,
      max_len: int,
  ) -> ModelDraftState:
    """Encodes the inputs and reads the prompt; see `Draft.init`."""
    rows, width = prompt.shape
    cache = self.decoder.init(params, inputs, rows, max_len)
    if width:
      start = jnp.zeros([rows], jnp.int32)
      _, cache = self.decoder.decode_block(params, cache, prompt, start)
    return ModelDraftState(cache, jnp.full([rows], width, jnp.int32))

  def propose(
      self,
      params: PyTree,
      state: ModelDraftState,
      tokens: jax.Array,
      positions: jax.Array,
      method: Method,
      gamma: int,
      room: jax.Array,
      keys: jax.Array,
  ) -> tuple[Proposal, ModelDraftState]:
    """Algorithm 1, step 1: x_i ~ q_i for i = 1..gamma; see `Draft.propose`."""
    # What the last round rejected lies at and after the position.
    start = jnp.minimum(state.reach, positions)
    if not gamma:
      proposal = Proposal.empty(len(positions), self.vocab_size)
      return proposal, ModelDraftState(state.cache, start)
    cache, start = self._catch_up(
        params, state.cache, tokens, positions, start, room > 0
    )
    block = jnp.take_along_axis(
        tokens, start[:, None] + jnp.arange(2), axis=1
    )
    logits, cache = self.decoder.decode_block(params, cache, block, start)
    at = (positions - start)[:, None, None]
    last = jnp.take_along_axis(logits, at, axis=1)[:, 0]
    first, q_first = sampling.choose(last, method, keys[:, 0])

    def step(carry, words_and_i):
      token, cache = carry
      words, i = words_and_i
      step_keys = jax.random.wrap_key_data(words, impl=impl)
      logits, cache = self.decoder.decode_block(
          params, cache, token[:, None], positions + i
      )
      token, q = sampling.choose(logits[:, 0], method, step_keys)
      return (token, cache), (token, q)

    # Scanned as words: JAX's checker takes an array of keys for one key, used
    # again in every step.
    impl = jax.random.key_impl(keys)
    words = jax.random.key_data(keys[:, 1:]).swapaxes(0, 1)
    (_, cache), (rest, q_rest) = lax.scan(
        step, (first, cache), (words, jnp.arange(1, gamma))
    )
    proposal = Proposal(
        tokens=jnp.concatenate([first[:, None], rest.T], axis=1),
        lengths=jnp.full_like(positions, gamma),
        q=jnp.concatenate([q_first[:, None], q_rest.swapaxes(0, 1)], axis=1),
    )
    # The text takes over `room` of these drafts at most. A row that is not
    # served may be left with a hole, of which two tokens are filled.
    reach = jnp.where(
        positions - start > 1,
        start + 2,
        positions + 1 + jnp.minimum(room, gamma - 1),
    )
    return proposal, ModelDraftState(cache, reach)

  def _catch_up(
      self,
      params: PyTree,
      cache: Any,
      tokens: jax.Array,
      positions: jax.Array,
      start: jax.Array,
      served: jax.Array,
  ) -> tuple[Any, jax.Array]:
    """Feeds the text until no row that is served lacks more than one token.

    A block reaches past the position of a row that lacks less, where `tokens`
    means nothing; slots there are not attended to before they are overwritten.

    Args:
      params: from `prepare`.
      cache: the decoder's state.
      tokens: int32[rows, max_len] decoder inputs.
      positions: int32[rows], of each row's last token.
      start: int32[rows] <= positions, the first slot that is not filled.
      served: bool[rows].

    Returns:
      The decoder's state and `start`, now at least positions - 1 where served.
    """
    max_len = tokens.shape[1]
    width = min(_CATCH_UP, max_len)

    def lacks(carry):
      _, start = carry
      return jnp.any(served & (positions - start > 1))

    def feed(carry):
      cache, start = carry
      # A block that would not fit starts earlier, on tokens that were fed.
      start = jnp.minimum(start, max_len - width)
      block = jnp.take_along_axis(
          tokens, start[:, None] + jnp.arange(width), axis=1
      )
      _, cache = self.decoder.decode_block(params, cache, block, start)
      return cache, jnp.minimum(start + width, positions)

    return lax.while_loop(lacks, feed, (cache, start))


def as_draft(draft: Draft | BlockDecoder) -> Draft:
  """Returns a bare `BlockDecoder` as a `ModelDraft`, a `Draft` as it is."""
  if hasattr(draft, 'propose'):
    return cast(Draft, draft)
  return ModelDraft(cast(BlockDecoder, draft))
