# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What was measured of a pair on one machine, or given, and its file.

`benchmarks.calibrate` measures a `Calibration`, `planner` makes a plan of it.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import json
import math
import numbers
import os
from typing import Any

from t5x_specdec.resampling import Estimate

FORMAT = 't5x_specdec calibration'
VERSION = 1
RULES = ('token', 'block')
# More drafts a round are no plan, and a table of them no help.
_MOST_DRAFTS = 512
# Numbers that may be missing.
_SINGLE = ('c', 'c_hat', 'step_ms', 'text_len')


@dataclasses.dataclass(frozen=True)
class Calibration:
  """Costs and acceptance of a pair; lists have one entry per gamma.

  Attributes:
    target: name of the target, for people.
    draft: name of the draft.
    gammas: rising, from 0.
    d: time of the whole draft phase in a round, in target steps; 0 at gamma 0.
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
    lists = {'d': self.d, 'v': self.v, **self.tokens}
    for name, one in lists.items():
      if len(one) != len(self.gammas):
        raise ValueError(
            f'{name} must be one for each of gammas={self.gammas}, got '
            f'{len(one)}'
        )
    rising = list(self.gammas) == sorted(set(self.gammas))
    whole = all(
        isinstance(gamma, numbers.Integral) and not isinstance(gamma, bool)
        for gamma in self.gammas
    )
    if not rising or not whole or not self.gammas or self.gammas[0] != 0:
      raise ValueError(f'gammas must rise from 0, got {self.gammas}')
    for name in ('target', 'draft'):
      if not isinstance(getattr(self, name), str):
        raise ValueError(f'{name} must be a name, got {getattr(self, name)}')
    for name in ('settings', 'parameters', 'memory_bytes', 'machine'):
      if not isinstance(getattr(self, name), dict | None):
        raise ValueError(f'{name} must be an object')
    if unknown := set(self.tokens) - set(RULES):
      raise ValueError(f'tokens must be by {RULES}, got {sorted(unknown)}')
    if not 0 <= self.alpha.value <= 1:
      raise ValueError(f'alpha must be in [0, 1], got {self.alpha.value}')
    for name, found in self.tokens.items():
      if any(estimate.value <= 0 for estimate in found):
        raise ValueError(f'tokens by {name}s must be positive, got {found}')
    for name, value in self._numbers():
      if not isinstance(value, numbers.Real) or not 0 <= value < math.inf:
        raise ValueError(f'{name} must be >= 0 and finite, got {value!r}')
    for gamma, v in zip(self.gammas, self.v):
      if v <= 0:
        raise ValueError(f'v must be positive, got {v} at gamma {gamma}')
    for name in ('step_ms', 'text_len'):  # None where costs were given
      if getattr(self, name) == 0:
        raise ValueError(f'{name} must be positive, got 0')
    if self.encode_ms and set(self.encode_ms) != {'target', 'pair'}:
      raise ValueError(
          f'encode_ms must be of target and pair, got {self.encode_ms}'
      )

  def _numbers(self) -> Iterator[tuple[str, float]]:
    """All that a plan is made of besides estimates, by name."""
    single = {name: getattr(self, name) for name in _SINGLE}
    single['temperature'] = self.settings.get('temperature')
    yield from (one for one in single.items() if one[1] is not None)
    for name, costs in (('d', self.d), ('v', self.v)):
      for gamma, cost in zip(self.gammas, costs):
        yield f'{name} at gamma {gamma}', cost
    for name in ('encode_ms', 'memory_bytes'):
      for part, number in (getattr(self, name) or {}).items():
        yield f'{name} of {part}', number

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
  except (KeyError, TypeError, AttributeError, ValueError) as error:
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
  if not 0 <= alpha <= 1:  # nan, too
    raise ValueError(f'alpha must be in [0, 1], got {alpha}')
  if not 1 <= max_gamma <= _MOST_DRAFTS:
    raise ValueError(
        f'max_gamma must be in [1, {_MOST_DRAFTS}], got {max_gamma}'
    )
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
