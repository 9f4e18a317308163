# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures of a report as plain values, which charts are drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np

from t5x_specdec import theory
from t5x_specdec.report.run import Run
from t5x_specdec.report.run import Text


def judged(entry: dict[str, Any]) -> int:
  """Drafts of a round that were compared with the target, as `Stats` counts."""
  rejected = entry['accepted'] < len(entry['drafted'])
  # A text that ended with its last accepted draft has judged no other.
  return entry['accepted'] + (rejected and entry['next_token'] is not None)


def histogram(run: Run) -> dict[str, Any]:
  """Rounds by accepted drafts, counted and as Equation 1's law has them.

  Args:
    run: the run.

  Returns:
    counted: int for 0, 1, ... accepted drafts; expected: float of the same
    length, None without alpha.
  """
  gammas = np.flatnonzero(run.rounds_by_gamma)
  size = int(gammas.max(initial=0)) + 1
  counted = [0] * size
  for text in run.texts:
    for entry in text.rounds:
      counted[entry['accepted']] += 1
  if run.alpha is None:
    return {'counted': counted, 'expected': None}
  expected = np.zeros(size)
  for gamma in gammas:
    law = theory.tokens_law(run.alpha, int(gamma))
    expected[: gamma + 1] += run.rounds_by_gamma[gamma] * np.asarray(law)
  return {'counted': counted, 'expected': expected.tolist()}


def positions(run: Run) -> dict[str, list[int]]:
  """Drafts by their place in the block: judged, and accepted of these."""
  entries = [entry for text in run.texts for entry in text.rounds]
  size = max((len(entry['drafted']) for entry in entries), default=0)
  result = {'judged': [0] * size, 'accepted': [0] * size}
  for entry in entries:
    for i in range(judged(entry)):
      result['judged'][i] += 1
      result['accepted'][i] += i < entry['accepted']
  return result


def round_cost(run: Run, entry: dict[str, Any]) -> tuple[int, float, float]:
  """What a round of one text cost by the measured parts.

  Args:
    run: the run.
    entry: the round.

  Returns:
    gamma, and the times of the draft phase and of the target's call, in ms.
  """
  parts, gamma = run.about['parts_ms'], entry['gamma']
  i = parts['gammas'].index(gamma)
  if not entry['drafted'] and run.about['abstains']:
    return gamma, parts['draft'][i], parts['step']
  return gamma, parts['draft'][i], parts['verify'][i]


def timeline(run: Run, text: Text) -> dict[str, Any]:
  """Figure 5 of one text: its calls one after another, at measured costs.

  Args:
    run: the run.
    text: the text.

  Returns:
    encode and encode_draft, in ms; rounds, a list of gamma, draft ms and verify
    ms; ms, their sum; steps and step, the target alone's calls after encode;
    alone_ms, their sum.
  """
  parts = run.about['parts_ms']
  rounds = [round_cost(run, entry) for entry in text.rounds]
  encode, encode_draft = parts['encode'], parts['encode_draft']
  calls = sum(draft + verify for _, draft, verify in rounds)
  return {
      'encode': encode,
      'encode_draft': encode_draft,
      'rounds': rounds,
      'ms': encode + encode_draft + calls,
      'steps': text.tokens,
      'step': parts['step'],
      'alone_ms': encode + text.tokens * parts['step'],
  }


def expectations(run: Run) -> dict[str, Any]:
  """Exp against Emp: what theory promised and what came.

  Args:
    run: the run.

  Returns:
    tokens_expected: Equation 1 at alpha and the gammas of the rounds;
    tokens_empirical: emitted tokens per target call;
    speedup_theorem: Theorem 3.8, where verifying costs one step;
    speedup_costs: the same with what the parts cost here;
    speedup_calls: of the calls that were made, at those costs: encoders
    included, each batch as long as its longest row;
    speedup_measured: ms per token of the target alone over ours, of the
      batches as they were timed.
    Each None where something it needs is missing.
  """
  share = np.array(run.rounds_by_gamma) / max(1, run.counters['rounds'])
  parts = run.about['parts_ms']
  weight = np.array([share[gamma] for gamma in parts['gammas']])
  draft, verify = (
      float(weight @ np.array(parts[name])) / parts['step']
      for name in ('draft', 'verify')
  )
  result: dict[str, Any] = {
      'tokens_expected': None,
      'tokens_empirical': run.counters['emitted']
      / max(1, run.counters['rounds']),
      'speedup_theorem': None,
      'speedup_costs': None,
      'speedup_calls': _speedup_of_calls(run),
      'speedup_measured': _speedup_measured(run),
  }
  if run.alpha is not None:
    tokens = theory.expected_tokens(run.alpha, np.arange(len(share)))
    expected = float(share @ tokens)
    result['tokens_expected'] = expected
    result['speedup_theorem'] = float(theory.improvement(expected, draft, 1.0))
    result['speedup_costs'] = float(
        theory.improvement(expected, draft, verify)
    )
  return result


def _speedup_of_calls(run: Run) -> float | None:
  """Of the batches, each as long as its longest row, by measured parts."""
  longest: dict[int, tuple[float, float]] = {}
  for text in run.texts:
    line = timeline(run, text)
    ours, alone = longest.get(text.batch, (0.0, 0.0))
    longest[text.batch] = (
        max(ours, line['ms']), max(alone, line['alone_ms'])
    )
  ours, alone = (sum(times) for times in zip(*longest.values()))
  return alone / ours if ours else None


def _speedup_measured(run: Run) -> float | None:
  """Of a token, over all batches; None unless each was timed both ways."""
  ours, alone, tokens = zip(*run.batches.values())
  emitted = run.counters['emitted']
  if None in ours + alone + tokens or not sum(tokens) or not emitted:
    return None
  return (sum(alone) / sum(tokens)) / (sum(ours) / emitted)


def summary(run: Run) -> dict[str, Any]:
  """The counters and the ratios that head the page."""
  return run.counters | {
      'texts': len(run.texts),
      'alpha': run.alpha,
      'alpha_empirical': run.counters['accepted'] / run.counters['judged']
      if run.counters['judged']
      else None,
  }
