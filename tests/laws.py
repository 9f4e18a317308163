# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Samples of whole outputs of a toy pair, held against their exact law."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import t5x_specdec
from t5x_specdec.certificate import statistics
from t5x_specdec.drafts import Proposal
from t5x_specdec.testing import toys

VOCAB = 5
LENGTH = 4
SAMPLES = 200_000
# A run of the whole law suite makes fewer than 200 tests, so it cries wolf on a
# correct decoder once in 5,000 choices of seeds. The seeds are fixed.
FALSE_ALARM = 1e-6
# What a broken decoder must fall under; the planted faults do by far.
DETECTED = 1e-9

# Arguments of a decode.
METHODS = {
    'plain': {'temperature': 1.0, 'topk': 0},
    'cold': {'temperature': 0.6, 'topk': 0},
    'hot': {'temperature': 1.7, 'topk': 0},
    'topk': {'temperature': 1.0, 'topk': 2},
    'cold_topk': {'temperature': 0.7, 'topk': 3},
    'topp': {'temperature': 1.0, 'topk': 0, 'topp': 0.6},
    'cold_topp': {'temperature': 0.8, 'topk': 0, 'topp': 0.85},
    'greedy': {'temperature': 0.0, 'topk': 0},
}


def toy_tables(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Logits of a target and of a draft that half agrees with it.

  Returns:
    Two float32[1, vocab, vocab, vocab].
  """
  rng = np.random.default_rng(seed)
  shape = (1, VOCAB, VOCAB, VOCAB)
  target = rng.normal(0.0, 1.5, shape).astype(np.float32)
  draft = 0.5 * target + rng.normal(0.0, 1.2, shape).astype(np.float32)
  return target, draft.astype(np.float32)


def toy_texts(rows: int, **options: Any) -> t5x_specdec.DecodeResult:
  """Texts of `toy_tables(9)` that never end; options of the decode."""
  target, draft = toy_tables(9)
  decoder = toys.TableDecoder(VOCAB)
  return jax.device_get(
      t5x_specdec.speculative_decode(
          decoder,
          decoder,
          {'table': target},
          {'table': draft},
          np.zeros([rows, 1], np.int32),
          eos_id=VOCAB,
          topk=0,
          **options,
      )
  )


@dataclasses.dataclass(frozen=True)
class OneHotDraft:
  """Certain of its token: the id after the last one, modulo the vocabulary."""

  vocab_size: int = VOCAB
  has_encoder = None
  may_abstain = False

  def check(self, params):
    """Nothing to check."""

  def prepare(self, params):
    """Nothing to prepare."""
    return params

  def init(self, params, inputs, prompt, max_len):
    """No state."""
    return ()

  def propose(
      self, params, state, tokens, positions, method, gamma, room, keys
  ):
    """Counts up from the last token; row 1 of 3 drafts one token fewer."""
    last = jnp.take_along_axis(tokens, positions[:, None], axis=1)
    drafts = (last + 1 + jnp.arange(gamma)) % self.vocab_size
    rows = jnp.arange(tokens.shape[0])
    lengths = jnp.maximum(gamma - (rows % 3 == 1).astype(jnp.int32), 0)
    return Proposal(drafts.astype(jnp.int32), lengths, None), state


def sample(
    tables: tuple[np.ndarray, np.ndarray],
    *,
    gamma: int,
    draft=None,
    samples: int = SAMPLES,
    seed: int = 0,
    length: int = LENGTH,
    prompt: tuple[int, ...] | None = None,
    words: tuple[int, ...] = (0,),
    draft_params=None,
    **method,
) -> np.ndarray:
  """Decodes many rows of the toy pair at once; without drafts at gamma 0.

  All rows have the encoder input `words`, of which the pair sees only the first
  and a draft from lookup all.

  Returns:
    int[samples, length].
  """
  decoder = toys.TableDecoder(VOCAB)
  prompts = None
  if prompt is not None:
    prompts = np.tile(np.asarray(prompt, np.int32), (samples, 1))
  if 'row_keys' not in method:
    method['rng'] = jax.random.key(seed)
  inputs = np.tile(np.asarray(words, np.int32), (samples, 1))
  common = {'max_decode_len': length, 'prompts': prompts, **method}
  if gamma == 0:
    result = t5x_specdec.autoregressive_decode(
        decoder, {'table': tables[0]}, inputs, **common
    )
  else:
    result = t5x_specdec.speculative_decode(
        decoder,
        decoder if draft is None else draft,
        {'table': tables[0]},
        {'table': tables[1]} if draft_params is None else draft_params,
        inputs,
        gamma=gamma,
        **common,
    )
  return np.asarray(result.tokens[:, 0])


def p_value(
    outputs: np.ndarray, law: dict[tuple[int, ...], float]
) -> tuple[float, float]:
  """Chi-square test of whole outputs against their exact law.

  Args:
    outputs: int[samples, length].
    law: {output: probability}.

  Returns:
    The p value (0.0 if an output appears that has no probability) and the total
    variation distance between frequencies and law.
  """
  observed, expected = statistics.joint_table(outputs, law)
  distance = 0.5 * np.abs(observed - expected).sum() / len(outputs)
  return statistics.chi_square(observed, expected).p_value, float(distance)
