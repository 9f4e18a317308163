# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The joint law of whole outputs is the target's, exactly.

And the test can fail: each fault that others shipped is planted in turn, and
must be found.
"""

from helpers import some_slow
import jax
import jax.numpy as jnp
import laws
from laws import METHODS
import numpy as np
import pytest

from t5x_specdec import acceptance
from t5x_specdec import sampling
from t5x_specdec import verification
from t5x_specdec.testing import toys


def exact(tables, prompt=(), length=laws.LENGTH, **method):
  """The exact law of outputs of the toy target."""
  law = toys.exact_law(tables[0][0], **method)
  return toys.enumerate_outputs(law, length, prompt=prompt)


# Enough for the planted faults, the smallest of which a quarter does not show,
# and for noise that rows share.
FEWER = laws.SAMPLES // 2

both_rules = pytest.mark.parametrize(
    'rule', some_slow(['block'], ['token', 'block'])
)
# Most of these draw for longer than they compile, and share two compilations.
optimized = pytest.mark.optimized


@optimized
@both_rules
@pytest.mark.parametrize('gamma', some_slow([3], [1, 2, 3, 5]))
@pytest.mark.parametrize('name', some_slow(['topp'], METHODS))
def test_soft_drafts(name, gamma, rule):
  tables = laws.toy_tables()
  outputs = laws.sample(
      tables, gamma=gamma, verification=rule, **METHODS[name]
  )
  p_value, distance = laws.p_value(outputs, exact(tables, **METHODS[name]))
  assert p_value > laws.FALSE_ALARM, (name, gamma, p_value, distance)


@pytest.mark.slow
@optimized
@both_rules
def test_draft_equal_to_target(rule):
  tables = (laws.toy_tables(2)[0],) * 2
  outputs = laws.sample(
      tables, gamma=3, verification=rule, **METHODS['plain']
  )
  p_value, distance = laws.p_value(outputs, exact(tables, **METHODS['plain']))
  assert p_value > laws.FALSE_ALARM, (p_value, distance)


@optimized
@both_rules
def test_draft_without_overlap(rule):
  target, _ = laws.toy_tables(3)
  draft = -8.0 * target
  outputs = laws.sample(
      (target, draft), gamma=3, verification=rule, **METHODS['plain']
  )
  p_value, distance = laws.p_value(
      outputs, exact((target,), **METHODS['plain'])
  )
  assert p_value > laws.FALSE_ALARM, (p_value, distance)


@optimized
def test_temperature_of_each_row():
  """Greedy, cold and hot rows in one batch each keep their own law."""
  tables = laws.toy_tables(4)
  temperatures = [0.0, 0.6, 1.7]
  outputs = laws.sample(
      tables,
      gamma=3,
      temperature=np.resize(np.float32(temperatures), laws.SAMPLES),
      topk=0,
  )
  for i, temperature in enumerate(temperatures):
    law = exact(tables, temperature=temperature)
    p_value, distance = laws.p_value(outputs[i::3], law)
    assert p_value > laws.FALSE_ALARM, (temperature, p_value, distance)


@pytest.mark.slow
@optimized
def test_prompt():
  tables = laws.toy_tables(5)
  prompt = (3, 2)
  outputs = laws.sample(
      tables, gamma=3, length=5, prompt=prompt, **METHODS['plain']
  )
  law = exact(tables, prompt=prompt, length=5, **METHODS['plain'])
  p_value, distance = laws.p_value(outputs, law)
  assert p_value > laws.FALSE_ALARM, (p_value, distance)


@pytest.mark.slow
@optimized
def test_prompt_with_a_gap():
  """A free token between forced ones is drawn from p, not from a posterior."""
  tables = laws.toy_tables(6)
  prompt = (3, 0, 4)
  outputs = laws.sample(
      tables, gamma=3, length=4, prompt=prompt, **METHODS['plain']
  )
  p = toys.exact_law(tables[0][0], 1.0)
  law = {}
  for gap in range(laws.VOCAB):
    if gap == 1:  # EOS ends the row
      law[3, 1, 0, 0] = p[0, 3, 1]
      continue
    for last in range(laws.VOCAB):
      law[3, gap, 4, last] = p[0, 3, gap] * p[gap, 4, last]
  p_value, distance = laws.p_value(outputs, law)
  assert p_value > laws.FALSE_ALARM, (p_value, distance)


@pytest.mark.slow
@pytest.mark.parametrize('impl', ['threefry2x32', 'rbg', 'unsafe_rbg'])
@pytest.mark.parametrize('gamma', [0, 3])
def test_keys_of_any_generator(impl, gamma):
  """T5X's hardware RNG, with a first row that ends before the others.

  Such generators draw a vmapped batch from its first key alone: the rows would
  share their noise, and repeat it once the first has ended.
  """
  tables = laws.toy_tables(7)
  keys = jax.random.split(jax.random.key(0, impl=impl), FEWER)
  steps = np.full([FEWER], laws.LENGTH)
  steps[0] = 1
  outputs = laws.sample(
      tables,
      gamma=gamma,
      samples=FEWER,
      row_keys=keys,
      max_decode_steps=steps,
      **METHODS['plain'],
  )
  law = exact(tables, **METHODS['plain'])
  p_value, distance = laws.p_value(outputs[1:], law)
  assert p_value > laws.FALSE_ALARM, (impl, gamma, p_value, distance)


@pytest.mark.slow
def test_no_key_is_used_twice():
  """JAX's own checker agrees (B06)."""
  jax.clear_caches()
  with jax.debug_key_reuse(True):
    laws.sample(laws.toy_tables(), gamma=3, samples=8, **METHODS['topk'])
  jax.clear_caches()


def plant_greedy_proposals_with_soft_q(monkeypatch):
  def choose(logits, method, keys):
    return jnp.argmax(logits, -1).astype(jnp.int32), sampling.law(
        logits, method
    )

  monkeypatch.setattr(sampling, 'choose', choose)


def plant_residual_from_p(monkeypatch):
  monkeypatch.setattr(acceptance, 'residual', lambda p, q, scale: p)


def plant_filter_on_target_only(monkeypatch):
  """Drafts are filtered, but q in the ratio is not."""
  choose = sampling.choose

  def unfiltered(logits, method, keys):
    token, _ = choose(logits, method, keys)
    plain = method.replace(topk=jnp.int32(0), topp=jnp.float32(0))
    return token, sampling.law(logits, plain)

  monkeypatch.setattr(sampling, 'choose', unfiltered)


def plant_filter_on_draft_only(monkeypatch):
  verify = verification.verify

  def unfiltered(logits, proposal, method, *args):
    plain = method.replace(topk=jnp.int32(0), topp=jnp.float32(0))
    return verify(logits, proposal, plain, *args)

  monkeypatch.setattr(verification, 'verify', unfiltered)


def plant_one_key_for_all(monkeypatch):
  """Draft, acceptance and residual draws share the round's key."""

  def round_keys(keys, positions, gamma):
    keys = sampling.fold_rows(keys, positions)
    return jnp.repeat(keys[:, None], gamma, axis=1), keys, keys

  monkeypatch.setattr(sampling, 'round_keys', round_keys)


def plant_draft_noise_again_in_the_residual(monkeypatch):
  original = sampling.round_keys

  def round_keys(*args):
    drafts, accept, _ = original(*args)
    return drafts, accept, drafts[:, 0]

  monkeypatch.setattr(sampling, 'round_keys', round_keys)


def plant_next_row_of_p(monkeypatch):
  verify = verification.verify

  def shifted(logits, *args):
    return verify(jnp.roll(logits, -1, axis=1), *args)

  monkeypatch.setattr(verification, 'verify', shifted)


def plant_accept_without_u(monkeypatch):
  monkeypatch.setattr(
      jax.random, 'uniform', lambda key, shape: jnp.full(shape, 0.5)
  )


def plant_first_failure(monkeypatch):
  """Block verification that stops at the first prefix that does not stand."""
  monkeypatch.setattr(acceptance, '_last', acceptance._leading)


def plant_residual_of_the_other_rule(monkeypatch):
  judgement = acceptance._judgement

  def unscaled(p, q, usable, accepted, scale):
    return judgement(p, q, usable, accepted, jnp.ones_like(scale))

  monkeypatch.setattr(acceptance, '_judgement', unscaled)


def plant_ratios_above_one(monkeypatch):
  def joint_ratios(px, qx):
    ratios = jnp.where(qx > 0, px / jnp.where(qx > 0, qx, 1.0), 0.0)
    return jnp.pad(jnp.cumprod(ratios, axis=1), ((0, 0), (1, 0)),
                   constant_values=1.0)

  monkeypatch.setattr(acceptance, 'joint_ratios', joint_ratios)


def plant_one_uniform_for_all_drafts(monkeypatch):
  uniform = acceptance._uniform

  def shared(keys, gamma):
    return jnp.broadcast_to(uniform(keys, 1), [len(keys), gamma])

  monkeypatch.setattr(acceptance, '_uniform', shared)


@pytest.fixture
def compile_anew():
  jax.clear_caches()
  yield
  jax.clear_caches()


PLANTED = [
    (plant_greedy_proposals_with_soft_q, 'plain', 'token'),
    (plant_residual_from_p, 'plain', 'block'),
    (plant_filter_on_target_only, 'topk', 'token'),
    (plant_filter_on_target_only, 'topp', 'block'),
    (plant_filter_on_draft_only, 'topk', 'token'),
    (plant_one_key_for_all, 'plain', 'token'),
    (plant_draft_noise_again_in_the_residual, 'plain', 'token'),
    (plant_next_row_of_p, 'plain', 'block'),
    (plant_accept_without_u, 'plain', 'block'),
    (plant_first_failure, 'plain', 'block'),
    (plant_residual_of_the_other_rule, 'plain', 'block'),
    (plant_ratios_above_one, 'plain', 'block'),
    (plant_one_uniform_for_all_drafts, 'plain', 'block'),
]


@pytest.mark.parametrize(
    'plant, name, rule',
    some_slow([PLANTED[10]], PLANTED),
)
def test_planted_fault_is_found(plant, name, rule, monkeypatch, compile_anew):
  tables = laws.toy_tables()
  plant(monkeypatch)
  outputs = laws.sample(
      tables, gamma=3, samples=FEWER, verification=rule, **METHODS[name]
  )
  p_value, _ = laws.p_value(outputs, exact(tables, **METHODS[name]))
  assert p_value < laws.DETECTED
