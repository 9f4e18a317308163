# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans follow from their figures, and bad figures are told."""

import argparse
import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from t5x_specdec import calibration as calibrations
from t5x_specdec import planner
from t5x_specdec import resampling
from t5x_specdec import theory
from t5x_specdec.benchmarks import machine
from t5x_specdec.benchmarks import shapes
from t5x_specdec.calibration import Calibration
from t5x_specdec.cli import main
from t5x_specdec.cli import options
from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import Fixed
from t5x_specdec.resampling import Estimate


def run(capsys, *arguments):
  """Standard output and standard error of a subcommand that succeeds."""
  assert main.main(arguments) == 0
  return capsys.readouterr()


def plan_json(capsys, *arguments):
  return json.loads(run(capsys, 'plan', *arguments, '--json').out)


def test_the_papers_numbers(capsys):
  """Table 2's first pair: what gamma 7 gives, 3.2X, and the best of all."""
  found = plan_json(capsys, '--alpha', '0.75', '--c', '0.02')
  speeds = [
      sum(0.75**i for i in range(gamma + 1)) / (1 + 0.02 * gamma)
      for gamma in range(21)
  ]
  assert found['gamma'] == int(np.argmax(speeds))
  assert found['speedup'] == pytest.approx(max(speeds))
  np.testing.assert_allclose([r['speedup'] for r in found['rows']], speeds)
  operations = theory.operations_factor(0.75, found['gamma'], 0.02)
  assert found['operations'] == pytest.approx(float(operations))
  assert found['rows'][7]['speedup'] == pytest.approx(3.16, abs=0.005)
  assert found['basis'] == 'equation 1, a lower bound'
  assert found['other_rule']['basis'] == 'equation 1'
  ratio = theory.oracle_ratio(0.75, 0.02, 20)
  assert found['oracle_ratio'] == pytest.approx(float(ratio))


def test_operations_have_a_cost_of_their_own(capsys):
  found = plan_json(capsys, '--alpha', '0.8', '--c', '0.1', '--c_hat', '0.3')
  want = theory.operations_factor(0.8, found['gamma'], 0.3)
  assert found['operations'] == pytest.approx(float(want))


@pytest.mark.parametrize('alpha, c', [(0.3, 0.3), (0.3, 0.9), (0.0, 0.0)])
def test_a_draft_that_does_not_pay(capsys, alpha, c):
  """Corollary 3.9: alpha must exceed c."""
  arguments = ('--alpha', str(alpha), '--c', str(c))
  found = plan_json(capsys, *arguments)
  assert (found['gamma'], found['speedup'], found['operations']) == (0, 1, 1)
  assert 'Do not speculate' in run(capsys, 'plan', *arguments).out


def test_measured_costs_of_verification(capsys):
  """A dear block of 3 makes gamma 1 the best, and of 2, too, none at all."""
  arguments = ('--alpha', '0.8', '--c', '0.1')
  found = plan_json(capsys, *arguments, '--verify-cost', '1.1,2.5')
  assert found['gamma'] == 1
  assert found['speedup'] == pytest.approx(1.8 / 1.2)
  assert len(found['rows']) == 3
  found = plan_json(capsys, *arguments, '--verify_cost', '1.9,2.5')
  assert found['gamma'] == 0


@pytest.mark.parametrize(
    'arguments, message',
    [
        (('--alpha', '0.5'), 'both --alpha and --c'),
        (('--alpha', '1.5', '--c', '0'), 'alpha must be in [0, 1], got 1.5'),
        (('--alpha', 'nan', '--c', '0'), 'alpha must be in [0, 1], got nan'),
        (('--alpha', '0.5', '--c', '-1'), 'c must be >= 0 and finite, got -1'),
        (('--alpha', '0.5', '--c', 'nan'), 'c must be >= 0 and finite, got na'),
        (('--alpha', '0.5', '--c', '1e308'), 'd at gamma 2 must be'),
        (
            ('--alpha', '0.5', '--c', '0', '--c_hat', 'inf'),
            'c_hat must be >= 0 and finite, got inf',
        ),
        (('--alpha', '0.5', '--c', '0', '--max_gamma', '0'), 'max_gamma must'),
        (('--alpha', '0.5', '--c', '0', '--max_gamma', '99999'), '[1, 512]'),
        (
            ('--alpha', '0.5', '--c', '0.1', '--verify_cost=1,0'),
            'v must be positive, got 0.0 at gamma 2',
        ),
        (
            ('--alpha', '0.5', '--c', '0', '--verify_cost=-3'),
            'v at gamma 1 must be >= 0 and finite, got -3',
        ),
        (('--calibration', 'x.json', '--alpha', '1'), '--alpha would say'),
        (('--calibration', '/nowhere/x.json'), '/nowhere/x.json'),
    ],
)
def test_bad_arguments_are_told_in_a_line(capsys, arguments, message):
  assert main.main(['plan', *arguments]) == 2
  assert message in capsys.readouterr().err


MEASURED = Calibration(
    target='large',
    draft='small',
    gammas=[0, 2, 4],
    d=[0.0, 0.2, 0.5],
    v=[1.0, 1.2, 1.5],
    alpha=Estimate(0.7, 0.6, 0.8),
    tokens={
        'token': [Estimate(1.0), Estimate(2.1, 2.0, 2.2), Estimate(2.4)],
        'block': [Estimate(1.0), Estimate(2.2), Estimate(3.2, 3.0, 3.5)],
    },
    c=0.1,
    c_hat=0.2,
    step_ms=10.0,
    encode_ms={'target': 20.0, 'pair': 25.0},
    text_len=16.0,
)


def test_what_was_measured_counts():
  """Each rule has its own best gamma; intervals are those of the tokens."""
  by_token, by_block = (
      planner.plan(MEASURED, rule) for rule in ('token', 'block')
  )
  assert (by_token['gamma'], by_block['gamma']) == (2, 4)
  assert by_token['speedup'] == pytest.approx(2.1 / 1.4)
  assert by_token['speedup_low'] == pytest.approx(2.0 / 1.4)
  assert by_token['speedup_high'] == pytest.approx(2.2 / 1.4)
  assert by_block['speedup'] == pytest.approx(1.6)
  assert by_block['operations'] == pytest.approx((4 * 0.2 + 5) / 3.2)
  assert by_block['basis'] == by_token['basis'] == 'measured'
  # 20 + 160 ms alone, 25 + 160 / 1.6 with the draft.
  assert by_block['whole_call_speedup'] == pytest.approx(180 / 125)
  assert planner.best_gamma(MEASURED) == 4


def test_a_drafts_encoder_must_pay():
  dear = dataclasses.replace(
      MEASURED, encode_ms={'target': 20.0, 'pair': 120.0}
  )
  assert planner.plan(dear)['speedup'] == 1
  assert planner.best_gamma(dear) == 0


def test_intervals_of_alpha_become_those_of_equation_1():
  found = planner.plan(dataclasses.replace(MEASURED, tokens={}), 'token')
  for name, alpha in (('_low', 0.6), ('', 0.7), ('_high', 0.8)):
    tokens = sum(alpha**i for i in range(5))
    assert found['rows'][2][f'tokens{name}'] == pytest.approx(tokens)
    assert found['rows'][2][f'speedup{name}'] == pytest.approx(tokens / 2)


def test_blocks_that_were_not_measured_are_bounded_by_tokens():
  only = dataclasses.replace(
      MEASURED, tokens={'token': MEASURED.tokens['token']}
  )
  found = planner.plan(only, 'block')
  assert found['basis'] == 'by tokens, a lower bound'
  assert found['speedup'] == planner.plan(only, 'token')['speedup']
  # At temperature 0 the rules are one.
  greedy = dataclasses.replace(only, settings={'temperature': 0.0})
  assert planner.knows(greedy, 'block') and not planner.knows(only, 'block')


def test_calibrations_side_by_side(capsys, tmp_path):
  paths = []
  for name, scale in (('slow', 2.0), ('fast', 1.0)):
    path = tmp_path / f'{name}.json'
    dataclasses.replace(
        MEASURED, draft=name, d=[scale * d for d in MEASURED.d]
    ).write(path)
    paths += ['--calibration', str(path)]
  found = plan_json(capsys, *paths)
  assert [plan['draft'] for plan in found['plans']] == ['slow', 'fast']
  assert found['draft'] == 'fast'
  assert found['speedup'] == pytest.approx(1.6)
  text = run(capsys, 'plan', *paths).out
  assert 'Best: fast. Draft 4: 1.60x [1.50, 1.75]' in text


def test_drafts_side_by_side_count_their_encoders(capsys, tmp_path):
  """The faster loop is not the faster call where its encoder is dear."""
  paths = []
  for name, scale, pair in (('quick', 0.9, 60.0), ('cheap', 1.0, 25.0)):
    path = tmp_path / f'{name}.json'
    dataclasses.replace(
        MEASURED,
        draft=name,
        d=[scale * d for d in MEASURED.d],
        encode_ms={'target': 20.0, 'pair': pair},
    ).write(path)
    paths += ['--calibration', str(path)]
  found = plan_json(capsys, *paths)
  assert [plan['speedup'] for plan in found['plans']] == pytest.approx(
      [3.2 / 1.95, 1.6]
  )
  assert found['draft'] == 'cheap'


def test_what_was_not_measured_alike_is_said(capsys, tmp_path):
  paths = []
  for i, settings in enumerate(({'temperature': 0.0}, {'temperature': 1.0})):
    path = tmp_path / f'{i}.json'
    # A name that looks like markup is a name.
    dataclasses.replace(
        MEASURED, target=f'[/b]{i} :smile:', settings=settings
    ).write(path)
    paths += ['--calibration', str(path)]
  text = run(capsys, 'plan', *paths).out
  assert 'Not measured alike, in target, temperature.' in text
  assert '[/b]0 :smile: with small' in text
  assert f'Best: small of {paths[1]}. Draft 4' in text
  assert 'Not measured' not in run(capsys, 'plan', *paths[:2] * 2).out


def test_the_last_gamma_may_not_be_the_best(capsys):
  arguments = ('--alpha', '0.9', '--c', '0.01', '--max_gamma')
  assert 'No larger gamma' in run(capsys, 'plan', *arguments, '3').out
  assert 'No larger gamma' not in run(capsys, 'plan', *arguments, '64').out


def test_files_are_read_as_they_were_written(tmp_path):
  path = tmp_path / 'c.json'
  MEASURED.write(path)
  assert calibrations.read(path) == MEASURED
  written = json.loads(path.read_text())
  assert (written['format'], written['version']) == (calibrations.FORMAT, 1)


@pytest.mark.parametrize(
    'change, message',
    [
        ({'format': 'other'}, 'is no calibration'),
        ({'version': 2}, 'is of version 2, and this reads 1'),
        ({'d': [0.0]}, 'd must be one for each of gammas'),
        ({'gammas': [1, 2, 4]}, 'gammas must rise from 0'),
        ({'v': [1.0, -5.0, 2.0]}, 'v at gamma 2 must be >= 0 and finite'),
        # A draft phase that takes no time is no excuse.
        ({'v': [1.0, 0.0, 2.0]}, 'v must be positive, got 0.0 at gamma 2'),
        ({'d': [0.0, '1', 2.0]}, "d at gamma 2 must be .*, got '1'"),
        ({'d': [0.0, None, 2.0]}, 'd at gamma 2 must be .*, got None'),
        ({'gammas': [0, 1.5, 4]}, r'gammas must rise from 0, got \[0, 1.5'),
        (
            {'tokens': {'token': [{'value': float('nan')}] * 3}},
            'an estimate must be finite, got nan',
        ),
        ({'tokens': {'token': [1.0] * 3}}, 'c.json'),
        ({'tokens': {'token': [{'value': 0}] * 3}}, 'tokens by tokens must be'),
        ({'alpha': {'value': 0.5, 'low': 0.4}}, 'half an interval'),
        ({'draft': None}, 'draft must be a name, got None'),
        ({'alpha': {'value': 1.5}}, r'alpha must be in \[0, 1\], got 1.5'),
        ({'alpha': {'value': None}}, 'an estimate must be finite, got None'),
        ({'step_ms': 'slow'}, "step_ms must be .*, got 'slow'"),
        ({'encode_ms': {'target': 1.0}}, 'encode_ms must be of target and'),
        ({'settings': {'temperature': 'hot'}}, "temperature must .* 'hot'"),
        ({'settings': []}, 'c.json'),
        ({'version': '1'}, "is of version '1', and this reads 1"),
        ({'gammas': [0, True, 2]}, 'gammas must rise from 0'),
        ({'d': [0.0, -0.1, 0.5]}, 'd at gamma 2 must be >= 0 and fin'),
        ({'d': 'abc'}, "d at gamma 0 must be >= 0 and finite, got 'a'"),
        ({'v': [1.0, np.nan, 2.0]}, 'v at gamma 2 must be >= 0 and finite'),
        ({'c': 'x'}, "c must be >= 0 and finite, got 'x'"),
        ({'step_ms': 0}, 'step_ms must be positive, got 0'),
        ({'text_len': 0}, 'text_len must be positive, got 0'),
        ({'machine': 'mine'}, 'machine must be an object'),
        ({'tokens': {'words': [{'value': 1.0}] * 3}}, r"got \['words'\]"),
        ({'alpha': 0.5}, 'c.json'),
        ({'unknown': 1}, 'unknown'),
    ],
)
def test_files_of_no_use_are_refused(tmp_path, change, message):
  path = tmp_path / 'c.json'
  path.write_text(json.dumps(MEASURED.json() | change))
  with pytest.raises(ValueError, match=message):
    calibrations.read(path)
  path.write_text('{')
  with pytest.raises(ValueError, match='is not JSON'):
    calibrations.read(path)


def test_a_calibration_of_something_else_is_warned_of(capsys, tmp_path):
  path = tmp_path / 'c.json'
  here = machine.describe()
  config = shapes.SIZES['tiny']
  count = shapes.parameter_count(config)
  fields: dict[str, Any] = {
      'parameters': {'target': count, 'draft': count},
      'machine': here,
      'settings': {'batch_size': 1, 'dtype': 'float32', 'temperature': 0.0}
      | {'topk': 0, 'topp': 0.0},
  }
  args = argparse.Namespace(calibration=path, **fields['settings'])
  both = {'target': config, 'draft': config}

  def warning(configs=both, **change):
    dataclasses.replace(MEASURED, **fields | change).write(path)
    options.warn_of_calibration(args, configs)
    return capsys.readouterr().err

  assert not warning()
  # Numbers that were given are of no pair and no machine.
  assert not warning(parameters=None, machine=None, settings={})
  assert f"parameters {{'target': {count}, 'draft': {count}}} (here" in warning(
      {'target': config}
  )
  text = warning(
      machine=here | {'cores': 0}, settings={'batch_size': 8, 'topk': 0}
  )
  assert text.startswith(f'WARNING: --calibration {path} was measured with ')
  assert f'cores 0 (here {here["cores"]}), batch_size 8 (here 1): ' in text
  args.calibration = None
  assert not warning({})


def test_intervals_cover_where_drafts_of_a_text_hang_together():
  """And would not if every draft counted for itself."""
  rng = np.random.default_rng(0)
  covered, naive, trials = 0, 0, 300
  for _ in range(trials):
    rates = rng.beta(4, 2, 60)  # each text has its own, 2/3 on average
    judged = rng.integers(10, 40, 60)
    accepted = rng.binomial(judged, rates)
    found = resampling.ratio(accepted, judged)
    assert found.low is not None and found.high is not None
    covered += found.low <= 2 / 3 <= found.high
    error = np.sqrt(found.value * (1 - found.value) / judged.sum())
    naive += abs(found.value - 2 / 3) <= 1.96 * error
  assert 0.9 <= covered / trials <= 0.98
  assert naive / trials < 0.75
  assert resampling.ratio(np.ones(1), np.full(1, 4.0)) == Estimate(0.25)


def test_policies_are_those_of_a_calibration(tmp_path):
  path = tmp_path / 'c.json'
  MEASURED.write(path)
  best = planner.plan(MEASURED, 'token')['gamma']
  assert planner.policy('auto', path, 'token') == Fixed(best)
  adaptive = planner.policy('adaptive', path)
  assert isinstance(adaptive, Adaptive)
  assert adaptive.gammas == tuple(MEASURED.gammas)
  assert adaptive.draft_costs == tuple(MEASURED.d)
  assert adaptive.verify_costs == tuple(MEASURED.v)
  assert planner.policy('auto', calibrations.given(0.3, 0.9)) == Fixed(0)
  with pytest.raises(ValueError, match="'auto' or 'adaptive', got 'best'"):
    planner.policy('best', MEASURED)
