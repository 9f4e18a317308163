# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pieces of a T5 layer as functions (T5X: `examples/t5/layers.py`).

Attention takes a block of queries per row, each row at its own position, and
masks by selection: what lies under a mask never reaches a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
import operator
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.parameters import MAX_DISTANCE
from t5x_specdec.parameters import NUM_BUCKETS
from t5x_specdec.parameters import PyTree

# What T5X adds to a masked attention logit. Selected here, not added, so that
# a NaN under the mask is gone; a row with everything masked averages, as there.
_MASKED = -1e10


class Source(NamedTuple):
  """Keys and values to attend to.

  Attributes:
    k: [batch, heads, keys, head_dim].
    v: as k; finite, since 0 x NaN is NaN.
    bias: broadcastable to [batch, heads, queries, keys], or None.
    mask: bool, broadcastable likewise; False is not attended to.
  """

  k: jax.Array
  v: jax.Array
  bias: jax.Array | None
  mask: jax.Array


def relative_buckets(distance: np.ndarray, bidirectional: bool) -> np.ndarray:
  """Relative position buckets (`RelativePositionBiases` in T5X's layers.py).

  Computed by NumPy in float32 at trace time like T5X, so that a distance on the
  border of two buckets rounds into the same one.

  Args:
    distance: int array, query position minus key position.
    bidirectional: True in the encoder.

  Returns:
    int32 array of bucket numbers in [0, NUM_BUCKETS).
  """
  count, first = NUM_BUCKETS, np.zeros_like(distance)
  if bidirectional:
    count //= 2
    first = np.where(distance < 0, count, 0)
    distance = np.abs(distance)
  distance = np.maximum(distance, 0)
  exact = count // 2
  scaled = distance.astype(np.float32) / exact + np.finfo(np.float32).eps
  log_bucket = np.log(scaled) / np.log(MAX_DISTANCE / exact) * (count - exact)
  far = np.minimum(exact + log_bucket.astype(np.int32), count - 1)
  return (first + np.where(distance < exact, distance, far)).astype(np.int32)


def rms_norm(params: PyTree, x: jax.Array, dtype: Any) -> jax.Array:
  """T5 layer norm: root mean square in float32, no mean, no bias.

  Args:
    params: {'scale': [features]}.
    x: [..., features].
    dtype: of the result.

  Returns:
    dtype[..., features].
  """
  x = x.astype(jnp.float32)
  mean_square = jnp.mean(lax.square(x), axis=-1, keepdims=True)
  normed = (x * lax.rsqrt(mean_square + 1e-6)).astype(dtype)
  return normed * params['scale'].astype(dtype)


def activation(name: str, x: jax.Array) -> jax.Array:
  """Applies an activation by T5X's name for it: 'linear', 'relu', 'gelu', ...

  Args:
    name: 'linear' or a function of `jax.nn`.
    x: any array.

  Returns:
    Array of the same shape.
  """
  return x if name == 'linear' else getattr(jax.nn, name)(x)


def write(
    cache: jax.Array, block: jax.Array, positions: jax.Array
) -> jax.Array:
  """Overwrites cache[b, :, positions[b] : positions[b] + K] with block[b].

  Args:
    cache: [batch, heads, max_len, head_dim].
    block: [batch, heads, K, head_dim].
    positions: int32[batch] in [0, max_len - K]; JAX would move a slice that
      does not fit.

  Returns:
    The new cache.
  """
  if cache.shape[0] == 1:
    return lax.dynamic_update_slice(cache, block, (0, 0, positions[0], 0))
  return jax.vmap(lambda c, x, p: lax.dynamic_update_slice(c, x, (0, p, 0)))(
      cache, block, positions
  )


def known_after(result: jax.Array, positions: jax.Array) -> jax.Array:
  """`positions`, but not before `result` is computed.

  XLA may order the write of a cache before the products that read the old one,
  and then copies it; an optimization barrier is gone before the order is made.
  No position is negative, which XLA cannot know.

  Args:
    result: floats [batch, ...].
    positions: int32[batch] >= 0.

  Returns:
    int32[batch], equal to `positions`.
  """
  first = result.reshape(result.shape[0], -1)[:, 0]
  return positions + ((positions < 0) & jnp.isnan(first))


# [b, h, q, k] times [b, h, k, d], in this order: einsum puts the values first,
# and XLA's CPU compiler then takes its slowest kernel.
_HEADS = (((3,), (2,)), ((0, 1), (0, 1)))


def attend(
    q: jax.Array,
    sources: Sequence[Source],
    *,
    dtype: Any,
    float32_logits: bool,
) -> jax.Array:
  """Dot-product attention to several sources at once, unscaled as in T5.

  Args:
    q: [batch, heads, queries, head_dim].
    sources: what is attended to, under one softmax. A query with nothing to
      attend to averages over all keys, as in T5X.
    dtype: of the attention weights.
    float32_logits: compute the logits in float32 whatever the dtype.

  Returns:
    [batch, queries, heads * head_dim].
  """
  logits = jnp.concatenate(
      [_logits(q, source, float32_logits) for source in sources], axis=-1
  )
  weights = jax.nn.softmax(logits).astype(dtype)
  # Rounds to what it already is: with the softmax fused into the product, XLA's
  # oneDNN kernels for CPU end the process where rows and queries are several.
  kept = jnp.finfo(dtype)
  weights = lax.reduce_precision(weights, kept.nexp, kept.nmant)
  ends = np.cumsum([source.k.shape[2] for source in sources])
  parts = jnp.split(weights, ends[:-1], axis=-1)
  y = functools.reduce(
      operator.add,
      (
          lax.dot_general(part, source.v, _HEADS)
          for part, source in zip(parts, sources, strict=True)
      ),
  )
  y = y.swapaxes(1, 2)
  return y.reshape(*y.shape[:2], -1)


def _logits(q: jax.Array, source: Source, float32_logits: bool) -> jax.Array:
  """Masked attention logits [batch, heads, queries, keys]."""
  k = source.k
  if float32_logits:
    q, k = q.astype(jnp.float32), k.astype(jnp.float32)
  logits = jnp.einsum('bhqd,bhkd->bhqk', q, k)
  if source.bias is not None:
    logits = logits + source.bias.astype(logits.dtype)
  # float16 does not reach -1e10, and its -inf would make an all-masked row NaN
  # where the other dtypes average.
  masked = max(_MASKED, float(jnp.finfo(logits.dtype).min))
  return jnp.where(source.mask, logits, jnp.asarray(masked, logits.dtype))
