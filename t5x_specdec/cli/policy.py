# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `--gamma adaptive` and `auto` stand for, measured on the spot."""

from __future__ import annotations

from collections.abc import Callable
import statistics
import time

import jax.numpy as jnp
import numpy as np

from t5x_specdec import theory
from t5x_specdec.benchmarks import pieces
from t5x_specdec.cli.setup import Setup
from t5x_specdec.drafts.base import Draft
from t5x_specdec.drafts.chain import Chain
from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import Fixed
from t5x_specdec.gamma import Policy
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method

_GAMMAS = (0, 1, 2, 3, 5, 7)
# Tokens of the input and of the text that costs are measured on.
_LENGTH = 64
_REPEATS = 3


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
  config = setup.target.decoder.config
  rng = np.random.default_rng(0)
  width = _LENGTH + max(_GAMMAS) + 2
  text = rng.integers(2, config.vocab_size, [rows, width], dtype=np.int32)
  inputs = None if config.decoder_only else text[:, :_LENGTH]
  positions = pieces.spread(1, _LENGTH)
  nothing = text[:, :0]
  draft, draft_params = setup.draft, setup.draft_params
  if isinstance(draft, Chain) and draft.then is not None:
    # What a round costs where lookup has nothing, which is the dearer one.
    draft, draft_params = draft.then, draft_params['then']
  draft_params = draft.prepare(draft_params)
  target, params = setup.target.decoder, setup.target.params

  def block(gamma):
    state = pieces.encode(
        params, inputs, nothing, decoder=target, rows=rows, max_len=width
    )
    return pieces.blocks(target, params, state, text, positions, gamma + 1)

  verify = [_seconds(block(gamma)) for gamma in _GAMMAS]
  propose = [
      _seconds(_proposals(draft, draft_params, inputs, text, positions, gamma))
      if gamma
      else 0.0
      for gamma in _GAMMAS
  ]
  step = verify[0]
  return tuple(d / step for d in propose), tuple(v / step for v in verify)


def _proposals(
    draft: Draft,
    params: PyTree,
    inputs: np.ndarray | None,
    text: np.ndarray,
    positions: np.ndarray,
    gamma: int,
) -> Callable[[], None]:
  """Drafts at each position, greedily."""
  rows, width = text.shape
  state = pieces.encode_draft(
      params, inputs, text[:, :0], draft=draft, max_len=width
  )
  method = Method(jnp.zeros(rows), jnp.int32(0), jnp.float32(0))
  return pieces.proposals(
      draft, params, state, text, positions, method, gamma
  )


def _seconds(run: Callable[[], None]) -> float:
  """Median time of a call, after one that compiles."""
  run()
  seconds = []
  for _ in range(_REPEATS):
    start = time.perf_counter()
    run()
    seconds.append(time.perf_counter() - start)
  return statistics.median(seconds)
