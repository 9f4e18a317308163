# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one training step minimises: the loss, and the noise it is under."""

import jax
import jax.numpy as jnp

from demo_training import vocabulary
from t5x_specdec.parameters import PyTree


def shift_right(targets: jax.Array) -> jax.Array:
  """Returns the decoder inputs: int32[batch, length], first token 0."""
  return jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))


def cross_entropy(
    logits: jax.Array,
    targets: jax.Array,
    smoothing: float = 0.0,
    teacher_logits: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Sums the loss over the real tokens.

  Args:
    logits: float32[batch, length, vocab].
    targets: int32[batch, length], 0 at padding.
    smoothing: share of the probability spread over the vocabulary.
    teacher_logits: float32[batch, length, vocab], whose law takes the place of
      the targets as what to predict.

  Returns:
    Summed loss in nats, and the number of tokens.
  """
  weights = (targets > 0).astype(jnp.float32)
  log_probs = jax.nn.log_softmax(logits)
  if teacher_logits is None:
    # Selected rather than gathered: the gradient of a gather is slow on a CPU.
    chosen = jnp.arange(logits.shape[-1]) == targets[..., None]
    wanted = jnp.sum(jnp.where(chosen, log_probs, 0), -1)
    if smoothing:
      wanted += smoothing * (jnp.mean(log_probs, -1) - wanted)
  else:
    wanted = jnp.sum(jax.nn.softmax(teacher_logits) * log_probs, -1)
  return -jnp.sum(wanted * weights), jnp.sum(weights)


def drop_words(tokens: jax.Array, share: float, key: jax.Array) -> jax.Array:
  """Replaces a share of the tokens, padding and EOS apart, by unknown."""
  dropped = jax.random.bernoulli(key, share, tokens.shape)
  word = tokens > vocabulary.EOS_ID
  return jnp.where(dropped & word, vocabulary.UNK_ID, tokens)


def drop_units(params: PyTree, share: float, key: jax.Array) -> PyTree:
  """Leaves a share of the feed-forward units out, the same for all tokens."""

  def drop(index, path, kernel):
    if [entry.key for entry in path[-2:]] != ['wo', 'kernel']:
      return kernel
    keep = jax.random.bernoulli(
        jax.random.fold_in(key, index), 1.0 - share, (kernel.shape[0], 1)
    )
    return kernel * keep / (1.0 - share)

  leaves, tree = jax.tree_util.tree_flatten_with_path(params)
  return tree.unflatten([drop(i, *leaf) for i, leaf in enumerate(leaves)])
