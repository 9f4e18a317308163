# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A decoder's step with the shapes of stock T5X, where T5X is not at hand."""

from __future__ import annotations

from typing import Any

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import layers
from t5x_specdec.layers import Source
from t5x_specdec.network import T5


class StockState(struct.PyTreeNode):
  """What T5X's decoder keeps from step to step, and reads.

  Attributes:
    keys: per layer, dtype[batch, heads, head_dim, max_len].
    values: per layer, as keys.
    encoded: dtype[batch, inputs, emb_dim].
    inputs_mask: bool[batch, inputs].
    bias: dtype[heads, max_len, max_len].
  """

  keys: tuple[jax.Array, ...]
  values: tuple[jax.Array, ...]
  encoded: jax.Array
  inputs_mask: jax.Array
  bias: jax.Array


class StockT5(T5):
  """A step of `examples/t5` as T5X has it, in our loop.

  One token per step at one position for all rows; a cache [batch, heads,
  head_dim, length] that is rewritten whole, by adding a one-hot product; keys
  and values of the cross-attention projected anew in each step; one row of a
  bias [length, length]. Our own decoder without drafts does none of that, so it
  is no stand-in for T5X: it is timed beside this.
  """

  def init(self, params, inputs, rows, max_len) -> Any:
    """See `BlockDecoder.init`; `rows` must be the batch."""
    cfg = self.config
    assert inputs is not None and rows == inputs.shape[0]
    shape = (rows, cfg.num_heads, cfg.head_dim, max_len)
    empty = (jnp.zeros(shape, cfg.dtype),) * cfg.num_decoder_layers
    position = np.arange(max_len)
    buckets = layers.relative_buckets(
        position[:, None] - position, bidirectional=False
    )
    bias = self._biases(params['decoder'], buckets)[0]
    return StockState(
        empty, empty, self.encode(params, inputs), inputs > 0, bias
    )

  def decode_block(self, params, state: Any, tokens, positions) -> Any:
    """See `BlockDecoder.decode_block`; all rows stand at one position."""
    cfg = self.config
    at = positions[0]
    max_len = state.bias.shape[-1]
    here = jax.nn.one_hot(at, max_len, dtype=cfg.dtype)
    bias = lax.dynamic_slice_in_dim(state.bias, at, 1, axis=1)[None]
    mask = (jnp.arange(max_len) <= at)[None, None, None]
    cross_mask = state.inputs_mask[:, None, None]
    x = self._embed(params, tokens)
    keys, values = [], []
    for i in range(cfg.num_decoder_layers):
      layer = params['decoder'][f'layers_{i}']
      own = layer['self_attention']
      y = layers.rms_norm(layer['pre_self_attention_layer_norm'], x, cfg.dtype)
      q, k, v = (self._heads(own[n], y) for n in ('query', 'key', 'value'))
      keys.append(state.keys[i] + k.swapaxes(2, 3) * here)
      values.append(state.values[i] + v.swapaxes(2, 3) * here)
      k, v = keys[-1].swapaxes(2, 3), values[-1].swapaxes(2, 3)
      x = x + self._attend(own['out'], q, Source(k, v, bias, mask))
      norm = layer['pre_cross_attention_layer_norm']
      cross = layer['encoder_decoder_attention']
      q = self._heads(cross['query'], layers.rms_norm(norm, x, cfg.dtype))
      k, v = (self._heads(cross[n], state.encoded) for n in ('key', 'value'))
      source = Source(k, v, None, cross_mask)
      x = x + self._attend(cross['out'], q, source)
      x = x + self._mlp(layer, x)
    x = layers.rms_norm(params['decoder']['decoder_norm'], x, cfg.dtype)
    state = state.replace(keys=tuple(keys), values=tuple(values))
    return self._logits(params, x), state
