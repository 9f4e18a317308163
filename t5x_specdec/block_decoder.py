# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the decoding loop asks of a model, target and draft alike."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from t5x_specdec.parameters import PyTree


class BlockDecoder(Protocol):
  """Anything that can score a block of tokens per row; hashable.

  `network.T5` and the toys in `testing/` are.
  """

  @property
  def vocab_size(self) -> int:
    """Number of ids that `decode_block` scores."""
    ...

  @property
  def has_encoder(self) -> bool | None:
    """Whether `init` needs inputs; None if it does not mind."""
    ...

  def check(self, params: PyTree, model: str) -> None:
    """Raises ValueError where `params` do not fit; `model` names them."""
    ...

  def prepare(self, params: PyTree) -> PyTree:
    """Does once what `decode_block` would repeat: casts the weights."""
    ...

  def init(
      self, params: PyTree, inputs: jax.Array | None, rows: int, max_len: int
  ) -> Any:
    """Encodes `inputs` int32[batch, S]; a state with `max_len` empty slots.

    `rows` is a multiple of the batch: each encoded input serves as many rows in
    a run, so that several decodes of one input encode it once.
    """
    ...

  def decode_block(
      self, params: PyTree, state: Any, tokens: jax.Array, positions: jax.Array
  ) -> tuple[jax.Array, Any]:
    """Logits float32[batch, block, vocab] of int32[batch, block] tokens."""
    ...
