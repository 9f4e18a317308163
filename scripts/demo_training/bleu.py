# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Corpus BLEU as sacrebleu has it, with intervals by resampling sentences."""

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from t5x_specdec import resampling

COUNTS = 10


def signature() -> str:
  """Returns what sacrebleu calls the score that `score` gives."""
  metric = BLEU()
  metric.corpus_score(['a'], [['a']])
  return str(metric.get_signature())


def statistics(texts: list[str], references: list[str]) -> np.ndarray:
  """Counts per sentence, which add up over a corpus to its BLEU.

  Args:
    texts: the translations.
    references: one reference each.

  Returns:
    int64[sentences, COUNTS]: matching n-grams and n-grams (n = 1 to 4), lengths
    of translation and reference.
  """
  metric = BLEU(effective_order=True)  # or it warns at every sentence
  rows = []
  for text, reference in zip(texts, references, strict=True):
    found = metric.sentence_score(text, [reference])
    rows.append(
        [*found.counts, *found.totals, found.sys_len, found.ref_len]
    )
  return np.array(rows, np.int64)


def score(rows: np.ndarray) -> float:
  """Returns the BLEU of a corpus from its sentences' statistics."""
  total = rows.sum(axis=0).tolist()
  return BLEU.compute_bleu(
      total[:4], total[4:8], *total[8:], smooth_method='exp'
  ).score


def interval(
    rows: np.ndarray, other: np.ndarray | None = None
) -> tuple[float, float]:
  """Returns the 95% bootstrap interval of a BLEU or of a difference of two.

  Args:
    rows: statistics of the sentences.
    other: statistics of the same sentences in another translation, whose BLEU
      is taken off.
  """

  def difference(drawn):
    less = 0.0 if other is None else score(other[drawn])
    return score(rows[drawn]) - less

  return resampling.interval(difference, len(rows))
