# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What adaptive gamma is worth in modelled time, and what it is held against.

Time is counted, not measured: 1 for a call of the target and c for a draft step
(Theorem 3.8). Texts are scripts, so that which drafts stand is written down.
"""

import itertools

from helpers import some_slow
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import oracle
from t5x_specdec import theory
from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import as_policy
from t5x_specdec.gamma import Fixed
from t5x_specdec.stats import Stats
from t5x_specdec.testing import toys

LENGTH = 1500
SEEDS = 4
VOCAB = 17


def stands(alphas, seed):
  """Which tokens of a text its draft gets right, bool[LENGTH]."""
  return np.random.default_rng(seed).random(LENGTH) < alphas


def decode(right, policy):
  """Decodes a text of which the draft gets these tokens right."""
  target = np.random.default_rng(9).integers(2, VOCAB, [1, len(right)])
  draft = np.where(right, target, (target - 1) % (VOCAB - 2) + 2)
  decoder = toys.ScriptDecoder(VOCAB)
  result = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'script': target},
      {'script': draft},
      np.zeros([1, 1], np.int32),
      max_decode_len=len(right),
      gamma=policy,
      temperature=0.0,
      trace=True,
  )
  np.testing.assert_array_equal(result.tokens[0], target)
  return result


def fixed_time(right, gamma, c):
  """Time at a fixed gamma, by definition."""
  at, time = 0, 0.0
  while at < len(right):
    n = 0
    while n < gamma and at + n < len(right) and right[at + n]:
      n += 1
    at += n + 1
    time += 1 + gamma * c
  return time


def gain(alphas, c):
  """Time at the best fixed gamma over adaptive time, minus 1; rounds by gamma.

  The best of all in hindsight, over all seeds together.
  """
  policy = Adaptive(c=c)
  texts = [stands(alphas, seed) for seed in range(SEEDS)]
  best = min(
      sum(fixed_time(right, gamma, c) for right in texts)
      for gamma in range(16)
  )
  rounds = sum(
      np.asarray(decode(right, policy).stats.rounds_by_gamma[0, 0])
      for right in texts
  )
  return best / (rounds @ (1 + c * np.arange(len(rounds)))) - 1, rounds


@pytest.mark.slow
@pytest.mark.parametrize('c', some_slow([0.2], [0.05, 0.2]))
def test_adaptive_gamma_against_the_best_fixed_one(c):
  """Little is lost where acceptance stays, and much gained where it changes."""
  for alpha in (0.5, 0.75, 0.9):
    assert gain(alpha, c)[0] > -0.03, alpha
  alternating = np.where(np.arange(LENGTH) // 100 % 2 == 0, 0.95, 0.1)
  assert gain(alternating, c)[0] > 0.05
  # And a draft that is worth nothing costs little more than none.
  loss, rounds = gain(0.02, c)
  assert loss > -0.03
  assert rounds[0] > rounds[2:].sum()


@pytest.mark.slow
def test_drafts_come_back():
  """From gamma 0, where nothing is judged, without being told."""
  right = np.arange(LENGTH) > LENGTH // 2
  result = decode(right, Adaptive(c=0.2))
  trace = result.trace.rounds((0, 0), result.tokens[0, 0])
  late = [len(entry.drafted) for entry in trace if entry.position > 900]
  assert min(late[:-1]) == 10
  early = [entry for entry in trace if 100 < entry.position < LENGTH // 2]
  drafting = sum(1 for entry in early if entry.drafted)
  assert 0 < drafting < 0.2 * len(early)
  gammas = np.bincount([entry.gamma for entry in trace], minlength=11)
  np.testing.assert_array_equal(gammas, result.stats.rounds_by_gamma[0, 0])


def test_the_fastest_gamma_of_a_known_rate():
  """With nothing but one rate believed in, what Theorem 3.8 says."""
  policy = Adaptive(gammas=tuple(range(16)), c=0.1)
  rates = np.linspace(0.02, 0.98, 17)
  for i, rate in enumerate(rates):
    belief = jnp.zeros(17).at[i].set(1.0)
    speed = theory.walltime_improvement(rate, np.arange(16), 0.1)
    assert policy.choose(belief) == np.argmax(speed)
  # Measured costs: a wide block is dear, and so drafts are few.
  dear = Adaptive(
      gammas=(0, 1, 4), draft_costs=(0, 0.1, 0.2), verify_costs=(1, 1.1, 9)
  )
  assert dear.choose(jnp.zeros(17).at[-1].set(1.0)) == 1
  np.testing.assert_allclose(dear.costs, [1.0, 1.2, 9.2])


@pytest.mark.parametrize(
    'options, message',
    [
        ({}, 'either c or draft_costs'),
        ({'c': 0.1, 'draft_costs': (1,) * 7}, 'either c or draft_costs'),
        ({'c': -0.2}, 'costs of a round must be positive'),
        ({'c': float('nan')}, 'costs of a round must be positive'),
        ({'c': 0.1, 'gammas': (3, 1)}, 'gammas must be rising'),
        ({'c': 0.1, 'gammas': (0,)}, 'gammas must have one >= 1'),
        ({'c': 0.1, 'gammas': (-1, 2)}, 'integer >= 0, got -1'),
        ({'c': 0.1, 'gammas': (0, 1.5)}, 'integer >= 0, got 1.5'),
        ({'c': 0.1, 'verify_costs': (1,)}, 'verify_costs must be one for each'),
        ({'c': 0.1, 'change': 0}, r'change must be in \(0, 1\), got 0'),
    ],
)
def test_bad_policies_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    Adaptive(**options)


def test_numbers_are_policies():
  assert as_policy(np.int64(3)) == Fixed(3)
  assert hash(Adaptive(gammas=[0, 2], c=0.1)) == hash(
      Adaptive(gammas=(0, 2), c=0.1)
  )
  for bad in (Fixed, Adaptive, 'auto', None, 0, 1.0):
    with pytest.raises(ValueError, match='gamma must be an integer >= 1'):
      as_policy(bad)


def test_a_number_stays_what_it_is():
  policy = Fixed(3)
  state = policy.init()
  for _ in range(2):
    assert policy.gammas[policy.choose(state)] == 3
    state = policy.update(state, Stats.zeros(1, 3))
  assert state == policy.init()


def fastest(right, c):
  """Least time for a text over all choices of every round's gamma."""
  best = [0.0]
  for left in range(1, len(right) + 1):
    at, times = len(right) - left, []
    for gamma in range(left):
      n = 0
      while n < gamma and right[at + n]:
        n += 1
      times.append(1 + gamma * c + best[left - n - 1])
    best.append(min(times))
  return best[-1]


@pytest.mark.parametrize('c', [0.0, 0.1, 0.6, 1.5])
def test_the_oracle_is_the_best_there_is(c):
  """Against all choices of gamma, over all texts of 7 tokens."""
  for right in itertools.product([False, True], repeat=7):
    # Every round drafts to the end: what stands is known of every token.
    rounds, at = [], 0
    while at < 7:
      left, n = 7 - at - 1, 0
      while n < left and right[at + n]:
        n += 1
      rounds.append((left, n))
      at += n + 1
    runs = oracle.runs(rounds)
    assert sum(runs) + len(runs) == 7
    found = oracle.walltime(runs, c)
    assert found == pytest.approx(fastest(right, c)), right


def test_the_oracle_of_a_trace():
  right = np.array([1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0], bool)
  result = decode(right, 3)
  entries = result.trace.rounds((0, 0), result.tokens[0, 0])
  # [1 1 x] 0 | [1 1 1] 1 | [1 x .] 0 | [1 x] 0 | [] 0
  counts = [(len(entry.drafted), entry.accepted) for entry in entries]
  assert counts == [(3, 2), (3, 3), (3, 1), (2, 1), (0, 0)]
  runs = oracle.runs(counts)
  assert runs == [2, 5, 1, 0]
  assert oracle.walltime(runs, 0.1) == pytest.approx(4.8)
  # A rejection ends a text: what is left is no run.
  assert oracle.runs([(2, 2), (1, 0)]) == [3]
  assert oracle.runs([]) == []


def test_the_oracle_on_average():
  """Section 3.5: up to 60% faster than the best gamma; and by simulation."""
  c, alpha = 0.1, 0.8
  right = np.random.default_rng(0).random(200_000) < alpha
  ends = np.flatnonzero(~right)
  runs = np.diff(ends) - 1
  found = np.sum(runs + 1) / oracle.walltime(runs, c)
  want = theory.oracle_improvement(alpha, c)
  assert found == pytest.approx(want, rel=0.01)
  alphas = np.linspace(0.01, 0.99, 99)
  fixed = theory.walltime_improvement(alphas[:, None], np.arange(200), c)
  ratio = theory.oracle_improvement(alphas, c) / np.max(fixed, axis=1)
  assert np.all(ratio >= 1) and 1.4 < np.max(ratio) < 1.7
