# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stopping, lengths, rollback and bookkeeping, on texts that are written down.

A script of the target and one of the draft fix every draft, every rejection and
every round, so tokens and statistics are computed by hand.
"""

from helpers import some_slow
import jax
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec.testing import toys

VOCAB = 17
EOS = 1


def decode(target, draft, *, gamma, length, inputs=None, **options):
  """Greedy decode of scripts given as lists of equal length per row."""
  target, draft = np.atleast_2d(target), np.atleast_2d(draft)
  decoder = toys.ScriptDecoder(VOCAB)
  if inputs is None:
    inputs = np.arange(len(target))[:, None]
  return t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'script': target},
      {'script': draft},
      inputs,
      gamma=gamma,
      max_decode_len=length,
      temperature=0.0,
      **options,
  )


def script(length, seed=0):
  """Random ids that are neither 0 nor EOS."""
  return np.random.default_rng(seed).integers(2, VOCAB, length)


def other(ids):
  """Different ids at every place, none of them 0 or EOS."""
  return (ids - 2 + 7) % (VOCAB - 2) + 2


@pytest.mark.parametrize('gamma', some_slow([4], [1, 4, 5]))
def test_eos_at_every_place_of_a_block(gamma):
  """EOS drafted and accepted, at any k: kept once, zeros after it (B15)."""
  length = 2 * gamma + 4
  rows = []
  for k in range(length):
    text = script(length, seed=k)
    text[k] = EOS
    rows.append(text)
  rows = np.stack(rows)
  result = decode(rows, rows, gamma=gamma, length=length)
  for k in range(length):
    expected = np.where(np.arange(length) <= k, rows[k], 0)
    np.testing.assert_array_equal(result.tokens[k, 0], expected)
    assert result.stats.emitted[k, 0] == k + 1
    # Drafts past the EOS are neither accepted nor judged.
    assert result.stats.rounds[k, 0] == -(-(k + 1) // (gamma + 1))
    assert result.stats.judged[k, 0] == result.stats.accepted[k, 0]
    whole, last = divmod(k, gamma + 1)
    room = min(gamma, length - whole * (gamma + 1) - 1)
    accepted = whole * gamma + min(last + 1, room)
    assert result.stats.accepted[k, 0] == accepted


def test_eos_of_the_draft_does_not_end_the_row():
  """The draft proposes EOS at once, the target says it at step 12 (B16)."""
  target = np.stack([script(16, 1), script(16, 2)])
  target[:, 11] = EOS
  result = decode(target, np.full_like(target, EOS), gamma=4, length=16)
  for row in range(2):
    expected = np.where(np.arange(16) <= 11, target[row], 0)
    np.testing.assert_array_equal(result.tokens[row, 0], expected)
  np.testing.assert_array_equal(result.stats.emitted[:, 0], 12)
  # Nothing is accepted before the true EOS, which is drafted once it is due.
  np.testing.assert_array_equal(result.stats.accepted[:, 0], 1)
  np.testing.assert_array_equal(result.stats.rounds[:, 0], 12)


@pytest.mark.parametrize('length', some_slow([2], [1, 2, 7]))
@pytest.mark.parametrize('agree', [True, False])
def test_never_longer_than_allowed(length, agree):
  """Exactly the allowed number of tokens, whatever gamma is (B17)."""
  target = script(24)
  draft = target if agree else other(target)
  result = decode(target, draft, gamma=5, length=length)
  assert result.tokens.shape == (1, 1, length)
  np.testing.assert_array_equal(result.tokens[0, 0], target[:length])
  assert result.stats.emitted[0, 0] == length


def test_max_decode_steps_counts_after_the_prompt():
  target = np.stack([script(16, 3), script(16, 4)])
  prompts = target[:, :5].copy()
  prompts[1, 2:] = 0
  result = decode(
      target,
      target,
      gamma=5,
      length=16,
      prompts=prompts,
      max_decode_steps=2,
  )
  for row, kept in ((0, 7), (1, 4)):
    expected = np.where(np.arange(16) < kept, target[row], 0)
    np.testing.assert_array_equal(result.tokens[row, 0], expected)
  np.testing.assert_array_equal(result.stats.emitted[:, 0], 2)
  each = decode(
      target,
      target,
      gamma=5,
      length=16,
      prompts=prompts,
      max_decode_steps=np.array([1, 3]),
  )
  np.testing.assert_array_equal(each.stats.emitted[:, 0], [1, 3])


def test_prompt_fills_the_buffer():
  target = script(4)
  result = decode(target, target, gamma=2, length=4, prompts=target[None])
  np.testing.assert_array_equal(result.tokens[0, 0], target)
  assert result.stats.rounds[0, 0] == 0
  assert result.stats.emitted[0, 0] == 0


def test_eos_in_the_prompt_is_not_an_end():
  target = script(10)
  prompt = np.array([[5, EOS, 6, EOS]])
  result = decode(target, target, gamma=3, length=10, prompts=prompt)
  expected = np.concatenate([prompt[0], target[4:]])
  np.testing.assert_array_equal(result.tokens[0, 0], expected)


def test_prompt_with_gaps_keeps_its_tokens():
  """Zeros inside a prompt are filled in by the model, as in T5X."""
  target = script(12)
  prompt = np.array([[5, 0, 0, 6, 7, 0, 8, 0]])
  for draft in (target, other(target)):
    result = decode(target, draft, gamma=4, length=12, prompts=prompt)
    expected = target.copy()
    expected[: prompt.shape[1]] = np.where(
        prompt[0] != 0, prompt[0], target[: prompt.shape[1]]
    )
    np.testing.assert_array_equal(result.tokens[0, 0], expected)
    assert result.stats.emitted[0, 0] == 12 - np.count_nonzero(prompt)


def test_a_wrong_draft_makes_progress_and_leaves_no_trace():
  """One token a round, none of them drafted (B04, B23, B27)."""
  target = script(20)
  result = decode(target, other(target), gamma=4, length=20)
  np.testing.assert_array_equal(result.tokens[0, 0], target)
  assert result.stats.rounds[0, 0] == 20
  assert result.stats.accepted[0, 0] == 0
  np.testing.assert_array_equal(result.stats.histogram[0, 0], [20] + [0] * 4)


@pytest.mark.parametrize('gamma', some_slow([4], [1, 4, 7]))
def test_a_right_draft_is_accepted_whole(gamma):
  """ceil(length / (gamma + 1)) rounds (B24)."""
  target = script(20)
  result = decode(target, target, gamma=gamma, length=20)
  np.testing.assert_array_equal(result.tokens[0, 0], target)
  assert result.stats.rounds[0, 0] == -(-20 // (gamma + 1))
  assert result.stats.accepted[0, 0] == result.stats.drafted[0, 0]


@pytest.mark.parametrize('gamma', [1, 4])
@pytest.mark.parametrize('wrong', range(5))
def test_a_rejection_at_each_place(gamma, wrong):
  """First, middle and last draft of a block are judged alike (B30, B31)."""
  target = script(20)
  draft = target.copy()
  draft[wrong:: gamma + 1] = other(target)[wrong:: gamma + 1]
  result = decode(target, draft, gamma=gamma, length=20)
  np.testing.assert_array_equal(result.tokens[0, 0], target)
  accepted = by_hand(target, draft, gamma)
  assert result.stats.rounds[0, 0] == len(accepted)
  np.testing.assert_array_equal(
      result.stats.histogram[0, 0], np.bincount(accepted, minlength=gamma + 1)
  )


def by_hand(target, draft, gamma):
  """Accepted drafts of each round for two scripts."""
  accepted, t = [], 0
  while t < len(target):
    room = min(gamma, len(target) - t - 1)
    n = 0
    while n < room and target[t + n] == draft[t + n]:
      n += 1
    accepted.append(n)
    t += n + 1
  return accepted


def test_rows_do_not_wait_for_each_other():
  """Acceptance 0, 1, gamma - 1 and gamma in one batch (B28)."""
  gamma, length = 4, 24
  target = np.stack([script(length, seed) for seed in range(4)])
  draft = target.copy()
  draft[0] = other(target[0])
  draft[1, 1::3] = other(target[1])[1::3]
  draft[2, 3::4] = other(target[2])[3::4]
  together = decode(target, draft, gamma=gamma, length=length)
  np.testing.assert_array_equal(together.tokens[:, 0], target)
  for row in range(4):
    alone = decode(
        target, draft, gamma=gamma, length=length, inputs=np.array([[row]])
    )
    for ours, theirs in zip(
        jax.tree.leaves(together), jax.tree.leaves(alone)
    ):
      np.testing.assert_array_equal(ours[row], theirs[0])
  order = np.array([[2], [0], [3], [1]])
  permuted = decode(target, draft, gamma=gamma, length=length, inputs=order)
  for ours, theirs in zip(
      jax.tree.leaves(together), jax.tree.leaves(permuted)
  ):
    np.testing.assert_array_equal(ours[order[:, 0]], theirs)


def test_zero_is_a_token_like_any_other():
  """A generated 0 neither ends nor empties anything (B42)."""
  target = script(20)
  target[[1, 4, 5, 9]] = 0
  wrong = target.copy()
  wrong[4] = 3
  for draft in (target, wrong, other(target)):
    result = decode(target, draft, gamma=4, length=20)
    np.testing.assert_array_equal(result.tokens[0, 0], target)


def test_a_draft_past_an_accepted_eos_is_not_judged():
  target = np.array([3, 4, EOS, 5, 6, 7])
  draft = np.array([3, 4, EOS, 8, 8, 8])
  summary = decode(target, draft, gamma=5, length=6).stats.summary()
  assert summary['accepted'] == summary['judged'] == 3
  assert summary['alpha'] == summary['alpha_empirical'] == 1.0


def test_statistics_of_a_round_by_hand():
  target = np.array([2, 3, 4, 5, 6, 7, 8, EOS, 9, 9])
  draft = np.array([2, 3, 9, 5, 9, 7, 8, EOS, 9, 9])
  # gamma 3: [2 3 x] 4 | [5 x .] 6 | [7 8 EOS], the last cut by the EOS.
  stats = decode(target, draft, gamma=3, length=10).stats
  summary = stats.summary()
  assert summary['rounds'] == 3
  assert summary['drafted'] == 9
  assert summary['accepted'] == 2 + 1 + 3
  assert summary['judged'] == 3 + 2 + 3
  assert summary['emitted'] == 8
  assert summary['histogram'] == [0, 1, 1, 1]
  assert summary['alpha_empirical'] == 6 / 8
  assert summary['alpha'] == 6 / 8
  assert summary['tokens_per_target_call'] == 8 / 3
  assert summary['nonfinite'] == 0
