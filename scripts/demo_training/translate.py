# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Many texts translated in one shape, so that one compilation serves all."""

import dataclasses
import sys
import time

import jax
import numpy as np

from demo_training import sizes
from t5x_specdec import decoding
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.pair import Model
from t5x_specdec.parameters import PyTree
from t5x_specdec.stats import Stats
from t5x_specdec.vocabulary import EOS_ID
from t5x_specdec.vocabulary import Vocabulary

ROWS = 16

Source = tuple[Draft, PyTree]


@dataclasses.dataclass(frozen=True)
class Translations:
  """Translations in the order of their sources.

  Attributes:
    tokens: int32[sources, CONTEXT], EOS kept, zeros after it.
    texts: the same as text.
    counters: of each source, leading axis [sources].
  """

  tokens: np.ndarray
  texts: list[str]
  counters: Stats

  @property
  def stats(self) -> dict:
    """Totals over all of them, as `Stats.summary` names them."""
    return self.counters.summary()


def by_model(model: Model) -> Source:
  """Returns a draft model as a source of drafts."""
  return ModelDraft(model.decoder), model.params


def translate(
    sources: list[str],
    words: Vocabulary,
    target: Model,
    drafts: Source | None = None,
    *,
    gamma: int = 5,
    temperature: float = 0.0,
    verification: str = 'token',
    seed: int = 0,
) -> Translations:
  """Translates, texts of like length together.

  Args:
    sources: texts of fewer than `CONTEXT` tokens.
    words: the vocabulary.
    target: the model to decode.
    drafts: their source, and its parameters; None decodes the target alone.
    gamma: drafts per round.
    temperature: 0 is greedy; above, the law is sampled, no token cut off.
    verification: the rule; 'token' is the paper's own.
    seed: of the samples; each source has a key of its own.

  Returns:
    The translations and what was counted.
  """
  inputs = np.zeros((len(sources), sizes.CONTEXT), np.int32)
  for row, source in zip(inputs, sources, strict=True):
    ids = [*words.encode(source), EOS_ID]
    row[: len(ids)] = ids
  keys = jax.random.split(jax.random.key(seed), len(sources))
  began = time.monotonic()
  order = np.argsort(np.count_nonzero(inputs, axis=1), kind='stable')
  tokens = np.zeros_like(inputs)
  stats = []
  for start in range(0, len(order), ROWS):
    rows = order[start : start + ROWS]
    # The last rows again, where a batch would not be full.
    filled = np.pad(rows, (0, ROWS - len(rows)), mode='edge')
    options = {
        'max_decode_len': sizes.CONTEXT,
        'temperature': temperature,
        'topk': 0,
        'row_keys': keys[filled],
    }
    if drafts:
      draft, params = drafts
      result = decoding.speculative_decode(
          target.decoder,
          draft,
          target.params,
          params,
          inputs[filled],
          gamma=gamma,
          verification=verification,
          **options,
      )
    else:
      result = decoding.autoregressive_decode(
          target.decoder, target.params, inputs[filled], **options
      )
    tokens[rows] = result.tokens[: len(rows), 0]
    stats.append(jax.tree.map(lambda x: np.asarray(x)[:, 0], result.stats))
  total = jax.tree.map(
      lambda *parts: np.concatenate(parts)[: len(sources)], *stats
  )
  print(
      f'{len(sources)} texts, temperature {temperature:.0f}, '
      f'{f"gamma {gamma}" if drafts else "no draft"}: '
      f'{time.monotonic() - began:.0f} s',
      file=sys.stderr,
      flush=True,
  )
  texts = [words.decode(_to_eos(row.tolist())) for row in tokens]
  return Translations(tokens, texts, total)


def _to_eos(ids: list[int]) -> list[int]:
  return ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
