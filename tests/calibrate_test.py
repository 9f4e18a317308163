# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`calibrate` measures what it says: by a clock of our own, on real texts."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import calibration as calibrations
from t5x_specdec.benchmarks import calibrate
from t5x_specdec.benchmarks import costs
from t5x_specdec.benchmarks import pieces
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks import workloads
from t5x_specdec.cli import main
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.gamma import Fixed
from t5x_specdec.pair import read_demo_pair
from t5x_specdec.resampling import Estimate
from t5x_specdec.sampling import Method


def planted(batch_size=1):
  """A pair of tiny models on random inputs."""
  return workloads.planted_workload(
      'tiny', 'tiny', alpha=0.8, batch_size=batch_size, input_len=8,
      output_len=12, dtype='float32', seed=0,
  )


def use_fakes(monkeypatch, drift=0.0, round_seconds=0.45):
  """Puts fakes in place of `costs`' clock and pieces.

  Of the target a step takes 1 s and each draft to judge 0.25 s, a round beyond
  the step `round_seconds` for each draft, a draft's model alone 0.1 s. Every
  run takes longer by `drift` of that than the one before. A piece's first run,
  which compiles, takes 100 s more, and its second is disturbed by 7 s.
  """
  clock, runs = [0.0], [0]

  def fake(seconds):
    def make(*args):
      gamma = args[6] if len(args) > 6 else 0
      own = [0]

      def loop():
        passed = len(args[4]) * seconds(gamma)  # positions
        clock[0] += passed * (1 + drift * runs[0])
        clock[0] += {0: 100.0, 1: 7.0}.get(own[0], 0.0)
        runs[0] += 1
        own[0] += 1

      return loop

    return make

  def encoder(encode, seconds):
    def timed(*args, **kwargs):
      clock[0] += seconds
      return encode(*args, **kwargs)

    return timed

  monkeypatch.setattr(costs.time, 'perf_counter', lambda: clock[0])
  for name, seconds in (
      ('judgements', lambda gamma: 1.0 + 0.25 * gamma),
      ('rounds', lambda gamma: 1.0 + round_seconds * gamma),
      ('blocks', lambda gamma: 0.1),
  ):
    monkeypatch.setattr(pieces, name, fake(seconds))
  for name, seconds in (('encode', 3.0), ('encode_draft', 0.5)):
    monkeypatch.setattr(pieces, name, encoder(getattr(pieces, name), seconds))


def test_a_round_that_is_cheaper_than_its_judgement_is_all_judgement(
    monkeypatch,
):
  """Without a draft model: a round is what d + v is, and c is d's share."""
  use_fakes(monkeypatch, round_seconds=0.125)
  pair, inputs = calibrate.pair(planted()), np.ones([1, 8], np.int32)
  draft, params = kinds.make('lookup', pair.target.vocab_size)
  found = costs.measure(
      pair.target,
      pair.target_params,
      draft,
      draft.prepare(params),
      inputs,
      np.ones([1, 12], np.int32),
      Method(jnp.zeros(1), jnp.int32(0), jnp.float32(0)),
      gammas=(2, 4),
  )
  assert found.d == [0, 0, 0]
  np.testing.assert_allclose(found.v, [1, 1.25, 1.5])
  assert found.c == 0


@pytest.mark.slow
@pytest.mark.parametrize('drift', [0.0, 0.5])
def test_costs_are_medians_over_plain_steps_at_that_time(monkeypatch, drift):
  """Also of a machine that gets slower and slower."""
  use_fakes(monkeypatch, drift)
  workload = planted()
  pair = calibrate.pair(workload)
  found = calibrate.calibrate(
      pair,
      workload.inputs,
      output_len=12,
      gammas=(1, 3),
      alpha=0.8,
      repeats=3,
  )
  assert found.gammas == [0, 1, 3]
  np.testing.assert_allclose(found.d, [0, 0.2, 0.6])
  np.testing.assert_allclose(found.v, [1, 1.25, 1.75])
  assert found.c == pytest.approx(0.1)
  if not drift:
    assert found.step_ms == pytest.approx(1000)
  assert found.encode_ms == pytest.approx({'target': 3000, 'pair': 3500})
  assert found.c_hat == 1  # the same shapes
  assert (found.alpha, found.tokens) == (Estimate(0.8), {})
  count = shapes.parameter_count(shapes.SIZES['tiny'])
  assert found.parameters == {'target': count, 'draft': count}
  assert found.memory_bytes == {'target': 4 * count, 'draft': 4 * count}


@pytest.mark.slow
def test_a_real_calibration_of_a_planted_pair(capsys, tmp_path):
  """Through the command line; its times are real, and not tested."""
  path = str(tmp_path / 'c.json')
  status = main.main([
      'calibrate', '--target', 'tiny', '--draft', 'tiny', '--alpha', '0.8',
      '--output_len', '12', '--input_len', '8', '--gamma', '2,1',
      '--repeats', '1', '-o', path, '--json',
  ])
  assert status == 0
  found = calibrations.read(path)
  assert json.loads(capsys.readouterr().out) == found.json()
  assert (found.target, found.draft) == ('tiny', 'tiny')
  assert found.gammas == [0, 1, 2]
  assert (found.d[0], found.v[0]) == (0, 1)
  assert min(found.d) >= 0 and min(found.v) > 0
  assert found.text_len == 12
  assert main.main(['plan', '--calibration', path, '--json']) == 0
  plan = json.loads(capsys.readouterr().out)
  assert plan['basis'] == 'equation 1'  # greedy: the rules are one
  assert plan['rows'][2]['tokens'] == pytest.approx(1 + 0.8 + 0.64)


@pytest.mark.slow
def test_a_sample_of_the_demo_pair():
  """Alpha and tokens are those of decoding the same texts."""
  pair = read_demo_pair()
  lines = ['Choose the command in the menu.', 'Save the document.', 'Open it.']
  inputs = np.zeros([3, 1, 16], np.int32)
  for row, line in zip(inputs[:, 0], lines):
    ids = [*pair.vocabulary.encode(line), 1]
    row[: len(ids)] = ids
  target, draft = pair.target, pair.draft
  found = calibrate.calibrate(
      calibrate.Pair(
          target.decoder,
          target.params,
          ModelDraft(draft.decoder),
          draft.params,
          {'target': target.decoder.config, 'draft': draft.decoder.config},
      ),
      inputs,
      output_len=16,
      gammas=(2,),
      temperature=1.0,
      repeats=1,
      seed=3,
  )
  for rule in ('token', 'block'):
    counters = [
        t5x_specdec.speculative_decode(
            pair.target.decoder,
            pair.draft.decoder,
            pair.target.params,
            pair.draft.params,
            batch,
            max_decode_len=16,
            gamma=2,
            topk=0,
            rng=jax.random.fold_in(jax.random.key(3), i),
            verification=rule,
        ).stats
        for i, batch in enumerate(inputs)
    ]
    total = {
        name: sum(float(np.sum(getattr(c, name))) for c in counters)
        for name in ('emitted', 'rounds', 'overlap', 'judged')
    }
    estimate = found.tokens[rule][1]
    assert estimate.value == pytest.approx(total['emitted'] / total['rounds'])
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low <= estimate.value <= estimate.high
    if rule == 'token':
      alpha = total['overlap'] / total['judged']
      assert found.alpha.value == pytest.approx(alpha, rel=1e-5)
      assert found.text_len == pytest.approx(total['emitted'] / 3)


@pytest.mark.slow
def test_a_draft_that_says_nothing_has_alpha_0(monkeypatch):
  """Lookup, where no text repeats anything."""
  plain = t5x_specdec.speculative_decode

  def decode(*args, gamma, verification, **options):
    del gamma, verification
    return plain(*args, gamma=Fixed(0), verification='token', **options)

  monkeypatch.setattr(t5x_specdec, 'speculative_decode', decode)
  workload = planted()
  pair = calibrate.pair(workload)
  method = {'temperature': 0.0, 'topk': 0, 'topp': 0.0}
  alpha, tokens, _ = calibrate._sample(
      pair, workload.inputs, 12, (2,), method, 0, lambda text: None
  )
  assert alpha == Estimate(0.0)
  assert [found.value for found in tokens['token']] == [1.0, 1.0]


@pytest.mark.parametrize(
    'options, message',
    [
        ({'gammas': (2, 1)}, 'gammas must rise'),
        ({'gammas': (0, 1)}, 'gammas must rise'),
        ({'gammas': (12,)}, 'gammas must be under output_len=12, got 12'),
        ({'repeats': 0}, 'repeats must be >= 1, got 0'),
    ],
)
def test_what_cannot_be_calibrated_is_refused(options, message):
  workload = planted()
  pair = calibrate.pair(workload)
  arguments = {'output_len': 12, 'alpha': 0.5} | options
  with pytest.raises(ValueError, match=message):
    calibrate.calibrate(pair, workload.inputs, **arguments)


def test_alpha_alone_does_not_tell_how_long_rows_wait():
  workload = planted(batch_size=2)
  pair = calibrate.pair(workload)
  with pytest.raises(ValueError, match='use a batch of 1'):
    calibrate.calibrate(pair, workload.inputs, output_len=12, alpha=0.5)
