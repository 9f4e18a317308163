# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Puts pairs on trial: which runs, which checks, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses
import math
from typing import Any

from t5x_specdec.certificate import checks
from t5x_specdec.certificate import toy
from t5x_specdec.certificate.checks import Check
from t5x_specdec.certificate.reference import Setting
from t5x_specdec.certificate.statistics import POWER
from t5x_specdec.certificate.subject import Subject

# One without a filter, one with each, at temperatures on both sides of 1.
SETTINGS = (Setting(1.0), Setting(0.7, topk=3), Setting(1.3, topp=0.8))
GREEDY = Setting(0.0)
RULES = ('token', 'block')
# Probability that any check of a right decoder fails, all together.
FALSE_ALARM = 1e-3
# Drafts per round of the toy: texts of 5 tokens see up to 3 and 2 rounds.
_TOY_GAMMAS = (1, 3)
_TOY_INPUTS = 3


@dataclasses.dataclass(frozen=True)
class Certificate:
  """All checks and what they come to.

  Attributes:
    checks: in order.
    false_alarm: probability that any check of a right decoder fails, spread
      evenly over the statistical ones.
  """

  checks: list[Check]
  false_alarm: float = FALSE_ALARM

  @property
  def tests(self) -> int:
    """How many checks are statistical."""
    return sum(check.outcome is not None for check in self.checks)

  @property
  def level(self) -> float:
    """Of each statistical test, by Bonferroni."""
    return self.false_alarm / max(self.tests, 1)

  def holds(self, check: Check) -> bool:
    """Whether a check holds."""
    if check.outcome is None:
      return bool(check.holds)
    return check.outcome.p_value > self.level

  @property
  def failed(self) -> list[Check]:
    """The checks that do not hold."""
    return [check for check in self.checks if not self.holds(check)]

  @property
  def verdict(self) -> str:
    """One line."""
    failed, total = self.failed, len(self.checks)
    if not failed:
      return (
          f'CERTIFIED: all {total} checks hold; a right decoder would fail one '
          f'of the {self.tests} tests with probability {self.false_alarm:g}'
      )
    names = sorted({check.name for check in failed})
    return (
        f'NOT CERTIFIED: {len(failed)} of {total} checks fail '
        f'({", ".join(names)}); {failed[0].subject}, {failed[0].setting}: '
        f'{failed[0].fault}'
    )

  def report(self, check: Check) -> dict[str, Any]:
    """A check as JSON."""
    record: dict[str, Any] = {
        'subject': check.subject,
        'setting': check.setting,
        'check': check.name,
        'holds': self.holds(check),
    }
    if not record['holds']:
      record['fault'] = check.fault
    if check.outcome is not None:
      # JSON has no inf.
      least = check.outcome.detectable(self.level)
      effect = check.outcome.effect
      record |= {
          'p_value': check.outcome.p_value,
          'effect': effect if math.isfinite(effect) else None,
          'detectable_effect': least if math.isfinite(least) else None,
          'samples': check.outcome.samples,
      }
    return record | check.details

  def as_json(self) -> dict[str, Any]:
    """The certificate as JSON."""
    return {
        'certified': not self.failed,
        'verdict': self.verdict,
        'false_alarm': self.false_alarm,
        'level': self.level,
        'power': POWER,
        'failed': [self.report(check) for check in self.failed],
        'checks': [self.report(check) for check in self.checks],
    }


def _runs(
    settings: tuple[Setting, ...], gammas: tuple[int, ...]
) -> Iterator[tuple[int, Setting, int, str]]:
  """Number, setting, gamma and rule of each sampled run."""
  run = 0
  for gamma in gammas:
    for rule in RULES:
      for setting in settings:
        run += 1
        yield run, setting, gamma, rule


def _greedy(subject: Subject, gamma: int) -> Iterator[Check]:
  """All checks at temperature 0, where both rules are one."""
  label = f'T=0 gamma={gamma}'
  ours = subject.decode(GREEDY, gamma=gamma)
  alone = subject.decode(GREEDY, gamma=0)
  yield from checks.greedy(subject, ours, alone, label)
  yield checks.endings(subject, ours, label)
  yield checks.endings(subject, alone, 'T=0 target alone')


def try_toy(seed: int, decodes: int = 20_000) -> Iterator[Check]:
  """Checks a random pair, whose joint law is known.

  Args:
    seed: of the pair and of all draws.
    decodes: samples of each input and setting.

  Yields:
    The checks.
  """
  few = toy.make(_TOY_INPUTS, seed)
  many = toy.make(64, seed)
  for gamma in _TOY_GAMMAS:
    yield from _greedy(many, gamma)
  laws = {setting: toy.laws(few, setting) for setting in SETTINGS}
  for run, setting, gamma, rule in _runs(SETTINGS, _TOY_GAMMAS):
    label = f'{setting} gamma={gamma} {rule}'
    tokens = few.decode(
        setting, gamma=gamma, rule=rule, decodes=decodes, run=run
    )
    yield checks.endings(few, tokens, label)
    yield toy.joint_law(few, tokens, laws[setting], label)
    places = few.places(tokens, decodes, setting, run)
    yield checks.support(few, places, label)
    yield from checks.law(few, places, label)
    yield from checks.independence(few, places, gamma, label)


def try_pair(subject: Subject, gamma: int, decodes: int) -> Iterator[Check]:
  """Checks a pair of any size.

  Args:
    subject: the pair and its inputs.
    gamma: drafts per round.
    decodes: samples of each input and setting.

  Yields:
    The checks.
  """
  yield from _greedy(subject, gamma)
  alone = {}
  for i, setting in enumerate(SETTINGS):
    run = 1000 + i
    tokens = subject.decode(setting, gamma=0, decodes=decodes, run=run)
    yield checks.endings(subject, tokens, f'{setting} target alone')
    alone[setting] = subject.places(tokens, decodes, setting, run)
  for run, setting, _, rule in _runs(SETTINGS, (gamma,)):
    label = f'{setting} gamma={gamma} {rule}'
    tokens = subject.decode(
        setting, gamma=gamma, rule=rule, decodes=decodes, run=run
    )
    yield checks.endings(subject, tokens, label)
    places = subject.places(tokens, decodes, setting, run)
    yield checks.support(subject, places, label)
    yield from checks.law(subject, places, label)
    yield from checks.independence(subject, places, gamma, label)
    yield from checks.likelihood(
        subject, places, alone[setting], decodes, label
    )


def certify(
    parts: list[Iterator[Check]], tell: Callable[[Check], None]
) -> Certificate:
  """Runs all checks of some trials.

  Args:
    parts: from `try_toy` and `try_pair`.
    tell: called with each check when it is done.

  Returns:
    The certificate.
  """
  done = []
  for part in parts:
    for check in part:
      done.append(check)
      tell(check)
  return Certificate(done)
