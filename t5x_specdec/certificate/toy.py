# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A random T5 pair so small that all its texts can be counted."""

from __future__ import annotations

import itertools

import jax
import numpy as np

from t5x_specdec import parameters
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.certificate import reference
from t5x_specdec.certificate import statistics
from t5x_specdec.certificate.checks import Check
from t5x_specdec.certificate.reference import Setting
from t5x_specdec.certificate.subject import Subject
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config
from t5x_specdec.testing import toys

_CONFIG = T5Config(
    vocab_size=5,
    emb_dim=16,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=2,
    head_dim=8,
    mlp_dim=32,
    mlp_activations=('gelu', 'linear'),
)
_LENGTH = 5
# Standard deviation of logits: neither is one text certain nor are all alike.
_SPREAD = 1.0


def _params(seed: int) -> PyTree:
  """Parameters whose laws differ from prefix to prefix, float32."""
  flat = parameters.flatten(
      parameters.init_params(_CONFIG, jax.random.key(seed))
  )
  # With T5's own initializers the last token alone would decide.
  gains = {'out': 2.0, 'wo': 2.0}
  return parameters.unflatten({
      path: np.asarray(leaf) * np.float32(gains.get(path[-2], 1.0))
      for path, leaf in flat.items()
  })


def make(inputs: int, seed: int) -> Subject:
  """A random target, and a draft that half agrees with it.

  Args:
    inputs: how many different ones.
    seed: of everything.

  Returns:
    The pair in float32.
  """
  target = _params(seed)
  noise = _params(seed + 1)
  draft = jax.tree.map(
      lambda ours, other: 0.8 * ours + 0.6 * other, target, noise
  )
  rng = np.random.default_rng([seed, 0])
  text = rng.integers(2, _CONFIG.vocab_size, [inputs, 4], dtype=np.int32)
  decoder = T5(_CONFIG)
  for params in (target, draft):
    spread = float(np.std(_next_logits(decoder, params, text[:1])))
    params['decoder']['logits_dense']['kernel'] *= np.float32(_SPREAD / spread)
  return Subject(
      name='toy',
      target=decoder,
      draft=ModelDraft(decoder),
      target_params=target,
      draft_params=draft,
      text=text,
      steps=_LENGTH,
      batch_size=inputs,
      seed=seed,
  )


def _next_logits(
    decoder: BlockDecoder, params: PyTree, inputs: np.ndarray
) -> np.ndarray:
  """A model's logits after every text there is.

  Args:
    decoder: the model.
    params: its parameters.
    inputs: int32[inputs, S].

  Returns:
    float32[inputs, texts, length, vocab], of all texts but for their last
    token, in lexical order.
  """
  vocab = decoder.vocab_size
  texts = np.array(
      list(itertools.product(range(vocab), repeat=_LENGTH - 1)), np.int32
  )
  texts = np.pad(texts, ((0, 0), (0, 1)))
  found = [
      reference.text_logits(decoder, params, row[None], texts)
      for row in inputs
  ]
  return np.stack([np.asarray(logits) for logits in found])


def laws(
    subject: Subject, setting: Setting
) -> list[dict[tuple[int, ...], float]]:
  """The exact law of whole texts for each input.

  Args:
    subject: from `make`.
    setting: how tokens are drawn.

  Returns:
    {text: probability} of each input.
  """
  vocab = subject.target.vocab_size
  found = []
  for logits in _next_logits(
      subject.target, subject.target_params, subject.text
  ):
    steps = toys.exact_law(logits, **setting._asdict())
    outputs: dict[tuple[int, ...], float] = {}
    for index, text in enumerate(
        itertools.product(range(vocab), repeat=_LENGTH - 1)
    ):
      mass = 1.0
      for t, token in enumerate(text):
        mass *= steps[index, t, token]
        if token == subject.eos_id:
          padded = text[: t + 1] + (0,) * (_LENGTH - t - 1)
          outputs[padded] = mass
          break
      else:
        for last in range(vocab):
          outputs[*text, last] = mass * steps[index, -1, last]
    found.append(outputs)
  return found


def joint_law(
    subject: Subject,
    tokens: np.ndarray,
    laws_of_inputs: list[dict[tuple[int, ...], float]],
    setting: str,
) -> Check:
  """Tests whole texts against their exact joint law.

  Args:
    subject: from `make`.
    tokens: int32[inputs * decodes, length].
    laws_of_inputs: from `laws`.
    setting: for the report.

  Returns:
    'joint law'.
  """
  tables = [
      statistics.joint_table(outputs, law)
      for outputs, law in zip(
          tokens.reshape(len(laws_of_inputs), -1, tokens.shape[1]),
          laws_of_inputs,
      )
  ]
  total = sum(observed.sum() for observed, _ in tables)
  distance = sum(
      np.abs(observed - expected).sum() for observed, expected in tables
  )
  distance *= 0.5 / total
  strange = sum(int(observed[-1]) for observed, _ in tables)
  also = f', {strange} texts have no probability at all' if strange else ''
  return Check(
      'joint law',
      subject.name,
      setting,
      'whole texts do not have the law that enumeration gives: total variation '
      f'{distance:.3f}{also}',
      outcome=statistics.chi_squares(tables),
      details={'total_variation': float(distance), 'texts': int(total)},
  )
