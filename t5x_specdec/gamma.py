# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""How many tokens to draft next: one number, or one that follows acceptance.

A policy picks the gamma of each round, for the whole batch, on the device. All
it ever sees are the counters of rounds that are complete.

Why that leaves the law of the output alone: fix everything that has happened up
to the start of a round. The gamma of the round then is a constant, its draws
have keys of their own (folded from a position that no earlier round started
from), and with either rule and any constant gamma what the round emits, gone on
with by the target, has the target's law given the text. By induction from the
last round to the first the whole text has, however gamma came about. It would
not if gamma looked at the round's own drafts or uniform numbers: a policy that
drafts more where it sees that the drafts are good is a filter on them.

What does depend on the batch is the sample: since gamma follows all rows that
share a batch, a row of given key may get another text in other company. Its law
is the same. A constant gamma keeps the sample, too.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import numbers
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import theory
from t5x_specdec.stats import Stats

# What `Adaptive` takes acceptance rates to be possible.
_RATES = np.linspace(0.02, 0.98, 17)


class Policy(Protocol):
  """Picks gamma; hashable, its state is explicit."""

  @property
  def gammas(self) -> tuple[int, ...]:
    """All that it may pick, rising; a round is compiled for each."""
    ...

  def init(self) -> Any:
    """The state before the first round, any pytree."""
    ...

  def choose(self, state: Any) -> jax.Array:
    """Which of `gammas` the next round takes, int32[]."""
    ...

  def update(self, state: Any, counters: Stats) -> Any:
    """The state after a round.

    Args:
      state: before it.
      counters: of that round alone, per row; ended rows have zeros.

    Returns:
      The new state.
    """
    ...


def _check_gammas(gammas: Sequence[Any], least: int) -> None:
  for gamma in gammas:
    integral = isinstance(gamma, numbers.Integral)
    if not integral or isinstance(gamma, bool) or gamma < least:
      raise ValueError(f'gamma must be an integer >= {least}, got {gamma!r}')


@dataclasses.dataclass(frozen=True)
class Fixed:
  """The same gamma in every round.

  Attributes:
    gamma: drafts per round, >= 0; 0 is plain decoding.
  """

  gamma: int

  def __post_init__(self):
    _check_gammas([self.gamma], 0)

  @property
  def gammas(self) -> tuple[int, ...]:
    """The one gamma."""
    return (self.gamma,)

  def init(self) -> tuple[()]:
    """There is no state."""
    return ()

  def choose(self, state: tuple[()]) -> jax.Array:
    """The one gamma."""
    return jnp.int32(0)

  def update(self, state: tuple[()], counters: Stats) -> tuple[()]:
    """Nothing to learn."""
    return ()


@dataclasses.dataclass(frozen=True)
class Adaptive:
  """The gamma that is fastest at the acceptance rate of the last rounds.

  That is the one of most tokens, Equation 1, over the round's cost. What the
  acceptance rate is, a filter tells: it holds a probability for each of some
  rates, which every draft that was judged, in any row, makes likelier or less
  so, and between two rounds the rate may change, with probability `change`, to
  any other. So it forgets slowly while nothing happens, and within a few rounds
  where what it sees speaks against what it believed. It forgets, too, while
  gamma is 0 and nothing is judged: rounds with drafts come back by themselves,
  and go again where they do not pay.

  Rows of a batch count together, and Equation 1 takes every row to have drafts:
  it is an approximation for a draft that abstains, and for block verification,
  which accepts more. Only speed depends on it.

  Attributes:
    gammas: all that may be picked, rising; each is compiled.
    c: time of one draft step over time of one target step, for costs gamma c
      of drafting and 1 of verification. None where `draft_costs` is given.
    draft_costs: measured time of drafting, one for each of `gammas`, in target
      steps of one token.
    verify_costs: measured time of the target's block of gamma + 1 tokens,
      likewise; 1 by default.
    change: probability in (0, 1) that the acceptance rate is another one in the
      next round.
  """

  gammas: tuple[int, ...] = (0, 1, 2, 3, 5, 7, 10)
  c: float | None = None
  draft_costs: tuple[float, ...] | None = None
  verify_costs: tuple[float, ...] | None = None
  change: float = 0.02

  def __post_init__(self):
    # Gin has lists.
    for name in ('gammas', 'draft_costs', 'verify_costs'):
      if getattr(self, name) is not None:
        object.__setattr__(self, name, tuple(getattr(self, name)))
    _check_gammas(self.gammas, 0)
    if not self.gammas or list(self.gammas) != sorted(set(self.gammas)):
      raise ValueError(f'gammas must be rising, got {self.gammas}')
    if self.gammas[-1] < 1:
      raise ValueError(f'gammas must have one >= 1, got {self.gammas}')
    if (self.c is None) == (self.draft_costs is None):
      raise ValueError(
          f'give either c or draft_costs, got c={self.c} and '
          f'draft_costs={self.draft_costs}'
      )
    for name in ('draft_costs', 'verify_costs'):
      costs = getattr(self, name)
      if costs is not None and len(costs) != len(self.gammas):
        raise ValueError(
            f'{name} must be one for each of gammas={self.gammas}, got {costs}'
        )
    if not (np.all(np.isfinite(self.costs)) and np.all(self.costs > 0)):
      raise ValueError(
          f'costs of a round must be positive and finite, got {self.costs}'
      )
    if not 0 < self.change < 1:
      raise ValueError(f'change must be in (0, 1), got {self.change}')

  @property
  def costs(self) -> np.ndarray:
    """Time of a round in target steps, d(gamma) + v(gamma): float64[gammas]."""
    if self.c is not None:
      draft = np.multiply(self.gammas, self.c)
    else:
      draft = np.asarray(self.draft_costs)
    verify = 1.0 if self.verify_costs is None else self.verify_costs
    return draft + np.asarray(verify)

  def init(self) -> jax.Array:
    """Every rate is as likely as any other, float32[rates]."""
    return jnp.full(len(_RATES), 1 / len(_RATES), jnp.float32)

  def choose(self, state: jax.Array) -> jax.Array:
    """The gamma of most tokens per time, as far as the filter knows."""
    gammas = np.asarray(self.gammas)
    tokens = theory.expected_tokens(_RATES, gammas[:, None])
    return jnp.argmax((tokens @ state) / self.costs).astype(jnp.int32)

  def update(self, state: jax.Array, counters: Stats) -> jax.Array:
    """One step of the filter: what was judged, then what may change."""
    accepted = jnp.sum(counters.accepted)
    rejected = jnp.sum(counters.judged) - accepted
    evidence = accepted * np.log(_RATES) + rejected * np.log1p(-_RATES)
    belief = jax.nn.softmax(jnp.log(state) + evidence)
    return (1 - self.change) * belief + self.change / len(_RATES)


def as_policy(gamma: int | Policy) -> Policy:
  """Returns a number as `Fixed`, a policy as it is.

  Args:
    gamma: drafts per round, >= 1, or a policy.

  Returns:
    The policy.

  Raises:
    ValueError: neither the one nor the other.
  """
  if hasattr(gamma, 'gammas') and not isinstance(gamma, type):
    _check_gammas(gamma.gammas, 0)  # pyright: ignore
    return gamma  # pyright: ignore
  _check_gammas([gamma], 1)
  return Fixed(int(gamma))  # pyright: ignore
