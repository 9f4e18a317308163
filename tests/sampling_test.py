# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The law that is drawn from, against sorting in float64; and its keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec import sampling
from t5x_specdec.testing import toys


def method(temperature=1.0, topk=0, topp=0.0, rows=1):
  return sampling.Method(
      temperature=jnp.broadcast_to(jnp.float32(temperature), [rows]),
      topk=jnp.int32(topk),
      topp=jnp.float32(topp),
  )


LOGITS = np.random.default_rng(0).normal(0, 3, [3, 2, 97]).astype(np.float32)
law = jax.jit(sampling.law)


@pytest.mark.parametrize('temperature', [1e-4, 1e-3, 0.5, 1.0, 2.0, 1e3])
@pytest.mark.parametrize(
    'filters',
    [
        {},
        {'topk': 1},
        {'topk': 7},
        {'topk': 97},
        {'topk': 500},
        {'topp': 0.1},
        {'topp': 0.9},
    ],
)
def test_law_is_that_of_sorting(temperature, filters):
  got = law(LOGITS, method(temperature, rows=3, **filters))
  clipped = {'topk': min(filters.get('topk', 0), 97)} | {
      name: value for name, value in filters.items() if name == 'topp'
  }
  want = toys.exact_law(LOGITS, temperature, **clipped)
  np.testing.assert_allclose(got, want, atol=2e-6, rtol=2e-5)
  np.testing.assert_array_equal(np.asarray(got) == 0, want < 1e-38)


def test_ties_at_a_cutoff_are_all_kept():
  logits = jnp.array([[2.0, 1.0, 1.0, 1.0, 0.0, -jnp.inf]])
  kept = np.asarray(law(logits, method(topk=2))) > 0
  np.testing.assert_array_equal(kept[0], [1, 1, 1, 1, 0, 0])
  kept = np.asarray(law(logits, method(topp=0.5))) > 0
  np.testing.assert_array_equal(kept[0], [1, 1, 1, 1, 0, 0])


@pytest.mark.parametrize('filters', [{'topk': 1}, {'topk': 3}, {'topp': 0.5}])
@pytest.mark.parametrize('sign', [1, -1])
def test_filters_do_not_hide_nan(filters, sign):
  """Whatever its sign, which x86 sets in what it makes of inf - inf."""
  logits = jnp.array([[2.0, np.copysign(np.nan, sign), 1.0, 0.0]])
  assert np.all(np.isnan(law(logits, method(**filters))))


def test_greedy_ties_break_to_the_lowest_id():
  logits = jnp.array([[0.0, 3.0, 3.0, 1.0]])
  np.testing.assert_array_equal(law(logits, method(0.0)), [[0, 1, 0, 0]])
  token, _ = sampling.choose(logits, method(0.0), keys(1))
  assert token[0] == 1


def test_rows_have_their_own_temperature():
  got = law(LOGITS, method(np.float32([0.0, 0.5, 2.0]), rows=3))
  for row, temperature in enumerate([0.0, 0.5, 2.0]):
    want = toys.exact_law(LOGITS[row], temperature)
    np.testing.assert_allclose(got[row], want, atol=2e-6)


def test_extreme_logits_stay_finite():
  logits = jnp.array([
      [3e38, -3e38, 0.0],
      [1e-38, -1e-38, 0.0],
      [0.0, 0.0, 0.0],
  ])
  for temperature in (1e-6, 1e-3, 1.0, 1e3):
    got = np.asarray(law(logits, method(temperature, rows=3)))
    assert np.all(np.isfinite(got)), (temperature, got)
    np.testing.assert_allclose(got.sum(-1), 1, rtol=1e-6)


def keys(rows, seed=0):
  return sampling.row_keys(jax.random.key(seed), rows)


def test_draw_follows_the_law_and_never_leaves_it():
  rows = 200_000
  probs = np.array([0.5, 0.0, 0.3, 1e-6, 0.2, 0.0], np.float32)
  tokens = sampling.draw(keys(rows), jnp.broadcast_to(probs, [rows, 6]))
  frequencies = np.bincount(tokens, minlength=6) / rows
  np.testing.assert_array_equal(frequencies[[1, 5]], 0)
  np.testing.assert_allclose(frequencies, probs, atol=0.005)


@pytest.mark.slow
@pytest.mark.optimized  # 200 million draws
def test_near_flat_law_in_merged_bins():
  """float32 noise is fine enough for thousands of ids alike (B13)."""
  rows, vocab = 50_000, 4096
  logits = np.random.default_rng(1).normal(0, 1e-3, [1, vocab])
  probs = np.asarray(law(jnp.asarray(logits, jnp.float32), method()))[0]
  draw = jax.jit(
      lambda keys: sampling.draw(
          keys, jnp.broadcast_to(probs, [keys.shape[0], vocab])
      )
  )
  tokens = np.concatenate([draw(chunk) for chunk in jnp.split(keys(rows), 25)])
  bins = np.bincount(tokens * 8 // vocab, minlength=8) / rows
  expected = probs.reshape(8, -1).sum(1)
  error = np.sqrt(expected * (1 - expected) / rows)
  assert np.all(np.abs(bins - expected) < 4 * error)


def test_ids_beyond_sixteen_bits():
  vocab = 2**16 + 5
  probs = np.zeros([64, vocab], np.float32)
  probs[:, [3, vocab - 1]] = 0.5
  tokens = np.asarray(sampling.draw(keys(64), jnp.asarray(probs)))
  assert set(tokens) == {3, vocab - 1}


def test_all_the_mass_keeps_all_but_rounding():
  got = law(LOGITS, method(topp=1.0, rows=3))
  np.testing.assert_allclose(got, toys.exact_law(LOGITS, 1.0), atol=2e-6)


def test_no_two_draws_share_a_key():
  gamma, rows = 5, 3
  seen = set()
  count = 0
  for position in range(7):
    round_keys = sampling.round_keys(
        keys(rows), jnp.full([rows], position), gamma
    )
    for each in round_keys:
      data = np.asarray(jax.random.key_data(each)).reshape(-1, 2)
      seen |= {tuple(key) for key in data}
      count += len(data)
  assert len(seen) == count == 7 * rows * (gamma + 2)


def test_raw_and_typed_keys_are_the_same():
  raw = sampling.row_keys(jax.random.PRNGKey(3), 4)
  typed = sampling.row_keys(jax.random.key(3), 4)
  np.testing.assert_array_equal(
      jax.random.key_data(raw), jax.random.key_data(typed)
  )
