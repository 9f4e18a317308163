# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the parts of a round cost here and now, in this process.

The costs that `planner` and `gamma.Adaptive` go by: of drafting and of judging
for each gamma, over one step of plain decoding, sampling included. A machine's
speed changes within seconds, and a repeat of all parts may take minutes: so
each is divided by the mean of the plain steps just before and after it, and
medians are of these ratios. Drafting is what a whole round takes longer than
its judgement: alone, a small draft's weights would stay in a CPU's caches.
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

_Part = Callable[[], Any]
# The kind of part and its gamma.
_Case = tuple[str, int]

# Positions at which a part is timed: few, so that the plain steps around it are
# near.
_STEPS = 16


@dataclasses.dataclass(frozen=True)
class Costs:
  """Of a pair; lists have one entry per gamma.

  Attributes:
    gammas: rising, from 0.
    d: the whole draft phase in a round, in target steps; 0 at gamma 0.
    v: the target's call on gamma + 1 tokens and its judgement, likewise; 1 at
      gamma 0.
    c: one draft step alone over one target step; without a draft model the
      largest gamma's draft phase over that gamma.
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
  positions = pieces.spread(
      prompt_len, max(used - 1, prompt_len + 1), _STEPS
  )

  def encode():
    return pieces.encode(
        target_params, inputs, prompt, decoder=target, rows=rows, max_len=width
    )

  def encode_draft():
    return pieces.encode_draft(
        draft_params, inputs, prompt, draft=draft, max_len=width
    )

  encoders = {
      'target': lambda: jax.block_until_ready(encode()),
      'draft': lambda: jax.block_until_ready(encode_draft()),
  }
  held, draft_held = pieces.Held(encode()), pieces.Held(encode_draft())
  parts: dict[_Case, _Part] = {}
  if isinstance(draft, ModelDraft):
    parts['draft_step', 0] = pieces.blocks(
        draft.decoder, draft_params, pieces.Held(encode_draft().cache), padded,
        positions, 1,
    )  # fmt: skip

  def judgements(gamma):
    return pieces.judgements(
        target, target_params, held, padded, positions, method, gamma,
        verification,
    )

  for gamma in gammas:
    parts['judge', gamma] = judgements(gamma)
    parts['round', gamma] = pieces.rounds(
        (target, draft),
        (target_params, draft_params),
        (held, draft_held),
        padded, positions, method, gamma, verification,
    )  # fmt: skip
  encode_seconds, plain, ratios = _medians(
      encoders, judgements(0), parts, repeats, tell
  )
  rounds = [ratios['round', gamma] for gamma in gammas]
  # What is judged alone has a dense q; drafts without a model have none, and
  # may take less than that saves. d + v is a round in any case.
  v = [min(ratios['judge', g], whole) for g, whole in zip(gammas, rounds)]
  d = [whole - x for whole, x in zip(rounds, v)]
  return Costs(
      gammas=[0, *gammas],
      d=[0.0, *d],
      v=[1.0, *v],
      c=ratios.get(('draft_step', 0), d[-1] / gammas[-1]),
      step_seconds=plain / len(positions),
      encode_seconds={
          'target': encode_seconds['target'],
          'pair': sum(encode_seconds.values()),
      },
  )


def _medians(
    encoders: dict[str, _Part],
    plain: _Part,
    parts: dict[_Case, _Part],
    repeats: int,
    tell: Callable[[str], None],
) -> tuple[dict[str, float], float, dict[_Case, float]]:
  """Seconds of each encoder and of a run of `plain`; each part over `plain`."""
  seconds = {name: [] for name in encoders}
  ratios = {case: [] for case in parts}
  steps: list[float] = []
  tell('compiling')
  for part in (*encoders.values(), plain, *parts.values()):
    part()
  for repeat in range(1, repeats + 1):
    tell(f'repeat {repeat} of {repeats}')
    for name, part in encoders.items():
      seconds[name].append(_time(part))
    steps.append(_time(plain))
    for case, part in parts.items():
      passed = _time(part)
      steps.append(_time(plain))
      ratios[case].append(2 * passed / (steps[-2] + steps[-1]))
  return _median_of(seconds), float(np.median(steps)), _median_of(ratios)


def _median_of(found: dict[Any, list[float]]) -> dict[Any, float]:
  return {key: float(np.median(several)) for key, several in found.items()}


def _time(part: _Part) -> float:
  """Seconds that a part takes."""
  start = time.perf_counter()
  part()
  return time.perf_counter() - start
