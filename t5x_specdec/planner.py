# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""How many tokens to draft, if any: `theory` with what a pair really costs.

A `Calibration` holds the costs of a round for each gamma, and how many tokens a
target call yields under each rule of verification. `plan` makes figures of it
and picks the best gamma, where 0 means not to speculate.

Tokens that were measured are taken as they are. Where only alpha is known they
are Equation 1's, which is right for judging drafts one by one, if acceptances
are independent. Judged as blocks, drafts of one alpha may yield more, but how
many alpha does not tell: Equation 1 then is a lower bound, and the
upper one is 1 + gamma alpha. At temperature 0 the two rules are one.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from t5x_specdec import calibration as calibrations
from t5x_specdec import theory
from t5x_specdec.calibration import Calibration
from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import Fixed
from t5x_specdec.gamma import Policy
from t5x_specdec.resampling import Estimate
from t5x_specdec.sampling import MIN_TEMPERATURE

# Speed-ups that differ by less are equal.
_TIE = 1e-6


def tokens_per_call(calibration: Calibration, rule: str) -> list[Estimate]:
  """Tokens per target call for each gamma, measured or by Equation 1.

  Args:
    calibration: of the pair.
    rule: 'token' or 'block'. Where blocks were not measured the estimate is
      that of tokens, which is no more than a lower bound then.

  Returns:
    One estimate per gamma.
  """
  for name in (rule, 'token'):
    if name in calibration.tokens:
      return calibration.tokens[name]
  alpha = calibration.alpha
  return [Estimate(1.0)] + [
      Estimate(
          *(
              None if a is None else float(theory.expected_tokens(a, gamma))
              for a in (alpha.value, alpha.low, alpha.high)
          )  # pyright: ignore
      )
      for gamma in calibration.gammas[1:]
  ]


def knows(calibration: Calibration, rule: str) -> bool:
  """Whether `tokens_per_call` is more than a lower bound for this rule."""
  temperature = calibration.settings.get('temperature')
  greedy = temperature is not None and temperature <= MIN_TEMPERATURE
  return rule == 'token' or rule in calibration.tokens or greedy


def plan(calibration: Calibration, rule: str = 'block') -> dict[str, Any]:
  """What to expect at each gamma, and which is best.

  Args:
    calibration: of the pair.
    rule: how drafts will be judged, 'token' or 'block'.

  Returns:
    target, draft, rule;
    basis: 'measured' or 'equation 1', and for blocks that were not measured
      'by tokens, a lower bound' or 'equation 1, a lower bound';
    gamma: the best, 0 for not to speculate, of equal ones the smallest;
    speedup, an interval (speedup_low, speedup_high; None where alpha has none),
      and operations, Theorem 3.11, at that gamma;
    whole_call_speedup: the same with the encoder's time; where that is known
      gamma is best by this one;
    oracle_ratio: Section 3.5, what a gamma that knew the next rejection would
      gain over this one at the paper's costs; None without c;
    memory_bytes, where known;
    rows: for each gamma gamma, tokens (_low, _high), d, v, speedup (_low,
      _high), operations, whole_call_speedup.
    Intervals are those of the sampled texts; costs count as known.
  """
  if rule not in calibrations.RULES:
    raise ValueError(f'rule must be one of {calibrations.RULES}, got {rule!r}')
  estimates = tokens_per_call(calibration, rule)
  rows = []
  for i, (gamma, tokens) in enumerate(zip(calibration.gammas, estimates)):
    rows.append(_row(calibration, i, gamma, tokens))
  # Of gammas >= 1 both pick the same; but a draft's encoder must pay, too.
  key = 'speedup' if rows[0]['whole_call_speedup'] is None else (
      'whole_call_speedup'
  )
  fastest = max(row[key] for row in rows)
  best = next(row for row in rows if row[key] >= fastest * (1 - _TIE))
  basis = 'measured' if rule in calibration.tokens else 'equation 1'
  if not knows(calibration, rule):
    basis = f'{"by tokens" if calibration.tokens else basis}, a lower bound'
  ratio = None
  if calibration.c is not None:
    oracle = theory.oracle_improvement(calibration.alpha.value, calibration.c)
    if np.isfinite(oracle):
      ratio = max(1.0, float(oracle) / best['speedup'])
  names = (
      'gamma', 'speedup', 'speedup_low', 'speedup_high', 'operations',
      'whole_call_speedup',
  )
  return {
      'target': calibration.target,
      'draft': calibration.draft,
      'rule': rule,
      'basis': basis,
      'alpha': dataclasses.asdict(calibration.alpha),
      'c': calibration.c,
      **{name: best[name] for name in names},
      'oracle_ratio': ratio,
      'memory_bytes': calibration.memory_bytes,
      'rows': rows,
  }


def _row(
    calibration: Calibration, i: int, gamma: int, tokens: Estimate
) -> dict[str, Any]:
  """The figures of one gamma; see `plan`."""
  d, v = calibration.d[i], calibration.v[i]
  low, middle, high = (
      None if x is None else float(theory.improvement(x, d, v))
      for x in (tokens.low, tokens.value, tokens.high)
  )
  assert middle is not None
  c_hat = calibration.c_hat
  operations = None
  if c_hat is not None:
    operations = (gamma * c_hat + gamma + 1) / tokens.value
  whole = None
  encode, steps = calibration.encode_ms, calibration.text_len
  if encode and steps and calibration.step_ms:
    alone = steps * calibration.step_ms
    before = encode['target'] if gamma == 0 else encode['pair']
    whole = (encode['target'] + alone) / (before + alone / middle)
  return {
      'gamma': gamma,
      'tokens': tokens.value,
      'tokens_low': tokens.low,
      'tokens_high': tokens.high,
      'd': d,
      'v': v,
      'speedup': middle,
      'speedup_low': low,
      'speedup_high': high,
      'operations': operations,
      'whole_call_speedup': whole,
  }


def best_gamma(calibration: Calibration, rule: str = 'block') -> int:
  """The gamma of `plan`: 0 where the pair is better not used."""
  return plan(calibration, rule)['gamma']


def policy(
    word: str,
    calibration: Calibration | str | os.PathLike[str],
    rule: str = 'block',
) -> Policy:
  """The gamma policy that fits a calibration.

  In gin: `gamma = @planner.policy()`, and `policy.word` and
  `policy.calibration` bound.

  Args:
    word: 'auto', the one gamma that `plan` finds best, 0 where drafts do not
      pay; or 'adaptive', what is accepted deciding as it goes, at these costs.
    calibration: of the pair, or the file that `calibrate` wrote.
    rule: how drafts will be judged, 'token' or 'block'.

  Returns:
    The policy.

  Raises:
    ValueError: another word, or a file that is no calibration.
  """
  if not isinstance(calibration, Calibration):
    calibration = calibrations.read(calibration)
  if word == 'auto':
    return Fixed(best_gamma(calibration, rule))
  if word == 'adaptive':
    return Adaptive(
        tuple(calibration.gammas),
        draft_costs=tuple(calibration.d),
        verify_costs=tuple(calibration.v),
    )
  raise ValueError(f"word must be 'auto' or 'adaptive', got {word!r}")
