# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""How many tokens to draft, if any: `theory` with what a pair really costs.

A `Calibration` holds what was measured on one machine, or given: the costs of a
round for each gamma, and how many tokens a target call yields under each rule
of verification. `plan` makes figures of it and picks the best gamma, where 0
means not to speculate. `benchmarks.calibrate` measures one.

Tokens that were measured are taken as they are. Where only alpha is known they
are Equation 1's, which is right for judging drafts one by one, if acceptances
are independent. Judged as blocks, drafts of one alpha may yield more, but how
many alpha does not tell: Equation 1 then is a lower bound, and the
upper one is 1 + gamma alpha. At temperature 0 the two rules are one.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
from typing import Any

import numpy as np

from t5x_specdec import theory
from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import Fixed
from t5x_specdec.gamma import Policy

FORMAT = 't5x_specdec calibration'
VERSION = 1
_RULES = ('token', 'block')
# As `sampling.MIN_TEMPERATURE`: both rules are one then.
_GREEDY = 1e-4
# Speed-ups that differ by less are equal.
_TIE = 1e-6


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A figure and, where it was estimated from a sample, its 95% interval."""

  value: float
  low: float | None = None
  high: float | None = None

  def __post_init__(self):
    found = (self.value, self.low, self.high)
    _check('estimates', [found[0], *(x for x in found[1:] if x is not None)])


def _check(name: str, found: Any, *, above: bool = False) -> None:
  """Raises ValueError unless all are finite numbers >= 0, or above it."""
  for x in found:
    real = isinstance(x, numbers.Real) and not isinstance(x, bool)
    if not (real and 0 <= float(x) < np.inf and (x or not above)):
      least = '> 0' if above else '>= 0'
      raise ValueError(f'{name} must be finite and {least}, got {x!r}')


@dataclasses.dataclass(frozen=True)
class Calibration:
  """Costs and acceptance of a pair; lists have one entry per gamma.

  Attributes:
    target: name of the target, for people.
    draft: name of the draft.
    gammas: rising, from 0.
    d: time of the whole draft phase, in target steps; 0 at gamma 0.
    v: time of the target's call on gamma + 1 tokens, acceptance included,
      likewise; 1 at gamma 0.
    alpha: Corollary 3.6.
    tokens: by rule of verification, tokens per target call of a sample; a rule
      that was not measured is missing.
    c: time of one draft step over one target step.
    c_hat: operations of one draft step over those of one target step.
    step_ms: milliseconds of one target step; None where costs were given.
    encode_ms: before the first round, of the target alone and of the pair.
    text_len: mean tokens of a text, for the share of `encode_ms`.
    settings: how it was measured.
    parameters: numbers of them, 'target' and 'draft'.
    memory_bytes: of the parameters, likewise.
    machine: what it was measured on.
  """

  target: str
  draft: str
  gammas: list[int]
  d: list[float]
  v: list[float]
  alpha: Estimate
  tokens: dict[str, list[Estimate]] = dataclasses.field(default_factory=dict)
  c: float | None = None
  c_hat: float | None = None
  step_ms: float | None = None
  encode_ms: dict[str, float] | None = None
  text_len: float | None = None
  settings: dict[str, Any] = dataclasses.field(default_factory=dict)
  parameters: dict[str, int] | None = None
  memory_bytes: dict[str, int] | None = None
  machine: dict[str, Any] | None = None

  def __post_init__(self):
    sizes = {'d': len(self.d), 'v': len(self.v)}
    sizes |= {rule: len(found) for rule, found in self.tokens.items()}
    for name, size in sizes.items():
      if size != len(self.gammas):
        raise ValueError(
            f'{name} must be one for each of gammas={self.gammas}, got {size}'
        )
    rising = list(self.gammas) == sorted(set(self.gammas))
    whole = all(
        isinstance(gamma, numbers.Integral) and not isinstance(gamma, bool)
        for gamma in self.gammas
    )
    if not rising or not whole or not self.gammas or self.gammas[0] != 0:
      raise ValueError(f'gammas must rise from 0, got {self.gammas}')
    if not 0 <= self.alpha.value <= 1:
      raise ValueError(f'alpha must be in [0, 1], got {self.alpha.value}')
    if unknown := set(self.tokens) - set(_RULES):
      raise ValueError(f'tokens must be by {_RULES}, got {sorted(unknown)}')
    self._check_numbers()

  def _check_numbers(self) -> None:
    """A file may hold anything, and what is divided by must not be 0."""
    _check('d', self.d)
    _check('v', self.v, above=True)
    for rule, found in self.tokens.items():
      _check(f'tokens by {rule}s', [x.value for x in found], above=True)
    encode = self.encode_ms
    if encode is not None:
      _check('encode_ms', [encode[name] for name in ('target', 'pair')])
    for name, above in (
        ('c', False), ('c_hat', False), ('step_ms', True), ('text_len', True)
    ):
      if (x := getattr(self, name)) is not None:
        _check(name, [x], above=above)
    for name in ('settings', 'parameters', 'memory_bytes', 'machine'):
      if not isinstance(getattr(self, name), dict | None):
        raise ValueError(f'{name} must be an object')
    _check('temperature', [self.settings.get('temperature', 0)])

  def json(self) -> dict[str, Any]:
    """The object that `write` writes."""
    return {'format': FORMAT, 'version': VERSION} | dataclasses.asdict(self)

  def write(self, path: str | os.PathLike[str]) -> None:
    """Writes the calibration as JSON."""
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(self.json(), file, indent=1)
      file.write('\n')


def read(path: str | os.PathLike[str]) -> Calibration:
  """Reads a calibration; raises ValueError where it is none, or of no use."""
  with open(path, encoding='utf-8') as file:
    try:
      fields = json.load(file)
    except ValueError as error:  # not UTF-8, too
      raise ValueError(f'{path} is not JSON: {error}') from None
  if not isinstance(fields, dict) or fields.pop('format', None) != FORMAT:
    raise ValueError(f'{path} is no calibration: `calibrate` writes them')
  if (version := fields.pop('version', None)) != VERSION:
    raise ValueError(
        f'{path} is of version {version!r}, and this reads {VERSION}: run '
        '`calibrate` again'
    )
  try:
    fields['alpha'] = Estimate(**fields['alpha'])
    fields['tokens'] = {
        rule: [Estimate(**found) for found in estimates]
        for rule, estimates in fields['tokens'].items()
    }
    return Calibration(**fields)
  except KeyError as error:
    raise ValueError(f'{path} has no {error}') from None
  except (TypeError, AttributeError, ValueError) as error:
    raise ValueError(f'{path}: {error}') from None


def given(
    alpha: float,
    c: float,
    *,
    verify: list[float] | None = None,
    c_hat: float | None = None,
    max_gamma: int = 20,
) -> Calibration:
  """A calibration from numbers instead of measurements.

  Args:
    alpha: acceptance rate in [0, 1].
    c: time of one draft step over one target step, >= 0.
    verify: v of gamma 1, 2, ...; None for the paper's 1.
    c_hat: of operations; None takes c.
    max_gamma: the largest gamma; with `verify` as many as it has.

  Returns:
    The calibration.

  Raises:
    ValueError: naming what is out of range.
  """
  if not 0 <= alpha <= 1:
    raise ValueError(f'alpha must be in [0, 1], got {alpha}')
  if not 0 <= c < np.inf:
    raise ValueError(f'c must be >= 0, got {c}')
  if c_hat is not None and not 0 <= c_hat < np.inf:
    raise ValueError(f'c_hat must be >= 0, got {c_hat}')
  if max_gamma < 1:
    raise ValueError(f'max_gamma must be >= 1, got {max_gamma}')
  verify = [1.0] * max_gamma if verify is None else verify
  gammas = list(range(len(verify) + 1))
  return Calibration(
      target='target',
      draft='draft',
      gammas=gammas,
      d=[gamma * c for gamma in gammas],
      v=[1.0, *verify],
      alpha=Estimate(alpha),
      c=c,
      c_hat=c if c_hat is None else c_hat,
  )


def ratio_estimate(top: np.ndarray, bottom: np.ndarray) -> Estimate:
  """sum(top) / sum(bottom) with a 95% interval, by resampling clusters.

  Drafts of one text are not independent, so texts are resampled whole: an
  interval that took each draft for itself would be too narrow.

  Args:
    top: float[texts], e.g. `Stats.overlap`.
    bottom: float[texts], e.g. `Stats.judged`; not all 0.

  Returns:
    The ratio; of one text alone without an interval.
  """
  top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
  value = float(top.sum() / bottom.sum())
  if len(top) < 2:
    return Estimate(value)
  drawn = np.random.default_rng(0).integers(len(top), size=[4000, len(top)])
  tops, bottoms = top[drawn].sum(axis=1), bottom[drawn].sum(axis=1)
  kept = bottoms > 0
  low, high = np.quantile(tops[kept] / bottoms[kept], [0.025, 0.975])
  return Estimate(value, float(low), float(high))


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
  greedy = temperature is not None and temperature <= _GREEDY
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
  if rule not in _RULES:
    raise ValueError(f'rule must be one of {_RULES}, got {rule!r}')
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
    calibration = read(calibration)
  if word == 'auto':
    return Fixed(best_gamma(calibration, rule))
  if word == 'adaptive':
    return Adaptive(
        tuple(calibration.gammas),
        draft_costs=tuple(calibration.d),
        verify_costs=tuple(calibration.v),
    )
  raise ValueError(f"word must be 'auto' or 'adaptive', got {word!r}")
