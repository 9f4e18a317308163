# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `--gamma adaptive` and `auto` stand for, measured on the spot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from t5x_specdec import theory
from t5x_specdec.cli import parts
from t5x_specdec.cli.setup import Setup
from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import Fixed
from t5x_specdec.gamma import Policy

_GAMMAS = (0, 1, 2, 3, 5, 7)
# Tokens of the input and of the text that costs are measured on.
_LENGTH = 64


def choose(
    word: str, setup: Setup, rows: int, sample: Callable[[], float | None]
) -> Policy:
  """The policy that a word stands for.

  Args:
    word: 'adaptive', or 'auto': the one gamma that is best for `sample`, 0
      where drafts do not pay.
    setup: target, draft, vocabulary.
    rows: decoded together.
    sample: alpha on some of the inputs, None where nothing was drafted.

  Returns:
    A policy of the costs that this machine has right now.
  """
  draft, verify = costs(setup, rows)
  if word == 'adaptive':
    return Adaptive(_GAMMAS, draft_costs=draft, verify_costs=verify)
  tokens = theory.expected_tokens(sample() or 0.0, np.array(_GAMMAS))
  speed = theory.improvement(tokens, np.array(draft), np.array(verify))
  return Fixed(_GAMMAS[int(np.argmax(speed))])


def costs(
    setup: Setup, rows: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """d(gamma) and v(gamma) for each gamma, in target steps of one token.

  Args:
    setup: target, draft, vocabulary.
    rows: decoded together.

  Returns:
    Times of the draft phase, and of the target's block of gamma + 1 tokens.
  """
  shape = parts.Shape(rows, rows, _LENGTH, _LENGTH)
  timer = parts.Parts(setup, shape, max(_GAMMAS))
  verify = [timer.verify(gamma) for gamma in _GAMMAS]
  propose = [timer.draft(gamma) for gamma in _GAMMAS]
  step = verify[0]
  return tuple(d / step for d in propose), tuple(v / step for v in verify)
