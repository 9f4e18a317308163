# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""T5 as pure functions over the T5X parameter tree.

The one operation is `decode_block`: score a block of tokens per row at per-row
positions, overwriting the cache there. Drafting is a block of width 1,
verification one of width gamma + 1, teacher forcing one as wide as the text,
and rolling back is nothing at all: slots past a row's position are stale, no
query attends to them, and the next block overwrites them.

Same arithmetic as `{network,layers}.py` of T5X's `examples/t5` and
`examples/scalable_t5`, without their one position per step, their one cache
index for all rows, their cross-attention keys and values projected anew at
every step and their [length, length] bias.
"""

from __future__ import annotations

import dataclasses
import functools
import operator

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import layers
from t5x_specdec import preparation
from t5x_specdec.layers import Source
from t5x_specdec.parameters import embedding
from t5x_specdec.parameters import mlp_inputs
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config


class DecoderState(struct.PyTreeNode):
  """What decoding reads (cross-attention, bias) and writes (keys, values).

  Attributes:
    keys: per layer, dtype[batch, heads, max_len, head_dim].
    values: per layer, as keys. Never holds a NaN or inf.
    cross_keys: per layer, dtype[batch, heads, inputs, head_dim].
    cross_values: per layer, as cross_keys.
    inputs_mask: bool[batch, inputs], False at padding; None: decoder-only.
    distance_bias: dtype[heads, max_len], the relative bias of a key that lies
      0, 1, 2, ... positions before its query; one per layer, or one for all.
  """

  keys: tuple[jax.Array, ...]
  values: tuple[jax.Array, ...]
  cross_keys: tuple[jax.Array, ...]
  cross_values: tuple[jax.Array, ...]
  inputs_mask: jax.Array | None
  distance_bias: tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class T5:
  """A `BlockDecoder` over the parameters of T5X's T5 and decoder-only models.

  Attributes:
    config: the network's hyperparameters; any object with the fields of T5X's
      own config is converted.
  """

  config: T5Config

  def __post_init__(self):
    object.__setattr__(self, 'config', T5Config.of(self.config))

  @property
  def vocab_size(self) -> int:
    """Rows of the embedding, padding of the vocabulary included."""
    return self.config.vocab_size

  @property
  def has_encoder(self) -> bool:
    """False for T5X's decoder-only model."""
    return not self.config.decoder_only

  def check(self, params: PyTree, model: str) -> None:
    """Raises ValueError where `params`, prepared or not, do not fit."""
    preparation.check(params, self.config, model)

  def prepare(self, params: PyTree) -> PyTree:
    """What is done once and not per block; see `preparation.prepare`."""
    return preparation.prepare(params, self.config)

  def lay_out(self, params: PyTree) -> PyTree:
    """Prepared, and faster on a CPU; see `preparation.lay_out`."""
    return preparation.lay_out(params, self.config)

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      rows: int,
      max_len: int,
  ) -> DecoderState:
    """Encodes the inputs, projects the cross-attention once, empties caches.

    Args:
      params: parameters from `prepare`.
      inputs: int32[batch, S], 0 at padding; None for a decoder-only model.
      rows: rows to decode, a multiple of the batch (1 of them per input, or
        `num_decodes` in a run).
      max_len: number of cache slots; a block of width K at position t needs
        t + K of them.

    Returns:
      A state to decode from position 0.
    """
    cfg = self.config
    shape = (rows, cfg.num_heads, max_len, cfg.head_dim)
    empty = tuple(
        jnp.zeros(shape, cfg.dtype) for _ in range(cfg.num_decoder_layers)
    )
    cross_keys, cross_values, mask = (), (), None
    if not cfg.decoder_only:
      assert inputs is not None
      repeats = rows // inputs.shape[0]
      cross_keys, cross_values, mask = jax.tree.map(
          lambda x: jnp.repeat(x, repeats, axis=0) if repeats > 1 else x,
          self._project_cross(params, inputs),
      )
    buckets = layers.relative_buckets(np.arange(max_len), bidirectional=False)
    return DecoderState(
        keys=empty,
        values=empty,
        cross_keys=cross_keys,
        cross_values=cross_values,
        inputs_mask=mask,
        distance_bias=self._biases(params['decoder'], buckets),
    )

  def encode(self, params: PyTree, inputs: jax.Array) -> jax.Array:
    """Applies the encoder (`Transformer.encode`).

    Args:
      params: parameters from `prepare`.
      inputs: int32[batch, S], 0 at padding.

    Returns:
      dtype[batch, S, emb_dim].
    """
    cfg = self.config
    encoder = params['encoder']
    position = np.arange(inputs.shape[1])
    distance = position[:, None] - position[None, :]
    buckets = layers.relative_buckets(distance, bidirectional=True)
    biases = self._biases(encoder, buckets)
    valid = inputs > 0
    mask = (valid[:, :, None] & valid[:, None, :])[:, None]
    x = self._embed(params, inputs)
    for i in range(cfg.num_encoder_layers):
      layer = encoder[f'layers_{i}']
      y = layers.rms_norm(layer['pre_attention_layer_norm'], x, cfg.dtype)
      attention = layer['attention']
      q, k, v = (
          self._heads(attention[name], y) for name in ('query', 'key', 'value')
      )
      bias = biases[i % len(biases)]
      x = x + self._attend(attention['out'], q, Source(k, v, bias, mask))
      x = x + self._mlp(layer, x)
    return layers.rms_norm(encoder['encoder_norm'], x, cfg.dtype)

  def decode_block(
      self,
      params: PyTree,
      state: DecoderState,
      tokens: jax.Array,
      positions: jax.Array,
  ) -> tuple[jax.Array, DecoderState]:
    """Scores a block of decoder inputs per row, overwriting the cache there.

    Token k of row b stands at position positions[b] + k and attends to the
    cache before the block and to the block up to itself; what the cache holds
    at positions[b] and beyond is not looked at.

    Args:
      params: parameters from `prepare`.
      state: from `init` or an earlier block.
      tokens: int32[batch, K], ids in [0, vocab_size).
      positions: int32[batch] >= 0 with positions + K <= max_len: the caller
        keeps slack, since a slice that does not fit would be moved.

    Returns:
      float32[batch, K, vocab_size] logits, [b, k] for the token after position
      positions[b] + k, and the new state.
    """
    cfg = self.config
    decoder = params['decoder']
    max_len = state.keys[0].shape[2]
    block, slots = np.arange(tokens.shape[1]), np.arange(max_len)
    distance = positions[:, None, None] + block[:, None] - slots
    within = block[:, None] - block
    # Of what the cache holds, [batch, heads, K, max_len], only for the block's
    # own rows; and of the block itself, [heads, K, K].
    biases = [
        (
            bias[:, jnp.clip(distance, 0, max_len - 1)].transpose(1, 0, 2, 3),
            bias[:, np.maximum(within, 0)],
        )
        for bias in state.distance_bias
    ]
    masks = slots < positions[:, None, None, None], jnp.asarray(within >= 0)
    cross_mask = None
    if state.inputs_mask is not None:
      cross_mask = state.inputs_mask[:, None, None, :]

    x = self._embed(params, tokens)
    keys, values = [], []
    for i in range(cfg.num_decoder_layers):
      layer = decoder[f'layers_{i}']
      y = layers.rms_norm(layer['pre_self_attention_layer_norm'], x, cfg.dtype)
      y, k, v = self._self_attention(
          layer['self_attention'],
          y,
          (state.keys[i], state.values[i]),
          positions,
          biases[i % len(biases)],
          masks,
      )
      keys.append(k)
      values.append(v)
      x = x + y
      if cross_mask is not None:
        attention = layer['encoder_decoder_attention']
        norm = layer['pre_cross_attention_layer_norm']
        y = layers.rms_norm(norm, x, cfg.dtype)
        q = self._heads(attention['query'], y)
        k, v = state.cross_keys[i], state.cross_values[i]
        source = Source(k, v, None, cross_mask)
        x = x + self._attend(attention['out'], q, source)
      x = x + self._mlp(layer, x)
    x = layers.rms_norm(decoder['decoder_norm'], x, cfg.dtype)
    state = state.replace(keys=tuple(keys), values=tuple(values))
    return self._logits(params, x), state

  def logits(
      self, params: PyTree, inputs: jax.Array | None, tokens: jax.Array
  ) -> jax.Array:
    """Teacher forcing: one block as wide as the text, from position 0.

    Args:
      params: T5X parameter tree.
      inputs: int32[batch, S], 0 at padding; None for a decoder-only model.
      tokens: int32[batch, L] decoder inputs, that is the text shifted right.

    Returns:
      float32[batch, L, vocab_size].
    """
    params = self.prepare(params)
    batch, length = tokens.shape
    state = self.init(params, inputs, batch, length)
    start = jnp.zeros([batch], jnp.int32)
    return self.decode_block(params, state, tokens, start)[0]

  def _embed(self, params: PyTree, tokens: jax.Array) -> jax.Array:
    table = embedding(params, self.config)
    return table[tokens].astype(self.config.dtype)

  def _biases(
      self, stack: PyTree, buckets: np.ndarray
  ) -> tuple[jax.Array, ...]:
    """Relative biases dtype[heads, *buckets.shape] of a stack's layers.

    One per layer where each has its own table, else one that all layers share.
    """
    owners = [stack]
    if self.config.scalable:
      depth = sum(name.startswith('layers_') for name in stack)
      owners = [stack[f'layers_{i}'] for i in range(depth)]
    tables = [owner['relpos_bias']['rel_embedding'] for owner in owners]
    return tuple(t.astype(self.config.dtype)[:, buckets] for t in tables)

  def _dense(self, layer: PyTree, x: jax.Array, dtype=None) -> jax.Array:
    """Every product with a layer's matrix; training puts its own here."""
    return preparation.dense(layer, x, dtype)

  def _heads(self, params: PyTree, x: jax.Array) -> jax.Array:
    """Projects to dtype[batch, heads, length, head_dim]."""
    cfg = self.config
    y = self._dense(params, x)
    y = y.reshape(*x.shape[:-1], cfg.num_heads, cfg.head_dim)
    return y.transpose(0, 2, 1, 3)

  def _project_cross(self, params: PyTree, inputs: jax.Array):
    """Cross-attention keys and values of every layer, and the inputs' mask."""
    encoded = self.encode(params, inputs)
    mask = inputs > 0
    keys, values = [], []
    for i in range(self.config.num_decoder_layers):
      layer = params['decoder'][f'layers_{i}']
      attention = layer['encoder_decoder_attention']
      keys.append(self._heads(attention['key'], encoded))
      value = self._heads(attention['value'], encoded)
      # A padded input that overflowed must not reach the sum: 0 x NaN is NaN.
      usable = mask[:, None, :, None] | jnp.isfinite(value)
      values.append(jnp.where(usable, value, 0))
    return tuple(keys), tuple(values), mask

  def _self_attention(self, params, y, cache, positions, biases, masks):
    """Self-attention of a block over the cache and over itself; then writes it.

    In this order, and not over a cache that has the block already, XLA never
    needs a copy of the cache.
    """
    q, k, v = (self._heads(params[n], y) for n in ('query', 'key', 'value'))
    # A drafted token may overflow and be rejected; its slot must not poison
    # queries that do not attend to it (0 x NaN is NaN). So no NaN is stored,
    # and the token that made it answers with NaN itself.
    finite = jnp.all(jnp.isfinite(k) & jnp.isfinite(v), axis=(1, 3))
    k, v = (jnp.where(jnp.isfinite(x), x, 0) for x in (k, v))
    keys, values = cache
    before = Source(keys, values, biases[0], masks[0])
    block = Source(k, v, biases[1], masks[1])
    out = self._attend(params['out'], q, before, block)
    positions = layers.known_after(out, positions)
    keys = layers.write(keys, k, positions)
    values = layers.write(values, v, positions)
    return jnp.where(finite[..., None], out, jnp.nan), keys, values

  def _attend(self, params, q, *sources: Source) -> jax.Array:
    """Attention and its output projection."""
    cfg = self.config
    y = layers.attend(
        q,
        sources,
        dtype=cfg.dtype,
        float32_logits=cfg.float32_attention_logits,
    )
    return self._dense(params, y)

  def _mlp(self, layer: PyTree, x: jax.Array) -> jax.Array:
    """Feed-forward block with its norm, gated where several activations."""
    cfg = self.config
    y = layers.rms_norm(layer['pre_mlp_layer_norm'], x, cfg.dtype)
    mlp = layer['mlp']
    parts = [
        layers.activation(activation, self._dense(mlp[name], y))
        for name, activation in mlp_inputs(cfg)
    ]
    return self._dense(mlp['wo'], functools.reduce(operator.mul, parts))

  def _logits(self, params: PyTree, x: jax.Array) -> jax.Array:
    """float32 logits; a bfloat16 matrix is read as such, summed in float32."""
    cfg = self.config
    layer = preparation.logits_layer(params, cfg)
    y = self._dense(layer, x, jnp.float32)
    return y * cfg.emb_dim**-0.5 if cfg.logits_via_embedding else y
