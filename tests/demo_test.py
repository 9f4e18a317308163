# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The demonstration, and the pair that ships with the package."""

import argparse
import html
import json

import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import calibration as calibrations
from t5x_specdec import theory
from t5x_specdec.benchmarks import on_the_spot
from t5x_specdec.cli import demo
from t5x_specdec.cli import main
from t5x_specdec.cli import setup
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.pair import DEMO_TABLE
from t5x_specdec.pair import read_demo_pair


def run(capsys, *args):
  """Runs the demo; its status, standard output and standard error."""
  status = main.main(['demo', *args])
  captured = capsys.readouterr()
  return status, captured.out, captured.err


@pytest.mark.slow
def test_held_out_sentences_as_in_figure_1(capsys, tmp_path):
  status, out, _ = run(capsys, '--n', '2', '--gamma', '3', '--trace', '--json')
  assert status == 0
  source, page = tmp_path / 'demo.json', tmp_path / 'demo.html'
  source.write_text(out)
  assert main.main(['report', str(source), '-o', str(page)]) == 0
  result = json.loads(out.splitlines()[-1])
  summary, examples = result['summary'], result['examples']
  assert summary['identical'] is True
  assert 0 < summary['alpha'] <= 1
  assert 1 <= summary['tokens_per_target_call'] <= 4
  alone = summary['target_alone']['ms_per_token']
  assert summary['speedup'] == alone / summary['ms_per_token']
  assert summary['predicted_speedup'] == pytest.approx(
      theory.walltime_improvement(summary['alpha'], 3, summary['c'])
  )
  chosen = demo.held_out(2, 0)
  assert [example['input'] for example in examples] == [en for en, _ in chosen]
  pair = read_demo_pair()
  for example in examples:
    ids = []
    for entry in example['trace']:
      ids += entry['drafted'][: entry['accepted']]
      if entry['next_token'] is not None:
        ids.append(entry['next_token'])
    # The rounds, put together, are the text.
    assert pair.vocabulary.decode(ids) == example['prediction']
    assert len(ids) == example['aux']['emitted']
    assert len(example['trace']) == example['aux']['rounds']
    assert html.escape(example['reference']) in page.read_text()
    assert example['run']['parts_ms']['gammas'] == [3]


@pytest.mark.slow
def test_own_text_without_colours(capsys):
  status, out, err = run(capsys, '--text', 'Save the document.')
  assert status == 0
  assert 'English   Save the document.' in out
  assert 'texts identical' in out
  assert '\x1b[' not in out
  assert 'error' not in err


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['unigram', 'bigram', 'lookup'])
def test_drafts_without_a_model_change_no_text(kind, capsys):
  status, out, err = run(
      capsys, '--draft', kind, '--n', '2', '--gamma', '2', '--json'
  )
  assert status == 0
  result = json.loads(out.splitlines()[-1])
  summary = result['summary']
  assert summary['draft'] == kind
  assert summary['identical'] is True
  # No model, no step of it to set against the target's.
  assert summary['c'] is None and summary['predicted_speedup'] is None
  assert 'draft step' not in err
  assert summary['accepted'] > 0
  # At temperature 0 both laws are certain, so overlap is acceptance.
  assert summary['alpha'] == pytest.approx(summary['alpha_empirical'])
  # Lookup says nothing where nothing has been said before.
  every = summary['drafted'] > summary['emitted']
  assert every == (kind != 'lookup')


@pytest.mark.slow
@pytest.mark.parametrize(
    'draft, word', [('chain', 'auto'), ('model', 'adaptive')]
)
def test_gamma_is_what_pays(draft, word, capsys, monkeypatch):
  args = ('--draft', draft, '--gamma', word, '--n', '2', '--json')
  result = {}
  for cost in (0.01, 10.0):
    calibration = calibrations.given(1.0, cost, verify=[1.0, 1.0])
    monkeypatch.setattr(
        on_the_spot, 'calibrate', lambda *_, found=calibration, **__: found
    )
    status, out, err = run(capsys, *args)
    assert status == 0
    summary = json.loads(out.splitlines()[-1])['summary']
    assert summary['identical'] is True and summary['gamma_policy'] == word
    result[cost] = summary, err
  cheap, dear = result[0.01][0], result[10.0][0]
  assert cheap['tokens_per_target_call'] > 1.5
  assert dear['rounds_by_gamma'][0] > 0.9 * dear['rounds']
  if word == 'auto':
    # What costs nothing more is drafted to the end.
    assert (cheap['gamma'], dear['gamma']) == (2, 0)
    assert 'drafts do not pay here' in result[10.0][1]


@pytest.mark.slow
def test_costs_are_in_target_steps(monkeypatch):
  monkeypatch.setattr(on_the_spot, 'GAMMAS', (1, 3))
  args = argparse.Namespace(**demo.setup_arguments('chain'))
  pair = setup.load(args)
  found = on_the_spot.calibrate(
      pair.target.decoder,
      pair.target.params,
      pair.draft,
      pair.draft_params,
      rows=1,
      alpha=0.5,
  )
  assert found.gammas == [0, 1, 3]
  assert found.d[0] == 0 and found.v[0] == 1
  assert all(np.isfinite(found.d)) and min(found.d) >= 0
  assert all(cost > 0 for cost in found.v)


def test_the_bigrams_are_the_vocabulary_s_own_and_german():
  pair = read_demo_pair()
  table = ngram.load(DEMO_TABLE)
  kinds.check_same_vocabulary(table, 'bigrams.npz', pair.vocabulary)
  draft, params = kinds.make(
      'bigram', pair.target.decoder.vocab_size, table=table
  )
  assert isinstance(draft, ngram.Ngram)
  start = draft.law(draft.prepare(params), np.array([[0]]))[0]
  say = pair.vocabulary.encode('Wählen Sie')
  assert int(np.argmax(start)) == say[0]
  after = draft.law(draft.prepare(params), np.array([[say[0]]]))[0]
  assert int(np.argmax(after)) == say[1]
  assert after[say[1]] > 0.5


def test_number_of_sentences_is_checked(capsys):
  status, _, err = run(capsys, '--n', '0')
  assert status == 2
  assert '--n must be in [1, ' in err


def test_draws_are_random_and_repeatable():
  assert demo.held_out(5, 0) == demo.held_out(5, 0)
  assert demo.held_out(5, 0) != demo.held_out(5, 1)


@pytest.mark.slow
def test_the_pair_knows_its_task():
  """Teacher-forced on held-out text, both models beat chance by far."""
  pair = read_demo_pair()
  lines = (DEMO_PAIR / 'test.tsv').read_text(encoding='utf-8').splitlines()
  rows = [line.split('\t') for line in lines]
  short = [row for row in rows if len(row[0]) < 60 and len(row[1]) < 60][:32]
  inputs, targets = np.zeros([32, 64], int), np.zeros([32, 64], int)
  for i, (english, german) in enumerate(short):
    for ids, text in ((inputs, english), (targets, german)):
      tokens = [*pair.vocabulary.encode(text), 1]
      ids[i, : len(tokens)] = tokens
  shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
  for model, least in ((pair.target, 0.4), (pair.draft, 0.35)):
    logits = model.decoder.logits(model.params, inputs, shifted)
    right = np.argmax(logits, axis=-1) == targets
    assert right[targets > 0].mean() > least


def test_the_target_is_much_larger_than_the_draft():
  pair = read_demo_pair()
  assert isinstance(pair.target.decoder, t5x_specdec.T5)
  target, draft = pair.target.decoder.config, pair.draft.decoder.config
  assert target.vocab_size == draft.vocab_size
  assert target.num_decoder_layers > draft.num_decoder_layers
