# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A right decoder is certified; each broken one is not, and is told why."""

import dataclasses
import functools
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from t5x_specdec import acceptance
from t5x_specdec import loop
from t5x_specdec import rounds
from t5x_specdec import sampling
from t5x_specdec import verification
from t5x_specdec.certificate import checks
from t5x_specdec.certificate import reference
from t5x_specdec.certificate import statistics
from t5x_specdec.certificate import toy
from t5x_specdec.certificate import trial
from t5x_specdec.certificate.reference import Setting
from t5x_specdec.cli import main
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.testing import toys


@pytest.fixture(autouse=True)
def compile_anew():
  """The loop is compiled with what a test has planted."""
  decode: Any = loop.decode
  decode.clear_cache()
  yield
  decode.clear_cache()


@functools.cache
def exact(setting: Setting):
  """The laws of the toy pair, which no fault of a decoder changes."""
  return toy.laws(toy.make(trial._TOY_INPUTS, 0), setting)


def tried(gamma: int = 3, settings=trial.SETTINGS):
  """The certificate of a toy pair at one gamma, by tokens."""
  with pytest.MonkeyPatch.context() as patch:
    laws = {setting: exact(setting) for setting in settings}
    patch.setattr(toy, 'laws', lambda subject, setting: laws[setting])
    patch.setattr(trial, 'SETTINGS', settings)
    return trial.certify(
        [trial.try_toy(0, 400, ((gamma, 'token'),))], lambda check: None
    )


def plant_residual_from_p(monkeypatch):
  monkeypatch.setattr(acceptance, 'residual', lambda p, q, scale: p)


def plant_q_of_another_token(monkeypatch):
  at_drafts = acceptance.at_drafts

  def wrong(law, drafts):
    is_q = law.shape[1] == drafts.shape[1]
    return at_drafts(jnp.roll(law, 1, axis=-1) if is_q else law, drafts)

  monkeypatch.setattr(acceptance, 'at_drafts', wrong)


def plant_bonus_from_the_position_before(monkeypatch):
  judgement = acceptance._judgement

  def wrong(p, *args):
    return judgement(p.at[:, -1].set(p[:, -2]), *args)

  monkeypatch.setattr(acceptance, '_judgement', wrong)


@dataclasses.dataclass(frozen=True)
class Shifted:
  """A decoder whose cache is written one slot too far."""

  decoder: Any

  def __getattr__(self, name):
    return getattr(self.decoder, name)

  def init(self, params, inputs, rows, max_len):
    return self.decoder.init(params, inputs, rows, max_len + 1)

  def decode_block(self, params, state, tokens, positions):
    return self.decoder.decode_block(params, state, tokens, positions + 1)


def plant_target_cache_off_by_one(monkeypatch):
  call_target = verification.call_target

  def wrong(target, *args):
    shifted: Any = Shifted(target)
    return call_target(shifted, *args)

  monkeypatch.setattr(verification, 'call_target', wrong)


def plant_uniforms_shared_between_rows(monkeypatch):
  uniform = acceptance._uniform

  def wrong(keys, gamma):
    return jnp.broadcast_to(uniform(keys[:1], gamma), [len(keys), gamma])

  monkeypatch.setattr(acceptance, '_uniform', wrong)


def plant_noise_shared_between_rounds(monkeypatch):
  round_keys = sampling.round_keys

  def wrong(keys, positions, gamma):
    return round_keys(keys, jnp.zeros_like(positions), gamma)

  monkeypatch.setattr(sampling, 'round_keys', wrong)


def plant_q_recorded_at_temperature_1(monkeypatch):
  choose = sampling.choose

  def wrong(logits, method, keys):
    token, _ = choose(logits, method, keys)
    plain = jnp.ones_like(method.temperature)
    return token, sampling.law(logits, method.replace(temperature=plain))

  monkeypatch.setattr(sampling, 'choose', wrong)


def plant_eos_ignored(monkeypatch):
  commit = rounds._commit

  def wrong(state, request, *args):
    return commit(state, request.replace(eos_id=jnp.int32(-1)), *args)

  monkeypatch.setattr(rounds, '_commit', wrong)


def plant_any_greedy_draft_accepted(monkeypatch):
  accept_greedy = acceptance.accept_greedy

  def wrong(best, drafts, lengths):
    return accept_greedy(best.at[:, :-1].set(drafts), drafts, lengths)

  monkeypatch.setattr(acceptance, 'accept_greedy', wrong)


# Fault, drafts per round, checks that must fail, what the verdict must say.
FAULTS = {
    'residual': (
        plant_residual_from_p, 3, {'joint law', 'drafted tokens'},
    ),
    'wrong_q': (
        plant_q_of_another_token, 3, {'joint law', 'drafted tokens'},
    ),
    'bonus': (
        plant_bonus_from_the_position_before, 1,
        {'joint law', 'law at each position'},
    ),
    'target_cache': (
        plant_target_cache_off_by_one, 3, {'greedy argmax', 'joint law'},
    ),
    'rows_share': (
        plant_uniforms_shared_between_rows, 1, {'rows share no noise'},
    ),
    'rounds_share': (
        plant_noise_shared_between_rounds, 1,
        {'joint law', 'positions share no noise'},
    ),
    'q_temperature': (
        plant_q_recorded_at_temperature_1, 3, {'joint law', 'likely tokens'},
    ),
    'eos': (plant_eos_ignored, 3, {'text ends'}),
    'greedy': (
        plant_any_greedy_draft_accepted, 3, {'greedy tokens', 'greedy argmax'},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', FAULTS)
def test_broken_decoder_is_told_why(name, monkeypatch):
  plant, gamma, names = FAULTS[name]
  plant(monkeypatch)
  # Less is compiled where temperature 1 shows the fault.
  few = trial.SETTINGS[: 3 if name == 'q_temperature' else 1]
  certificate = tried(gamma, few)
  failed = {check.name for check in certificate.failed}
  assert names <= failed, certificate.verdict
  assert certificate.verdict.startswith('NOT CERTIFIED: ')
  assert certificate.failed[0].fault in certificate.verdict
  for wanted in names:
    assert wanted in certificate.verdict
  if name in ('eos', 'greedy'):  # and of nothing else
    only = {'text ends', 'greedy tokens', 'greedy argmax', 'joint law'}
    assert failed <= only


@pytest.mark.slow
def test_draft_cache_off_by_one_costs_no_exactness(monkeypatch):
  """Whatever a draft model gets wrong, q is what it drew from."""
  make = toy.make

  def shifted(inputs, seed):
    subject = make(inputs, seed)
    decoder: Any = Shifted(subject.target)
    return dataclasses.replace(subject, draft=ModelDraft(decoder))

  monkeypatch.setattr(toy, 'make', shifted)
  certificate = tried()
  assert not certificate.failed, certificate.verdict


@pytest.mark.slow
def test_toy_is_certified_from_the_command_line(capsys, monkeypatch):
  """With a quarter of its samples; with all of them by hand."""
  fewer = functools.partial(trial.try_toy, decodes=200)
  monkeypatch.setattr(trial, 'try_toy', fewer)
  status = main.main(['certify', '--target', 'toy', '--seed', '3', '--json'])
  out, err = capsys.readouterr()
  assert status == 0, err
  report = json.loads(out)
  assert report['certified'] and report['verdict'].startswith('CERTIFIED: ')
  assert report['seed'] == 3 and not report['failed']
  assert report['level'] * sum(
      'p_value' in check for check in report['checks']
  ) == pytest.approx(1e-3)
  settings = {check['setting'] for check in report['checks']}
  for part in ('T=0 ', 'topk=', 'topp=', ' token', ' block'):
    assert any(part in setting for setting in settings)


def test_verdict_is_the_last_line_and_the_status(capsys, monkeypatch):
  fault = checks.Check('law', 'toy', 'T=1', 'too many drafts', holds=False)
  sound = checks.Check('law', 'toy', 'T=1', 'unsaid', holds=True)
  for found, status, start in (
      (sound, 0, 'CERTIFIED: '), (fault, 1, 'NOT CERTIFIED: '),
  ):
    monkeypatch.setattr(trial, 'try_toy', lambda seed, found=found: [found])
    for flags in ([], ['--json']):
      assert main.main(['certify', '--target', 'toy', *flags]) == status
      last = capsys.readouterr().out.splitlines()[-1]
      verdict = json.loads(last)['verdict'] if flags else last
      assert verdict.startswith(start)
      assert (found.fault in verdict) == bool(status)


@pytest.mark.slow
def test_demo_pair_is_certified():
  """On few lines; the whole trial is by hand."""
  arguments = ['certify', '--samples', '2', '--max_decode_len', '24']
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr('t5x_specdec.cli.certify._DEMO_LINES', 16)
    patch.setattr(trial, 'try_toy', lambda seed: [])
    assert main.main(arguments) == 0


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--target', 'toy', '--draft', 'lookup'], 'no --draft'),
        (['--vocabulary', 'x'], 'no --vocabulary'),
        (['--target', 'there'], 'needs --vocabulary'),
        (['--draft', 'ngram'], "no draft 'ngram'"),
        (['--samples', '0'], '--samples must be >= 1, got 0'),
        (['--gamma', '0'], 'gamma must be an integer >= 1, got 0'),
        (['--gamma', '41'], '--gamma 41 drafts more than'),
        (['--seed', '-1'], '--seed must be in'),
    ],
)
def test_bad_arguments_are_refused(flags, message, capsys):
  assert main.main(['certify', *flags]) == 2
  out, err = capsys.readouterr()
  assert message in err and not out and len(err.splitlines()) == 1


def test_ties_are_told_from_faults():
  """In bfloat16 a first difference counts by its margin."""
  logits = np.zeros([3, 2, 4], np.float32)
  logits[:, :, 3] = 8.0
  logits[:, 0, 2] = [8.0 - 0.01, 8.0 - 2.0, 0.0]
  alone = np.array([[3, 3], [3, 3], [3, 3]])
  ours = np.array([[2, 3], [2, 3], [3, 3]])

  class Fake:
    name, dtype = 'fake', 'bfloat16'

    def generated(self, tokens):
      return np.ones(tokens.shape, bool)

    def logits(self, tokens, decodes):
      yield logits

  subject: Any = Fake()
  tokens, argmax = checks.greedy(subject, ours, alone, 1, 'T=0')
  assert not tokens.holds and not argmax.holds
  assert tokens.details['identical'] == 1
  ties = [entry['tie'] for entry in tokens.details['first_differences']]
  assert ties == [True, False]
  assert '1 of 3 texts' in tokens.fault and 'input 1' in tokens.fault
  tokens, argmax = checks.greedy(
      subject, ours[[0, 2, 2]], alone, 1, 'T=0'
  )
  assert tokens.holds
  logits[1, 1, 0] = np.nan
  _, argmax = checks.greedy(subject, alone, alone, 1, 'T=0')
  assert not argmax.holds


def test_places_are_uniform_and_find_a_bias():
  """Tokens of the law pass; those of the draft's do not, and low it is."""
  rng = np.random.default_rng(0)
  logits = rng.normal(0, 2, [4000, 1, 12]).astype(np.float32)
  draft = logits + rng.normal(0, 1, logits.shape).astype(np.float32)
  for setting in (Setting(1.0), Setting(0.6, topk=4), Setting(1.4, topp=0.7)):
    p_values = []
    for source in (logits, draft):
      law = toys.exact_law(source[:, 0], *setting)
      u = rng.random([4000, 1])
      tokens = np.sum(np.cumsum(law, axis=-1) < u, axis=-1)[:, None]
      places = reference.place(
          logits, draft, tokens, np.ones_like(tokens, bool), setting, rng,
          'float32',
      )
      assert places.draft is not None
      p_values.append(checks._uniform(places.draft).p_value)
      inside = toys.exact_law(logits[:, 0], *setting)
      outside = inside[np.arange(4000), tokens[:, 0]] == 0
      np.testing.assert_array_equal(places.outside > 1, outside)
    assert p_values[0] > 1e-4 and p_values[1] < 1e-12
    assert np.mean(places.draft < 0.5) > 0.55


def test_detectable_effects_are_detected_nine_times_in_ten():
  """Power as stated: by simulation of three tests at their level."""
  rng = np.random.default_rng(1)
  level, samples, runs = 1e-3, 2000, 400
  w = statistics.smallest_effect(level, 9, samples)
  law = 0.1 * (1 + w * np.resize([1, -1], 10))
  counts = rng.multinomial(samples, law, runs)
  found = [
      statistics.chi_square(row, np.full(10, samples / 10)).p_value < level
      for row in counts
  ]
  assert 0.84 < np.mean(found) < 0.95
  paired = statistics.paired(rng.normal(size=64))
  shift = paired.detectable(level)
  found = [
      statistics.paired(rng.normal(shift, 1, 64)).p_value < level
      for _ in range(runs)
  ]
  assert 0.84 < np.mean(found) < 0.95
  groups = [np.zeros(64)] * 8
  shared = statistics.shared_noise(groups).detectable(level)
  found = []
  for _ in range(runs):
    common = rng.normal(size=[8, 1])
    noise = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.normal(
        size=[8, 64]
    )
    found.append(statistics.shared_noise(list(noise)).p_value < level)
  assert 0.84 < np.mean(found) < 0.95


def test_p_values_of_the_truth_are_uniform():
  """False alarms as stated."""
  rng = np.random.default_rng(2)
  groups = [
      statistics.shared_noise(list(rng.normal(size=[6, 32]))).p_value
      for _ in range(500)
  ]
  smallest = [
      statistics.smallest_of(
          [statistics.normal(x, 1.0, 1) for x in rng.normal(size=5)]
      )[0].p_value
      for _ in range(500)
  ]
  for values in (groups, smallest):
    assert stats.kstest(values, 'uniform').pvalue > 1e-4


def test_toy_laws_are_laws():
  """They sum to 1, and neither is one text certain nor all alike."""
  for seed in range(3):
    for law in toy.laws(toy.make(2, seed), Setting(1.0)):
      masses = np.array(list(law.values()))
      assert np.sum(masses) == pytest.approx(1.0)
      assert np.sum(masses > 1e-3) > 20
      assert np.sum(masses**2) > 10 / len(masses)


def test_p_values_of_many_rare_cells_are_not_too_small():
  """Thousands of texts, most expected less than once; right ones must pass."""
  rng = np.random.default_rng(0)
  law = rng.dirichlet(np.full(4000, 0.2))
  counts = rng.multinomial(12_000, law, size=400)
  found = [statistics.chi_square(row, law * 12_000).p_value for row in counts]
  for level in (0.1, 0.01):
    share = np.mean(np.array(found) < level)
    assert share < level + 4 * np.sqrt(level / 400)
  assert min(found) > 1e-5
  wrong = rng.multinomial(12_000, law[::-1])
  assert statistics.chi_square(wrong, law * 12_000).p_value < 1e-9
