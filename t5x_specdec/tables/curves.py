# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What Figures 2 to 5 of the paper show, as numbers; `figures` draws them."""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import math
from typing import NamedTuple

import numpy as np

from t5x_specdec import theory
from t5x_specdec.tables import paper
from t5x_specdec.tables.runs import Run

GAMMAS = (1, 2, 3, 5, 7, 10)
COSTS = (0.01, 0.02, 0.05, 0.1, 0.2)
# Where alpha is drawn; at 1 the best gamma has no bound.
ALPHAS = np.linspace(0.0, 0.99, 100)
_MAX_GAMMA = 64
# That the timelines of Figure 5 emit.
TOKENS = 24


class Curve(NamedTuple):
  """A line, or measured points.

  Attributes:
    name: of the legend.
    x: float[n].
    y: float[n].
  """

  name: str
  x: np.ndarray
  y: np.ndarray


class Panel(NamedTuple):
  """Axes of a figure.

  Attributes:
    title: above them.
    y: what their y is; x is alpha.
    curves: from the formulas.
    points: measured.
  """

  title: str
  y: str
  curves: list[Curve]
  points: list[Curve]


class Call(NamedTuple):
  """A call of a model on the timeline of Figure 5.

  Attributes:
    kind: 'encoder', 'draft encoder', 'draft' or 'target'.
    start: in target steps.
    length: likewise.
  """

  kind: str
  start: float
  length: float


class Timeline(NamedTuple):
  """A row of Figure 5.

  Attributes:
    name: what decodes.
    calls: in order.
  """

  name: str
  calls: list[Call]


def figure_2(runs: Sequence[Run]) -> list[Panel]:
  """Expected tokens per target call against alpha (Equation 1)."""
  curves = [
      Curve(f'gamma = {gamma}', ALPHAS, theory.expected_tokens(ALPHAS, gamma))
      for gamma in GAMMAS
  ]
  points = _points(runs, 'tokens_per_target_call')
  return [Panel('Figure 2', 'tokens per target call', curves, points)]


def figure_3(runs: Sequence[Run]) -> list[Panel]:
  """Best gamma against alpha, by the cost of a draft step (Section 3.5).

  The points are the fastest of the gammas of a file, where it has several.
  """
  curves = [
      Curve(f'c = {c:g}', ALPHAS, theory.best_gamma(ALPHAS, c, _MAX_GAMMA))
      for c in COSTS
  ]
  points = []
  for _, group in itertools.groupby(runs, lambda run: run['file']):
    timed = [
        x
        for x in group
        if x['against_alone'] and x['alpha'] and isinstance(x['gamma'], int)
    ]
    if len(timed) > 1:
      best = max(timed, key=lambda run: run['against_alone'])
      c = '' if best['c'] is None else f', c = {best["c"]:.2g}'
      points.append(_point(f'{best["pair"]}{c}', best, 'gamma'))
  return [Panel('Figure 3', 'best gamma', curves, points)]


def figure_4(runs: Sequence[Run]) -> list[Panel]:
  """Speed and operations against alpha, drafts for free (c = c_hat = 0)."""
  speed, operations = (
      [
          Curve(f'gamma = {gamma}', ALPHAS, formula(ALPHAS, gamma, 0.0))
          for gamma in GAMMAS
      ]
      for formula in (theory.walltime_improvement, theory.operations_factor)
  )
  points = _points(runs, 'against_alone')
  return [
      Panel('Figure 4: speed-up', 'times faster', speed, points),
      Panel('Figure 4: operations', 'times as many', operations, []),
  ]


def _points(runs: Sequence[Run], figure: str) -> list[Curve]:
  return [
      _point(f'{run["pair"]}, gamma = {run["gamma"]}', run, figure)
      for run in runs
      if run['alpha'] is not None and run[figure] is not None
  ]


def _point(name: str, run: Run, figure: str) -> Curve:
  return Curve(name, np.array([run['alpha']]), np.array([run[figure]]))


def figure_5(runs: Sequence[Run]) -> list[Timeline]:
  """Calls over time: speculation, largest gamma first, and standard decoding.

  All emit `TOKENS` tokens, speculation the mean number in each call. Without
  runs that is Equation 1's, at alpha and c of Table 2's large draft, whose
  calls are long enough to be seen; a call of the target is a step of it, and a
  model's encoder takes as long as a step of its own.

  Args:
    runs: the first file with measured costs is shown, the encoder with what
      it took for so many tokens.

  Returns:
    A timeline per gamma, and that of standard decoding.
  """
  timed = [run for run in runs if run['verify'] is not None]
  timed = [run for run in timed if run['file'] == timed[0]['file']]
  if not timed:
    large = paper.TABLE_2[2]
    timed = [
        {
            'gamma': gamma,
            'tokens_per_target_call': float(
                theory.expected_tokens(large.alpha, gamma)
            ),
            'c': large.c,
            'draft': gamma * large.c,
            'verify': 1.0,
            'encode_ms': 1.0 / TOKENS,
            'step_ms': 1.0,
        }
        for gamma in (3, 7)
    ]
  encode = TOKENS * (timed[0]['encode_ms'] or 0.0) / timed[0]['step_ms']
  shown = []
  for run in sorted(timed, key=lambda run: -run['gamma']):
    calls = math.ceil(TOKENS / run['tokens_per_target_call'])
    step = run['draft'] / run['gamma']
    each = [('draft', step)] * run['gamma'] + [('target', run['verify'])]
    theirs = encode * (run['c'] or 0.0)
    encoders = [('encoder', encode), ('draft encoder', theirs)]
    shown.append(
        Timeline(f'gamma = {run["gamma"]}', _in_turn(encoders + each * calls))
    )
  steps = [('encoder', encode), *[('target', 1.0)] * TOKENS]
  return [*shown, Timeline('standard', _in_turn(steps))]


def _in_turn(lengths: list[tuple[str, float]]) -> list[Call]:
  """Calls one after the other; what takes no time is left out."""
  starts = itertools.accumulate((x for _, x in lengths), initial=0.0)
  return [
      Call(kind, start, length)
      for (kind, length), start in zip(lengths, starts)
      if length > 0
  ]
