# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Toy decoders whose law is stated, and the exact law of their whole outputs.

The enumerator is NumPy in float64 and shares no code with the decoder under
test: it sorts where the decoder bisects, and multiplies where it draws.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.parameters import PyTree


@dataclasses.dataclass(frozen=True)
class TableDecoder:
  """A `BlockDecoder` that looks its logits up by the last two decoder inputs.

  Its "cache" is the history of tokens, read back from the slots they were
  written to and never from the block, and empty slots hold the last id: a slot
  that is skipped, misplaced or not overwritten changes the logits.

  Parameters: `{'table': float32[inputs, vocab, vocab, vocab]}`, indexed by the
  first input id, the token before the last and the last token.

  Attributes:
    vocab_size: number of ids.
  """

  vocab_size: int
  has_encoder = None

  def check(self, params: PyTree, model: str) -> None:
    """Raises ValueError where the table has another vocabulary."""
    shape = params['table'].shape
    if shape[1:] != (self.vocab_size,) * 3:
      raise ValueError(f'{model} table of shape {shape} does not fit {self}')

  def prepare(self, params: PyTree) -> PyTree:
    """Returns the parameters."""
    return params

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      rows: int,
      max_len: int,
  ) -> PyTree:
    """State of an empty history; see `BlockDecoder.init`."""
    if inputs is None:
      first = jnp.zeros([rows], jnp.int32)
    else:
      first = jnp.repeat(inputs[:, 0], rows // inputs.shape[0])
    history = jnp.full([rows, max_len], self.vocab_size - 1, jnp.int32)
    return {'input': first, 'history': history}

  def decode_block(
      self, params: PyTree, state: PyTree, tokens: jax.Array, positions
  ) -> tuple[jax.Array, PyTree]:
    """Writes the block, then looks up; see `BlockDecoder.decode_block`."""
    rows = jnp.arange(tokens.shape[0])[:, None]
    slots = positions[:, None] + jnp.arange(tokens.shape[1])
    history = state['history'].at[rows, slots].set(tokens, mode='drop')
    last = history[rows, slots]
    before = jnp.where(slots > 0, history[rows, slots - 1], 0)
    logits = params['table'][state['input'][:, None], before, last]
    return logits, state | {'history': history}


@dataclasses.dataclass(frozen=True)
class ScriptDecoder:
  """A `BlockDecoder` whose text is written down, whatever it is fed.

  Parameters: `{'script': int32[inputs, length]}`; after the decoder input at
  position t it gives the token script[first input id, t] a logit of 10 and all
  others 0; past the script, its last token.

  Attributes:
    vocab_size: number of ids.
  """

  vocab_size: int
  has_encoder = None

  def check(self, params: PyTree, model: str) -> None:
    """Raises ValueError where the script has ids outside the vocabulary."""
    script = np.asarray(params['script'])
    if script.min() < 0 or script.max() >= self.vocab_size:
      raise ValueError(f'{model} script does not fit {self}: {script}')

  def prepare(self, params: PyTree) -> PyTree:
    """Returns the parameters."""
    return params

  def init(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      rows: int,
      max_len: int,
  ) -> PyTree:
    """Remembers which script each row follows; see `BlockDecoder.init`."""
    if inputs is None:
      return jnp.zeros([rows], jnp.int32)
    return jnp.repeat(inputs[:, 0], rows // inputs.shape[0])

  def decode_block(
      self, params: PyTree, state: PyTree, tokens: jax.Array, positions
  ) -> tuple[jax.Array, PyTree]:
    """Reads the script; see `BlockDecoder.decode_block`."""
    slots = positions[:, None] + jnp.arange(tokens.shape[1])
    slots = jnp.minimum(slots, params['script'].shape[1] - 1)
    script = params['script'][state[:, None], slots]
    return 10.0 * jax.nn.one_hot(script, self.vocab_size), state


def exact_law(
    logits: np.ndarray, temperature: float, topk: int = 0, topp: float = 0.0
) -> np.ndarray:
  """The law of one draw, by sorting, in float64.

  Args:
    logits: float[..., vocab].
    temperature: at or under 1e-4 the argmax is certain.
    topk: 0 for no cutoff.
    topp: 0 for no cutoff.

  Returns:
    float64[..., vocab].
  """
  logits = np.asarray(logits, np.float64)
  if temperature <= 1e-4:
    return np.eye(logits.shape[-1])[np.argmax(logits, axis=-1)]
  scaled = logits / temperature
  if topk:
    descending = -np.sort(-scaled, axis=-1)
    least = descending[..., topk - 1, None]
    scaled = np.where(scaled >= least, scaled, -np.inf)
  if topp:
    probs = _softmax(scaled)
    descending = -np.sort(-probs, axis=-1)
    before = np.cumsum(descending, axis=-1) - descending
    least = np.where(before < topp, descending, np.inf).min(-1, keepdims=True)
    scaled = np.where(probs >= least, scaled, -np.inf)
  return _softmax(scaled)


def _softmax(x: np.ndarray) -> np.ndarray:
  weights = np.exp(x - x.max(axis=-1, keepdims=True))
  return weights / weights.sum(axis=-1, keepdims=True)


def enumerate_outputs(
    law: np.ndarray, length: int, eos_id: int = 1, prompt: tuple[int, ...] = ()
) -> dict[tuple[int, ...], float]:
  """Probability of every whole output of a `TableDecoder`.

  Args:
    law: float64[vocab, vocab, vocab], the law of a token given the token before
      the last and the last one.
    length: of the text; outputs shorter than it end in EOS and are padded with
      zeros, as the decoders return them.
    eos_id: ends an output.
    prompt: tokens every output starts with.

  Returns:
    {output of `length` tokens: probability}; probabilities sum to 1.
  """
  outputs: dict[tuple[int, ...], float] = {}
  open_texts = {tuple(prompt): 1.0}
  while open_texts:
    longer: dict[tuple[int, ...], float] = {}
    for text, mass in open_texts.items():
      before, last = (0, 0, *text)[-2:]
      for token in np.flatnonzero(law[before, last]):
        grown = (*text, int(token))
        grown_mass = mass * law[before, last, token]
        if token == eos_id or len(grown) == length:
          padded = grown + (0,) * (length - len(grown))
          outputs[padded] = outputs.get(padded, 0.0) + grown_mass
        else:
          longer[grown] = grown_mass
    open_texts = longer
  return outputs
