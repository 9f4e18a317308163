# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two sources of drafts: the second serves the rows that the first does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp

from t5x_specdec.drafts.base import Draft
from t5x_specdec.drafts.base import Proposal
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method


@dataclasses.dataclass(frozen=True)
class Chain:
  """A `Draft` of two, as in `Chain(PromptLookup(), ModelDraft(model))`.

  In each round and row the drafts are those of `first` where it has any, else
  those of `then`. As long as no row needs `then`, it is not even run.

  The law is exact if whether `first` abstains depends on the text so far alone
  and not on what it drew, as is so for lookup: then, given the text, a row's
  drafts have one source, and q is the law that this source drew them from.

  Its parameters are {'first': ..., 'then': ...}, each what that draft takes.

  Attributes:
    first: asked in every round; it should cost little, and abstain.
    then: the other one. Only a T5X model, which knows its draft module, fills
      in None (see `models`).
  """

  first: Draft
  then: Draft | None = None

  @property
  def _then(self) -> Draft:
    if self.then is None:
      raise ValueError(f'{self} needs a second draft, or a draft_module')
    return self.then

  @property
  def vocab_size(self) -> int | None:
    """Ids that either can propose; None where both take them from the text."""
    size = self._then.vocab_size
    return self.first.vocab_size if size is None else size

  @property
  def has_encoder(self) -> bool | None:
    """Whether either needs inputs."""
    return self.first.has_encoder or self._then.has_encoder

  @property
  def may_abstain(self) -> bool:
    """It does where both do."""
    return self.first.may_abstain and self._then.may_abstain

  def check(self, params: PyTree) -> None:
    """Raises ValueError where vocabularies differ or `params` do not fit."""
    sizes = (self.first.vocab_size, self._then.vocab_size)
    if None not in sizes and sizes[0] != sizes[1]:
      raise ValueError(
          f'drafts of one chain must share one vocabulary, got vocab_size '
          f'{sizes[0]} and {sizes[1]}'
      )
    if not isinstance(params, dict) or set(params) != {'first', 'then'}:
      names = sorted(params) if isinstance(params, dict) else type(params)
      raise ValueError(
          "the parameters of a chain are {'first': ..., 'then': ...}, got "
          f'{names}'
      )
    self.first.check(params['first'])
    self._then.check(params['then'])

  def prepare(self, params: PyTree) -> PyTree:
    """Prepares those of both."""
    return {
        'first': self.first.prepare(params['first']),
        'then': self._then.prepare(params['then']),
    }

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      prompt: jax.Array,
      max_len: int,
  ) -> tuple[Any, Any]:
    """The states of both; see `Draft.init`."""
    return (
        self.first.init(params['first'], inputs, prompt, max_len),
        self._then.init(params['then'], inputs, prompt, max_len),
    )

  def propose(
      self,
      params: PyTree,
      state: tuple[Any, Any],
      tokens: jax.Array,
      positions: jax.Array,
      method: Method,
      gamma: int,
      room: jax.Array,
      keys: jax.Array,
  ) -> tuple[Proposal, tuple[Any, Any]]:
    """Asks `first`, and `then` where a row is left; see `Draft.propose`."""
    first, first_state = self.first.propose(
        params['first'], state[0], tokens, positions, method, gamma, room, keys
    )
    served = first.lengths > 0
    left = jnp.where(served, 0, room)

    def ask(state, gamma):
      return self._then.propose(
          params['then'],
          state,
          tokens,
          positions,
          method,
          gamma,
          left,
          keys[:, :gamma],
      )

    # In a round that it sits out, `then` notes the positions.
    _, noted = ask(state[1], 0)
    nothing, _ = jax.eval_shape(lambda: ask(noted, gamma))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), nothing)
    # Once or not at all: for a conditional XLA would copy the caches, which a
    # loop updates in place.
    then, then_state, _ = lax.while_loop(
        lambda carry: carry[2],
        lambda carry: (*ask(carry[1], gamma), jnp.bool_(False)),
        (nothing, noted, jnp.any(left > 0)),
    )
    return _select(served, first, then), (first_state, then_state)


def _select(served: jax.Array, first: Proposal, then: Proposal) -> Proposal:
  """Takes each row from one of two proposals.

  Args:
    served: bool[rows], which rows take the first.
    first: of gamma drafts a row.
    then: likewise.

  Returns:
    The proposal; a one-hot q is written out where the other is not one.
  """
  laws: list[Any] = [first.q, then.q]
  if first.q is None and then.q is not None:
    laws[0] = jax.nn.one_hot(first.tokens, then.q.shape[-1])
  elif then.q is None and first.q is not None:
    laws[1] = jax.nn.one_hot(then.tokens, first.q.shape[-1])
  column, law = served[:, None], served[:, None, None]
  return Proposal(
      tokens=jnp.where(column, first.tokens, then.tokens),
      lengths=jnp.where(served, first.lengths, then.lengths),
      q=None if laws[0] is None else jnp.where(law, laws[0], laws[1]),
  )
