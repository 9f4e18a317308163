# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Puts pairs on trial: which runs, which checks, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses
import itertools
import math
from typing import Any

from t5x_specdec.certificate import checks
from t5x_specdec.certificate import toy
from t5x_specdec.certificate.checks import Check
from t5x_specdec.certificate.reference import Positions
from t5x_specdec.certificate.reference import Setting
from t5x_specdec.certificate.statistics import POWER
from t5x_specdec.certificate.subject import Subject

# One without a filter, one with each, at temperatures on both sides of 1.
SETTINGS = (Setting(1.0), Setting(0.5, topk=3), Setting(1.5, topp=0.8))
GREEDY = Setting(0.0)
RULES = ('token', 'block')
# Probability that any check of a right decoder fails, all together.
FALSE_ALARM = 1e-3
# Rule and drafts per round of the toy, whose texts of 5 tokens see 2 rounds at
# least; at 1 draft the rules are one.
TOY_RUNS = ((1, 'token'), (3, 'token'), (3, 'block'))
_TOY_INPUTS = 16


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


def _greedy(
    subject: Subject, gamma: int, rule: str, decodes: int
) -> Iterator[Check]:
  """All checks at temperature 0, where both rules are one.

  Decodes of one input are copies then; there are as many as in the sampled
  runs, which are compiled with this one.
  """
  label = f'T=0 gamma={gamma}'
  ours = subject.decode(GREEDY, gamma=gamma, rule=rule, decodes=decodes)
  alone = subject.decode(GREEDY, gamma=0, decodes=decodes)
  yield from checks.greedy(subject, ours, alone, decodes, label)
  yield checks.endings(subject, ours, label)
  yield checks.endings(subject, alone, 'T=0 target alone')


def try_toy(
    seed: int,
    decodes: int = 800,
    runs: tuple[tuple[int, str], ...] = TOY_RUNS,
) -> Iterator[Check]:
  """Checks a random pair, whose joint law is known.

  Args:
    seed: of the pair and of all draws.
    decodes: samples of each input and setting.
    runs: drafts per round and rule; the last is tried at temperature 0 too.

  Yields:
    The checks.
  """
  subject = toy.make(_TOY_INPUTS, seed)
  yield from _greedy(subject, *runs[-1], decodes)
  laws = {setting: toy.laws(subject, setting) for setting in SETTINGS}
  run = 0
  for (gamma, rule), setting in itertools.product(runs, SETTINGS):
    run += 1
    label = f'{setting} gamma={gamma} {rule}'
    tokens = subject.decode(
        setting, gamma=gamma, rule=rule, decodes=decodes, run=run
    )
    yield checks.endings(subject, tokens, label)
    yield toy.joint_law(subject, tokens, laws[setting], label)
    places = subject.places(tokens, decodes, setting, run)
    yield from _sampled(subject, places, gamma, label)


def _sampled(
    subject: Subject, places: Positions, gamma: int, label: str
) -> Iterator[Check]:
  """What is asked of any pair's samples."""
  yield checks.support(subject, places, label)
  yield from checks.law(subject, places, label)
  yield from checks.independence(subject, places, gamma, label)


def try_pair(subject: Subject, gamma: int, decodes: int) -> Iterator[Check]:
  """Checks a pair of any size.

  Args:
    subject: the pair and its inputs.
    gamma: drafts per round.
    decodes: samples of each input and setting.

  Yields:
    The checks.
  """
  yield from _greedy(subject, gamma, RULES[-1], decodes)
  run = 0
  for setting in SETTINGS:
    run += 1
    tokens = subject.decode(setting, gamma=0, decodes=decodes, run=run)
    yield checks.endings(subject, tokens, f'{setting} target alone')
    alone = subject.places(tokens, decodes, setting, run)
    for rule in RULES:
      run += 1
      label = f'{setting} gamma={gamma} {rule}'
      tokens = subject.decode(
          setting, gamma=gamma, rule=rule, decodes=decodes, run=run
      )
      yield checks.endings(subject, tokens, label)
      places = subject.places(tokens, decodes, setting, run)
      yield from _sampled(subject, places, gamma, label)
      yield from checks.likelihood(subject, places, alone, decodes, label)


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
