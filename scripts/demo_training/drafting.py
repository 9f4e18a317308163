# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a source of drafts is worth to the demo's target, on held-out text."""

import dataclasses

import numpy as np

from demo_training import data
from demo_training.translate import Source
from demo_training.translate import translate
from t5x_specdec import resampling
from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.pair import Model
from t5x_specdec.resampling import Estimate
from t5x_specdec.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Worth:
  """Of a source of drafts, over all held-out sentences.

  Attributes:
    alpha: Corollary 3.6, over the drafts that were judged.
    tokens_per_call: generated, per call of the target.
  """

  alpha: Estimate
  tokens_per_call: Estimate


def measure(
    words: Vocabulary,
    target: Model,
    source: Source,
    *,
    gamma: int,
    temperature: float,
    verification: str = 'token',
    samples: int = 1,
) -> Worth:
  """Translates the held-out sentences and adds up what was counted.

  Args:
    words: the vocabulary.
    target: the model to decode.
    source: of drafts.
    gamma: drafts per round.
    temperature: 0 is greedy.
    verification: the rule.
    samples: translations of each sentence.

  Returns:
    Alpha and tokens per call.
  """
  sentences = [en for en, _ in data.read_pairs(DEMO_PAIR / 'test.tsv')]
  counters = [
      translate(
          sentences,
          words,
          target,
          source,
          gamma=gamma,
          temperature=temperature,
          verification=verification,
          seed=seed,
      ).counters
      for seed in range(samples)
  ]

  def total(name):
    return np.sum(
        [np.asarray(getattr(part, name), np.float64) for part in counters],
        axis=0,
    )

  return Worth(
      resampling.ratio(total('overlap'), total('judged')),
      resampling.ratio(total('emitted'), total('rounds')),
  )
