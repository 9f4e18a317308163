# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""No drafts at all: the loop then is plain autoregressive decoding."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from t5x_specdec.drafts.base import Proposal
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method


@dataclasses.dataclass(frozen=True)
class NoDraft:
  """A `Draft` that proposes nothing."""

  vocab_size = None
  has_encoder = None
  may_abstain = False  # it always does, and its block is 1 wide as it is

  def check(self, params: PyTree) -> None:
    """There are no parameters to check."""

  def prepare(self, params: PyTree) -> PyTree:
    """Returns the (empty) parameters."""
    return params

  def init(self, params, inputs, prompt, max_len) -> tuple[()]:
    """There is no state."""
    return ()

  def propose(
      self,
      params: PyTree,
      state: Any,
      tokens: jax.Array,
      positions: jax.Array,
      method: Method,
      gamma: int,
      room: jax.Array,
      keys: jax.Array,
  ) -> tuple[Proposal, Any]:
    """Returns a proposal of length 0 in every row; see `Draft.propose`."""
    empty = jnp.zeros([tokens.shape[0], gamma], jnp.int32)
    return Proposal(empty, jnp.zeros_like(positions), None), state
