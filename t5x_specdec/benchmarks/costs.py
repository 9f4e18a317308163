# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the parts of a round cost here and now, in this process.

The costs that `planner` and `gamma.Adaptive` go by: of drafting and of judging
for each gamma, over one step of plain decoding, sampling included. Repeats of
all parts are interleaved, and medians taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import time
from typing import Any

import jax
import numpy as np

from t5x_specdec.benchmarks import pieces
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import Chain
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method

# The kind of part and its gamma.
_Case = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Costs:
  """Of a pair; lists have one entry per gamma.

  Attributes:
    gammas: rising, from 0.
    d: the whole draft phase, in target steps; 0 at gamma 0.
    v: the target's call on gamma + 1 tokens and its judgement, likewise; 1 at
      gamma 0.
    c: one draft step over one target step; without a draft model the largest
      gamma's draft phase over that gamma.
    step_seconds: of one target step.
    encode_seconds: before the first round, of 'target' alone and of the 'pair'.
  """

  gammas: list[int]
  d: list[float]
  v: list[float]
  c: float
  step_seconds: float
  encode_seconds: dict[str, float]


def measure(
    target: BlockDecoder,
    target_params: PyTree,
    draft: Draft,
    draft_params: PyTree,
    inputs: np.ndarray | None,
    text: np.ndarray,
    method: Method,
    *,
    gammas: Sequence[int],
    prompt_len: int = 0,
    verification: str = 'block',
    repeats: int = 3,
    tell: Callable[[str], None] = lambda text: None,
) -> Costs:
  """Times the parts of a round.

  Args:
    target: the target.
    target_params: prepared for decoding.
    draft: where drafts come from. Of a chain its last is measured: what a round
      costs where the first has nothing to say, which is the dearer one.
    draft_params: prepared, too.
    inputs: int32[rows, S], 0 at padding; None for decoder-only models.
    text: int32[rows, used], what decoding these may give, the prompt included.
    method: temperature, top-k, top-p.
    gammas: >= 1, rising; 0 is added.
    prompt_len: tokens of the text that are read before the first round.
    verification: a key of `acceptance.RULES`.
    repeats: of everything, after a run that compiles.
    tell: called with what is done next.

  Returns:
    The costs.
  """
  while isinstance(draft, Chain) and draft.then is not None:
    draft, draft_params = draft.then, draft_params['then']
  rows, used = text.shape
  width = used + gammas[-1] + 2
  padded = np.pad(text, ((0, 0), (1, width - used - 1)))
  # The start token and all of the prompt but its last token.
  prompt = padded[:, :prompt_len]
  positions = pieces.spread(prompt_len, max(used - 1, prompt_len + 1))

  def encode():
    return pieces.encode(
        target_params, inputs, prompt, decoder=target, rows=rows, max_len=width
    )

  def encode_draft():
    return pieces.encode_draft(
        draft_params, inputs, prompt, draft=draft, max_len=width
    )

  whole: dict[_Case, Callable[[], Any]] = {
      ('encode', 0): lambda: jax.block_until_ready(encode()),
      ('encode_draft', 0): lambda: jax.block_until_ready(encode_draft()),
  }
  steps: dict[_Case, Callable[[], Any]] = {}
  if isinstance(draft, ModelDraft):
    steps['draft_step', 0] = pieces.blocks(
        draft.decoder, draft_params, encode_draft().cache, padded, positions, 1
    )
  for gamma in (0, *gammas):
    steps['judge', gamma] = pieces.judgements(
        target, target_params, encode(), padded, positions, method, gamma,
        verification,
    )
    if gamma:
      steps['draft', gamma] = pieces.proposals(
          draft, draft_params, encode_draft(), padded, positions, method, gamma
      )
  seconds = _medians(whole, steps, len(positions), repeats, tell)
  step = seconds['judge', 0]
  largest = seconds['draft', gammas[-1]] / gammas[-1]
  return Costs(
      gammas=[0, *gammas],
      d=[0.0, *(seconds['draft', gamma] / step for gamma in gammas)],
      v=[1.0, *(seconds['judge', gamma] / step for gamma in gammas)],
      c=seconds.get(('draft_step', 0), largest) / step,
      step_seconds=step,
      encode_seconds={
          'target': seconds['encode', 0],
          'pair': seconds['encode', 0] + seconds['encode_draft', 0],
      },
  )


def _medians(
    whole: dict[_Case, Callable[[], Any]],
    steps: dict[_Case, Callable[[], Any]],
    count: int,
    repeats: int,
    tell: Callable[[str], None],
) -> dict[_Case, float]:
  """Seconds of each part, those of `steps` being for `count` of them."""
  seconds: dict[_Case, list[float]] = {}
  for repeat in range(repeats + 1):
    tell(f'repeat {repeat} of {repeats}' if repeat else 'compiling')
    for case, function in (whole | steps).items():
      start = time.perf_counter()
      function()
      if repeat:  # the first compiles
        passed = time.perf_counter() - start
        seconds.setdefault(case, []).append(
            passed / (count if case in steps else 1)
        )
  return {case: float(np.median(times)) for case, times in seconds.items()}
