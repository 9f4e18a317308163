# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rounds as they are recorded, by hand; and the theory they are held to."""

import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import theory
from t5x_specdec.testing import toys
from t5x_specdec.trace import Round


def test_rounds_of_a_script():
  target = np.array([[2, 3, 4, 5, 6, 7, 8, 1, 9, 9], [5] * 10])
  draft = np.array([[2, 3, 9, 5, 9, 7, 8, 1, 9, 9], [6] * 10])
  decoder = toys.ScriptDecoder(17)
  result = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'script': target},
      {'script': draft},
      np.array([[0], [1]]),
      prompts=np.array([[0], [4]]),
      gamma=3,
      max_decode_len=10,
      temperature=0.0,
      trace=True,
  )
  trace = result.trace
  rounds = trace.rounds((0, 0), result.tokens[0, 0])
  assert rounds == [
      Round(0, 3, [2, 3, 9], 2, 4, p=[1.0, 1.0, 0.0], q=[1.0] * 3),
      Round(3, 3, [5, 9, 7], 1, 6, p=[1.0, 0.0, 1.0], q=[1.0] * 3),
      # EOS was drafted and stood; what was drafted after it is cut off.
      Round(5, 3, [7, 8, 1], 3, None, p=[1.0] * 3, q=[1.0] * 3),
  ]
  rounds = trace.rounds((1, 0), result.tokens[1, 0])
  assert [entry.position for entry in rounds] == list(range(1, 10))
  assert {entry.accepted for entry in rounds} == {0}
  assert {entry.next_token for entry in rounds} == {5}
  # Near the end there is room for fewer drafts.
  assert [len(entry.drafted) for entry in rounds] == [3] * 6 + [2, 1, 0]
  assert {entry.gamma for entry in rounds} == {3}


def test_rounds_over_a_prompt_with_gaps():
  script = np.array([[3, 4, 5, 2, 6, 7, 7, 2]])
  decoder = toys.ScriptDecoder(17)
  result = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'script': script},
      {'script': script},
      np.array([[0]]),
      prompts=np.array([[3, 0, 5, 0, 6, 0, 0, 0]]),
      gamma=2,
      max_decode_len=8,
      temperature=0.0,
      trace=True,
  )
  rounds = result.trace.rounds((0, 0), result.tokens[0, 0])
  assert rounds == [
      Round(1, 2, [4], 1, 5, p=[1.0], q=[1.0]),
      Round(3, 2, [2], 1, 6, p=[1.0], q=[1.0]),
      Round(5, 2, [7, 7], 2, 2, p=[1.0] * 2, q=[1.0] * 2),
  ]


@pytest.mark.slow
def test_chances_are_those_of_the_laws_that_are_sampled():
  rng = np.random.default_rng(0)
  tables = rng.normal(size=[2, 2, 7, 7, 7]).astype(np.float32)
  decoder = toys.TableDecoder(7)
  result = t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'table': tables[0]},
      {'table': tables[1]},
      np.array([[0], [1]]),
      gamma=2,
      max_decode_len=12,
      eos_id=-1,
      temperature=np.array([0.0, 0.7]),
      topk=4,
      trace=True,
  )
  seen = []
  for row, temperature in enumerate([0.0, 0.7]):
    text = [0, 0, *result.tokens[row, 0].tolist()]
    for entry in result.trace.rounds((row, 0), result.tokens[row, 0]):
      before = text[: entry.position + 2]
      for token, *chances in zip(entry.drafted, entry.p, entry.q):
        exact = [
            toys.exact_law(table[row, before[-2], before[-1]], temperature, 4)
            for table in tables
        ]
        np.testing.assert_allclose(
            chances, [law[token] for law in exact], rtol=1e-5
        )
        before.append(token)
        seen.append((row, *chances))
  assert {(p, q) for row, p, q in seen if row == 0} == {(0.0, 1.0), (1.0, 1.0)}
  assert len({q for row, _, q in seen if row == 1}) > 4


@pytest.mark.slow
def test_trace_changes_nothing_else():
  target = np.random.default_rng(0).integers(2, 17, [3, 12])
  draft = np.where(np.arange(12) % 3 == 2, 5, target)
  decoder = toys.ScriptDecoder(17)
  results = [
      t5x_specdec.speculative_decode(
          decoder,
          decoder,
          {'script': target},
          {'script': draft},
          np.arange(3)[:, None],
          gamma=4,
          max_decode_len=12,
          temperature=0.0,
          trace=trace,
      )
      for trace in (False, True)
  ]
  assert results[0].trace is None
  np.testing.assert_array_equal(results[0].tokens, results[1].tokens)
  for name, value in results[0].stats.summary().items():
    assert results[1].stats.summary()[name] == value
  accepted = np.asarray(results[1].trace.accepted)
  assert (accepted >= 0).sum() == results[1].stats.summary()['rounds']
  assert accepted[accepted >= 0].sum() == results[1].stats.summary()['accepted']


@pytest.mark.parametrize(
    'alpha, gamma, speed',
    [
        (0.6, 2, 1.96),
        (0.7, 3, 2.53),
        (0.8, 2, 2.44),
        (0.8, 5, 3.69),
        (0.9, 2, 2.71),
        (0.9, 10, 6.86),
    ],
)
def test_table_1(alpha, gamma, speed):
  """The paper's Table 1, column speed, where c = 0."""
  assert theory.expected_tokens(alpha, gamma) == pytest.approx(speed, abs=0.005)
  assert theory.walltime_improvement(alpha, gamma, 0.0) == pytest.approx(
      speed, abs=0.005
  )


def test_limits_of_the_theory():
  alphas = np.array([0.0, 0.5, 1.0])
  np.testing.assert_allclose(
      theory.expected_tokens(alphas, 4), [1.0, 2 - 0.5**4, 5.0]
  )
  # Table 2, EnDe with T5-small: alpha .75, gamma 7, c .02.
  speed = theory.walltime_improvement(0.75, 7, 0.02)
  assert speed == pytest.approx(3.2, abs=0.07)
