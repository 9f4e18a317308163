# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What rounds cost: by how tokens are chosen, and where rows end apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from t5x_specdec.benchmarks.figures import Figures
from t5x_specdec.benchmarks.figures import ratio
from t5x_specdec.benchmarks.figures import without
from t5x_specdec.benchmarks.sitting import Record


def loop(
    figures: Figures, record: Record, gamma: int, name: str
) -> dict[str, Any]:
  """A loop that chooses or judges tokens its own way, encoders left out."""
  case = f'loop:{gamma}:{name}'
  answer = record.answers['ours', case][-1]
  decode = without(
      figures.median('ours', case), figures.median('ours', 'encode_pair')
  )
  return {
      'gamma': gamma,
      'loop': name,
      'rounds': answer['loop_rounds'],
      'tokens_per_target_call': answer['stats']['tokens_per_target_call'],
      'ms_per_round': ratio(decode, answer['loop_rounds']),
  }


def ragged(
    figures: Figures,
    record: Record,
    row: dict[str, Any],
    rounds: Callable[[int], int],
) -> dict[str, Any]:
  """What rows of different lengths cost beside the slowest one alone.

  The slowest row's rounds are known from the tables that were planted. With
  what a draft phase and a block of the whole batch take, measured alone, they
  predict the time of the call.
  """
  gamma = row['gamma']
  answer = record.answers['ours', f'speculative:{gamma}'][-1]
  emitted, slowest = answer['stats']['emitted'], rounds(gamma)
  names = ('encode_pair', f'propose:{gamma}', f'block:{gamma + 1}')
  encode, propose, block = (figures.median('ours', name) for name in names)
  call = figures.median('ours', f'speculative:{gamma}')
  assert encode and propose and block and call
  predicted = encode + slowest * (propose + block)
  return {
      'tokens': emitted,
      'rounds': answer['loop_rounds'],
      'slowest_rounds': slowest,
      'tokens_per_second': 1e3 * emitted / call,
      'predicted_tokens_per_second': 1e3 * emitted / predicted,
      'share': predicted / call,
  }
