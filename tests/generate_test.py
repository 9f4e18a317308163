# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job from the command line: text and checkpoints in, JSONL out."""

import argparse
import dataclasses
import io
import json

import helpers
import numpy as np
import pytest
import sentencepiece

import t5x_specdec
from t5x_specdec import T5Config
from t5x_specdec.cli import main
from t5x_specdec.config_reader import config_from_params
from t5x_specdec.drafts import ngram
from t5x_specdec.testing.checkpoint_writer import write_checkpoint
from t5x_specdec.vocabulary import Vocabulary

TEXT = [
    'the quick brown fox jumps over the lazy dog',
    'pack my box with five dozen liquor jugs',
    'how vexingly quick daft zebras jump',
    'sphinx of black quartz judge my vow',
    '',
    'über früh geübte Äpfel',
    'the five boxing wizards jump quickly at dawn',
]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Two random checkpoints and the vocabulary they share."""
  folder = tmp_path_factory.mktemp('pair')
  for name, extra in (('words', []), ('others', ['zwölf boxkämpfer'])):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT[:4] + TEXT[5:] + extra),
        model_prefix=str(folder / name),
        vocab_size=48,
        character_coverage=1.0,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )
  for name, seed in (('target', 8), ('draft', 3)):
    params = helpers.random_params(_config(), seed)
    write_checkpoint(folder / name, params, step=7, dtype='float32')
  (folder / 'input.txt').write_text('\n'.join(TEXT) + '\n', encoding='utf-8')
  return folder


def arguments(folder, **change):
  """Arguments of a small generate run, as strings."""
  options = {
      'target': folder / 'target',
      'draft': folder / 'draft',
      'vocabulary': folder / 'words.model',
      'input': folder / 'input.txt',
      'batch_size': 3,
      'max_decode_len': 9,
      'gamma': 3,
  } | change
  flags = ['generate']
  for name, value in options.items():
    flags += [f'--{name}'] if value is True else [f'--{name}', str(value)]
  return flags


def run(capsys, *args, **kwargs):
  """Runs the command; its status, standard output and standard error."""
  status = main.main(arguments(*args, **kwargs))
  captured = capsys.readouterr()
  return status, captured.out, captured.err


def test_lines_are_what_the_library_decodes(folder, capsys):
  status, out, err = run(capsys, folder, compare=True)
  assert status == 0
  records = [json.loads(line) for line in out.splitlines()]
  assert [record['input'] for record in records] == TEXT
  assert [record['line'] for record in records] == [1, 2, 3, 4, 5, 6, 7]
  vocabulary = Vocabulary(folder / 'words.model')
  model = t5x_specdec.T5(
      config_from_params(helpers.random_params(_config(), 8))
  )
  for record in records:
    ids = [*vocabulary.encode(record['input']), 1]
    padded = np.zeros([1, 32], np.int32)
    padded[0, : len(ids)] = ids
    alone = t5x_specdec.autoregressive_decode(
        model,
        helpers.random_params(_config(), 8),
        padded,
        max_decode_len=9,
        temperature=0.0,
        rescale_log_probs=False,
    )
    assert record['prediction'] == vocabulary.decode(alone.tokens[0, 0])
    np.testing.assert_allclose(
        record['aux']['scores'], alone.scores[0, 0], atol=1e-3
    )
    assert record['aux']['emitted'] == alone.stats.emitted[0, 0]
    assert not record['truncated']
  assert 'texts identical' in err
  assert '7 lines' in err


@pytest.fixture(scope='module')
def table(folder):
  """Trigrams of what the target says, of the pair's vocabulary."""
  words = Vocabulary(folder / 'words.model')
  params = helpers.random_params(_config(), 8)
  inputs = np.zeros([len(TEXT), 64], np.int32)
  for row, line in zip(inputs, TEXT):
    ids = [*words.encode(line), 1]
    row[: len(ids)] = ids
  said = t5x_specdec.autoregressive_decode(
      t5x_specdec.T5(config_from_params(params)),
      params,
      inputs,
      max_decode_len=9,
      temperature=0.0,
  )
  texts = [[t for t in row if t] for row in said.tokens[:, 0].tolist()]
  path = folder / 'trigrams.npz'
  # Its size, with sentinels, is not the models' number of rows.
  counted = ngram.count(texts, words.size, 3)
  ngram.save(path, ngram.Table(*counted, words.fingerprint))
  return path


@pytest.mark.parametrize('temperature', helpers.some_slow([0.0], [0.0, 1.0]))
@pytest.mark.parametrize(
    'kind',
    helpers.some_slow(['bigram'], ['unigram', 'bigram', 'ngram', 'lookup']),
)
def test_drafts_without_a_model(kind, temperature, folder, table, capsys):
  given = {} if kind == 'lookup' else {'draft_table': table}
  status, out, _ = run(
      capsys,
      folder,
      draft=kind,
      json=True,
      compare=True,
      temperature=temperature,
      **given,
  )
  assert status == 0
  summary = json.loads(out)
  assert summary['identical'] is (None if temperature else True)
  assert 0 < summary['judged'] <= summary['drafted']
  assert 0 < summary['alpha'] <= 1
  # The law of n-grams is known, so an overlap is no yes or no when sampling.
  certain = summary['alpha'] == pytest.approx(summary['alpha_empirical'])
  if kind != 'lookup':
    assert certain == (temperature == 0)


def test_a_checkpoint_may_be_named_either_way(folder, capsys):
  _, short, _ = run(capsys, folder)
  status, long, _ = run(
      capsys, folder, draft='model', draft_checkpoint=folder / 'draft'
  )
  assert status == 0 and long == short


def _config():
  return T5Config(
      vocab_size=64,
      emb_dim=16,
      num_heads=2,
      num_encoder_layers=1,
      num_decoder_layers=1,
      head_dim=8,
      mlp_dim=32,
      mlp_activations=('gelu', 'linear'),
  )


def test_json_summary_is_the_last_line_and_adds_up(folder, capsys, tmp_path):
  output = tmp_path / 'out.jsonl'
  status, out, _ = run(
      capsys, folder, compare=True, json=True, output=output
  )
  assert status == 0
  summary = json.loads(out)
  records = [json.loads(line) for line in output.read_text().splitlines()]
  for name in ('rounds', 'drafted', 'accepted', 'judged', 'emitted'):
    assert summary[name] == sum(record['aux'][name] for record in records)
  assert summary['identical'] is True
  assert summary['target_alone']['rounds'] == summary['emitted']
  assert summary['tokens_per_target_call'] == pytest.approx(
      summary['emitted'] / summary['rounds']
  )


@pytest.mark.slow
def test_json_without_output_carries_the_predictions(folder, capsys):
  _, out, _ = run(
      capsys, folder, json=True, temperature=1.0, num_decodes=2, seed=3
  )
  first = json.loads(out)['predictions']
  _, out, _ = run(
      capsys,
      folder,
      json=True,
      temperature=1.0,
      num_decodes=2,
      seed=3,
      batch_size=4,
  )
  # A line's samples depend on the seed and its number, not on its batch.
  texts = [record['prediction'] for record in first]
  assert texts == [
      record['prediction'] for record in json.loads(out)['predictions']
  ]
  assert all(len(text) == 2 for text in texts)
  for record in first:
    assert record['aux']['scores'] == sorted(record['aux']['scores'])


@pytest.mark.slow
def test_traced_lines_hold_their_rounds_and_make_a_report(
    folder, capsys, tmp_path
):
  output, page = tmp_path / 'run.jsonl', tmp_path / 'report.html'
  status, _, _ = run(
      capsys,
      folder,
      trace=True,
      compare=True,
      output=output,
      temperature=1.0,
      num_decodes=2,
  )
  assert status == 0
  records = [json.loads(line) for line in output.read_text().splitlines()]
  vocabulary = Vocabulary(folder / 'words.model')
  for record in records:
    assert sum(map(len, record['trace'])) == record['aux']['rounds']
    for rounds, prediction in zip(record['trace'], record['prediction']):
      ids, pieces = [], []
      for entry in rounds:
        stood = entry['accepted']
        ids += entry['drafted'][:stood]
        pieces += entry['pieces'][:stood]
        if entry['next_token'] is not None:
          ids.append(entry['next_token'])
          pieces.append(entry['next_piece'])
        chances = entry['p'] + entry['q']
        assert all(0 <= chance <= 1 for chance in chances)
        assert len(chances) == 2 * len(entry['drafted'])
        # A draft is drawn from its own law.
        assert all(entry['q'])
      assert vocabulary.decode(ids) == prediction
      assert pieces == [vocabulary.piece(token) for token in ids]
  about = [record['run'] for record in records]
  assert [one['batch'] for one in about] == [0, 0, 0, 1, 1, 1, 2]
  for one in about:
    assert one['rows'] == 6 and one['parts_ms']['gammas'] == [3]
    costs = dict(one['parts_ms'])
    assert min(costs.pop('draft')) >= 0
    assert all(np.all(np.array(cost) > 0) for cost in costs.values())
    assert one['batch_ms'] > 0 and one['batch_alone_ms'] > 0
    assert one['batch_alone_tokens'] > 0

  status = main.main(['report', str(output), '-o', str(page), '--json'])
  assert status == 0 and page.exists()
  shown = json.loads(capsys.readouterr().out)
  aux = [record['aux'] for record in records]
  for name in ('rounds', 'drafted', 'judged', 'accepted', 'emitted'):
    assert shown['summary'][name] == sum(one[name] for one in aux)
  histogram = np.sum([one['histogram'] for one in aux], axis=0)
  assert shown['histogram']['counted'] == histogram.tolist()
  for name in ('judged', 'accepted'):
    assert sum(shown['positions'][name]) == shown['summary'][name]
  tokens = shown['expectations']['tokens_empirical']
  assert tokens == shown['summary']['emitted'] / shown['summary']['rounds']


@pytest.mark.slow
def test_standard_input_and_truncation(folder, capsys, monkeypatch):
  monkeypatch.setattr(
      'builtins.open', _stdin(b'the quick brown fox jumps\nshort', open)
  )
  status, out, _ = run(capsys, folder, input='-', max_input_len=8)
  assert status == 0
  records = [json.loads(line) for line in out.splitlines()]
  assert [record['truncated'] for record in records] == [True, False]


def _stdin(content, real_open):
  def fake(file, *args, **kwargs):
    if file == 0:
      return io.BytesIO(content)
    return real_open(file, *args, **kwargs)

  return fake


def _unigrams(folder, name):
  """A table of unigrams of a vocabulary."""
  path = folder / f'{name}.npz'
  fingerprint = Vocabulary(folder / f'{name}.model').fingerprint
  ngram.save(path, ngram.Table(*ngram.count([[5, 1]], 48, 1), fingerprint))
  return path


BAD = {
    'missing_target': (
        lambda f: {'target': f / 'nowhere'},
        'nowhere: no such checkpoint directory',
    ),
    'not_a_checkpoint': (lambda f: {'draft': f}, 'checkpoint'),
    'missing_vocabulary': (
        lambda f: {'vocabulary': f / 'no.model'},
        'no SentencePiece model at',
    ),
    'not_a_vocabulary': (
        lambda f: {'vocabulary': f / 'input.txt'},
        'is not a SentencePiece model',
    ),
    'other_vocabulary': (
        lambda f: {'draft_vocabulary': f / 'others.model'},
        'others.model',
    ),
    'missing_input': (lambda f: {'input': f / 'no.txt'}, 'no.txt'),
    'gamma': (lambda f: {'gamma': 0}, 'gamma must be an integer >= 1, got 0'),
    'temperature': (lambda f: {'temperature': -1.0}, 'temperature must be'),
    'both_filters': (lambda f: {'topk': 2, 'topp': 0.5}, 'At most one of'),
    'huge_gamma': (lambda f: {'gamma': 10**9}, 'drafts more than'),
    'huge_seed': (lambda f: {'seed': 2**70}, '--seed must be in'),
    'huge_topk': (lambda f: {'topk': 2**40}, 'topk must be'),
    'no_table': (
        lambda f: {'draft': 'bigram'},
        '--draft bigram needs --draft_table',
    ),
    'no_such_table': (
        lambda f: {'draft': 'bigram', 'draft_table': f / 'no.npz'},
        'no n-gram table at',
    ),
    'not_a_table': (
        lambda f: {'draft': 'bigram', 'draft_table': f / 'input.txt'},
        'input.txt is not an n-gram table',
    ),
    'short_table': (
        lambda f: {'draft': 'bigram', 'draft_table': _unigrams(f, 'words')},
        'n-grams up to length 1 has none of length 2',
    ),
    'table_of_another_vocabulary': (
        lambda f: {'draft': 'unigram', 'draft_table': _unigrams(f, 'others')},
        'must share one vocabulary, but the n-grams of',
    ),
    'idle_table': (
        lambda f: {'draft': 'lookup', 'draft_table': f / 'no.npz'},
        '--draft lookup has no use for --draft_table',
    ),
    'no_draft_model': (
        lambda f: {'draft': 'chain'},
        '--draft chain needs --draft_checkpoint',
    ),
    'two_draft_models': (
        lambda f: {'draft_checkpoint': f / 'draft'},
        'so it is taken for a checkpoint; --draft_checkpoint',
    ),
    'batch_size': (lambda f: {'batch_size': 0}, '--batch_size must be >= 1'),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_input_is_one_line_and_status_2(name, folder, capsys):
  change, message = BAD[name]
  status, out, err = run(capsys, folder, **change(folder))
  assert status == 2
  assert not out
  lines = err.strip().splitlines()
  assert len(lines) == 1
  assert lines[0].startswith('t5x-specdec: error: ')
  assert message in lines[0]


def test_a_refused_run_leaves_the_output_as_it_was(folder, capsys, tmp_path):
  output = tmp_path / 'kept.jsonl'
  output.write_text('yesterday')
  status, _, _ = run(capsys, folder, output=output, gamma=0)
  assert status == 2
  assert output.read_text() == 'yesterday'
  same = tmp_path / 'same.txt'
  same.write_text('the quick brown fox')
  status, _, err = run(capsys, folder, input=same, output=same)
  assert status == 2
  assert 'is the --input' in err
  assert same.read_text() == 'the quick brown fox'


@pytest.mark.slow
def test_decoder_only_prompts_do_not_lend_their_room(tmp_path, folder, capsys):
  """Each line generates at most max_decode_len tokens, whoever shares it."""
  config = dataclasses.replace(_config(), num_encoder_layers=0)
  for name, seed in (('target', 8), ('draft', 3)):
    params = helpers.random_params(config, seed)
    write_checkpoint(tmp_path / name, params, step=1, dtype='float32')
  status, out, _ = run(
      capsys,
      folder,
      target=tmp_path / 'target',
      draft=tmp_path / 'draft',
      max_decode_len=5,
  )
  assert status == 0
  for record in map(json.loads, out.splitlines()):
    assert record['aux']['emitted'] <= 5


@pytest.mark.slow
def test_a_draft_larger_than_its_target_is_warned_of(
    tmp_path, folder, capsys
):
  small = dataclasses.replace(_config(), num_decoder_layers=1, mlp_dim=4)
  params = helpers.random_params(small, 4)
  write_checkpoint(tmp_path / 'small', params, step=1, dtype='float32')
  swapped = {'target': tmp_path / 'small', 'draft': folder / 'target'}
  status, _, err = run(capsys, folder, **swapped)
  assert status == 0
  assert 'WARNING: the draft has ' in err and 'are they swapped?' in err
  status, _, err = run(capsys, folder, draft=tmp_path / 'small')
  assert status == 0 and 'WARNING' not in err


def test_sentinels_without_a_row_name_the_line(folder, capsys, tmp_path):
  path = tmp_path / 'sentinel.txt'
  path.write_text('the\n<extra_id_0> the\n')
  status, _, err = run(capsys, folder, input=path)
  assert status == 2
  assert 'line 2 holds a sentinel' in err


def test_input_that_is_not_utf8_names_the_line(folder, capsys, tmp_path):
  path = tmp_path / 'latin1.txt'
  path.write_bytes('gut\nfrüh\n'.encode('latin-1'))
  status, _, err = run(capsys, folder, input=path)
  assert status == 2
  assert 'line 2 is not UTF-8' in err


def test_help_is_complete(capsys):
  """Every argument of every subcommand is explained."""
  with pytest.raises(SystemExit) as stop:
    main.main(['--help'])
  assert stop.value.code == 0
  overview = capsys.readouterr().out
  parsers = next(
      action.choices
      for action in main.parser()._actions
      if isinstance(action, argparse._SubParsersAction)
  )
  assert 'generate' in parsers
  for name, parser in parsers.items():
    assert name in overview
    _check_help(capsys, [name], parser)


def _check_help(capsys, path, parser):
  """What `path --help` says of each argument; nested subcommands too."""
  with pytest.raises(SystemExit) as stop:
    main.main([*path, '--help'])
  assert stop.value.code == 0
  out = capsys.readouterr().out
  for action in parser._actions:
    assert action.help, (path, action)
    if isinstance(action, argparse._SubParsersAction):
      for name, inner in action.choices.items():
        assert name in out
        _check_help(capsys, [*path, name], inner)
    else:
      name = action.metavar or action.dest
      assert (action.option_strings or [name])[-1] in out


class TestVocabulary:

  @pytest.fixture
  def words(self, folder):
    return Vocabulary(folder / 'words.model')

  def test_round_trip_and_eos(self, words):
    for text in TEXT:
      ids = words.encode(text)
      assert words.decode([*ids, 1, 5, 6]) == text
      assert all(0 <= token < words.pieces for token in ids)

  def test_sentinels_stand_above_the_pieces(self, words):
    ids = words.encode('the <extra_id_0> dog <extra_id_99>')
    assert words.size - 1 in ids
    assert words.pieces in ids
    assert words.decode(ids) == 'the <extra_id_0> dog <extra_id_99>'

  @pytest.mark.slow
  def test_ids_are_those_of_seqio(self, words):
    seqio = pytest.importorskip('seqio')
    theirs = seqio.SentencePieceVocabulary(words.path, extra_ids=100)
    for text in [
        *TEXT,
        'x<extra_id_0>y',
        '<extra_id_5>, <extra_id_0><extra_id_1>',
        '<extra_id_00> q <extra_id_100>',
        '  two  spaces\tand a tab ',
    ]:
      ids = words.encode(text)
      assert ids == theirs.encode(text), text
      assert words.decode(ids) == theirs.decode(ids), text
    ids = [5, words.size - 1, 6]
    assert words.decode(ids) == theirs.decode(ids)

  def test_ids_that_mean_nothing_are_unknown(self, words):
    unknown = words.decode([2])
    assert words.decode([words.size + 5]) == unknown
    assert words.decode([-1]) == unknown
