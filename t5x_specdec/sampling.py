# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""From logits to the law that is really drawn from, and the keys to draw with.

Section 2.2 of the paper: argmax, top-k, nucleus and temperature are all cast
into sampling from an adjusted law, and the SAME adjustment must shape p and q.
Semantics are those of `t5x.decoding.temperature_sample`: temperature first,
then top-k or top-p; ties at a cutoff are all kept.
"""

from __future__ import annotations

from collections.abc import Callable
import functools

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp

# At or under this temperature T5X takes the argmax.
MIN_TEMPERATURE = 1e-4
# What T5X writes over a filtered logit: an exact zero after the softmax, as
# long as the logits that stay are larger.
_FILTERED = -1e7


class Method(struct.PyTreeNode):
  """How the next token is drawn; every field is traced.

  Attributes:
    temperature: float32[rows]; at or under 1e-4 the row is greedy.
    topk: int32[], 0 for no cutoff.
    topp: float32[], 0 for no cutoff; not looked at where topk is set.
  """

  temperature: jax.Array
  topk: jax.Array
  topp: jax.Array

  @property
  def greedy(self) -> jax.Array:
    """Which rows take the argmax, bool[rows]."""
    return self.temperature <= MIN_TEMPERATURE


@functools.partial(jax.jit, static_argnames='rows')
def row_keys(rng: jax.Array, rows: int) -> jax.Array:
  """One typed key per row, folded from the row's index.

  Args:
    rng: a key, typed or of the raw `PRNGKey` kind.
    rows: number of rows.

  Returns:
    key[rows].
  """
  return fold_rows(jnp.broadcast_to(typed(rng), [rows]), jnp.arange(rows))


def round_keys(
    keys: jax.Array, positions: jax.Array, gamma: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """All keys of a round; no two draws share one.

  A row's position grows with every round, so nothing that a rejected draft was
  drawn with is ever used again: what is known of it must not bias its redraw.

  Args:
    keys: key[rows].
    positions: int32[rows], where each row stands.
    gamma: drafts per round.

  Returns:
    key[rows, gamma] for the drafts, key[rows] for acceptance and key[rows] for
    the token after the last draft that stands.
  """
  split = jax.vmap(lambda key: jax.random.split(key, gamma + 2))(
      fold_rows(keys, positions)
  )
  return split[:, :gamma], split[:, gamma], split[:, gamma + 1]


@jax.jit
def typed(keys: jax.Array) -> jax.Array:
  """Typed threefry keys from any keys.

  Other generators (T5X's hardware RNG is `unsafe_rbg`) draw a whole batch from
  its first key under `vmap`: rows would share their noise, and repeat it once
  the first row has ended.

  Args:
    keys: typed key[...], or raw uint32[..., words] of the default generator.

  Returns:
    key<threefry2x32>[...].
  """
  if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
    keys = jax.random.wrap_key_data(keys)
  words = jax.random.key_data(keys)
  folded = jax.random.wrap_key_data(words[..., :2], impl='threefry2x32')
  fold_in = jnp.vectorize(jax.random.fold_in)
  for i in range(2, words.shape[-1]):
    folded = fold_in(folded, words[..., i])
  return folded


def fold_rows(keys: jax.Array, data: jax.Array | int) -> jax.Array:
  """Folds an integer, or one per row, into key[rows]."""
  data = jnp.broadcast_to(jnp.asarray(data), keys.shape)
  return jax.vmap(jax.random.fold_in)(keys, data)


def _float_at(rank: jax.Array) -> jax.Array:
  """The float32 at each uint32 rank, when floats are ranked by their value.

  The lowest ranks, and the highest, are NaN.
  """
  negative = rank >> 31 == 0
  bits = jnp.where(negative, ~rank, rank ^ jnp.uint32(1 << 31))
  return lax.bitcast_convert_type(bits, jnp.float32)


def _largest(
    holds: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]
) -> jax.Array:
  """Largest float32 for which `holds`, bit by bit of its rank, from the top.

  Args:
    holds: a predicate on float32[shape] that, once false, stays false for all
      larger values.
    shape: of the search.

  Returns:
    float32[shape], NaN where it never holds.
  """

  def add_bit(i, found):
    candidate = found | (jnp.uint32(1 << 31) >> i.astype(jnp.uint32))
    return jnp.where(holds(_float_at(candidate)), candidate, found)

  ranks = lax.fori_loop(0, 32, add_bit, jnp.zeros(shape, jnp.uint32))
  return _float_at(ranks)


def _temper(logits: jax.Array, method: Method) -> jax.Array:
  """Logits over each row's temperature, float32[rows, ..., vocab]."""
  rows = (-1,) + (1,) * (logits.ndim - 1)
  temperature = jnp.maximum(method.temperature, MIN_TEMPERATURE).reshape(rows)
  # A quotient that overflows would make inf - inf of the softmax.
  largest = jnp.finfo(jnp.float32).max
  return jnp.clip(logits / temperature, -largest, largest)


def _cutoff(logits: jax.Array, method: Method) -> jax.Array:
  """The least that top-k or top-p keeps, of which at most one is set.

  Top-k keeps the largest cutoff with at least k logits at or above it, top-p
  the largest with at least p probability at or above it, without a sort: one
  search over floats serves both. It reads a single array, which is compared
  and added up.

  Args:
    logits: float32[rows, ..., vocab].
    method: temperature, top-k, top-p.

  Returns:
    float32[rows, ...], a logit over its temperature; NaN if one is NaN.
  """
  by_rank = method.topk > 0
  tempered = _temper(logits, method)
  values = jnp.where(by_rank, tempered, jax.nn.softmax(tempered))
  goal = jnp.where(by_rank, method.topk.astype(jnp.float32), method.topp)

  def kept(cutoff):
    return ~(values < cutoff[..., None])

  def holds(cutoff):
    # Not `where(by_rank, 1, values)` first: XLA would store that for the loop.
    mass = jnp.where(kept(cutoff), values, 0.0)
    return jnp.sum(jnp.where(by_rank, kept(cutoff), mass), axis=-1) >= goal

  keep = kept(_largest(holds, values.shape[:-1]))
  # Tempered anew: to store it beside the search takes more.
  return jnp.min(_temper(logits, method), axis=-1, where=keep, initial=jnp.inf)


def law(logits: jax.Array, method: Method) -> jax.Array:
  """The law that tokens are drawn from: the paper's p, or q.

  Args:
    logits: float32[rows, ..., vocab], as the model gives them.
    method: temperature, top-k, top-p.

  Returns:
    float32[rows, ..., vocab] probabilities; one-hot at the argmax in greedy
    rows.
  """
  logits = logits.astype(jnp.float32)
  cutoff = lax.cond(
      (method.topk > 0) | (method.topp > 0),
      _cutoff,
      lambda logits, _: jnp.full(logits.shape[:-1], -jnp.inf),
      logits,
      method,
  )
  tempered = _temper(logits, method)
  below = tempered < cutoff[..., None]
  probs = jax.nn.softmax(jnp.where(below, _FILTERED, tempered))
  one_hot = jax.nn.one_hot(jnp.argmax(logits, -1), logits.shape[-1])
  greedy = method.greedy.reshape((-1,) + (1,) * (logits.ndim - 1))
  return jnp.where(greedy, one_hot, probs)


def draw(keys: jax.Array, probs: jax.Array) -> jax.Array:
  """Draws one token per row.

  Args:
    keys: key[rows].
    probs: float32[rows, vocab], not necessarily summing to 1; a zero is never
      drawn.

  Returns:
    int32[rows].
  """
  tokens = jax.vmap(jax.random.categorical)(keys, jnp.log(probs))
  return tokens.astype(jnp.int32)


def choose(
    logits: jax.Array, method: Method, keys: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Draws one token per row and returns the very law it was drawn from.

  When every row is greedy this is an argmax: no softmax, no random numbers.

  Args:
    logits: float32[rows, vocab].
    method: temperature, top-k, top-p.
    keys: key[rows].

  Returns:
    int32[rows] tokens and float32[rows, vocab] their law; zeros where all rows
    are greedy, since nobody asks for it then.
  """

  def greedy():
    tokens = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return tokens, jnp.zeros(logits.shape, jnp.float32)

  def sampled():
    probs = law(logits, method)
    return draw(keys, probs), probs

  return lax.cond(jnp.all(method.greedy), greedy, sampled)
