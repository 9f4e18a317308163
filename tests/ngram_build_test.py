# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec ngram build`: what it counts, and what it refuses."""

import io
import json

import numpy as np
import pytest

from t5x_specdec.cli import main
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.vocabulary import Vocabulary

WORDS = DEMO_PAIR / 'vocabulary.model'
TEXT = [
    'Wählen Sie Datei – Öffnen.',
    'Wählen Sie Bearbeiten – Kopieren.',
    'Öffnen Sie die Datei.',
]


def build(capsys, folder, *flags, **options):
  """Runs the command; its status, output and error, and the table's path."""
  path = folder / 'table.npz'
  flags = ['ngram', 'build', f'--output={path}', *flags]
  flags += [f'--{name}={value}' for name, value in options.items()]
  status = main.main(flags)
  captured = capsys.readouterr()
  return status, captured.out, captured.err, path


def ids():
  """The texts' ids, as generation ends them."""
  words = Vocabulary(WORDS)
  return [[*words.encode(line), 1] for line in TEXT]


def assert_same(path, draft, params):
  """The file holds this table, of the demo's vocabulary."""
  table = ngram.load(path)
  assert table.draft == draft
  assert table.fingerprint == Vocabulary(WORDS).fingerprint
  for name, leaf in params.items():
    np.testing.assert_array_equal(table.params[name], leaf)


@pytest.mark.parametrize('order', [1, 2, 4])
def test_text_is_counted_as_it_would_be_generated(order, capsys, tmp_path):
  path = tmp_path / 'text.txt'
  # An empty line is no text.
  path.write_text('\n\n'.join(TEXT) + '\n', encoding='utf-8')
  status, out, _, table = build(
      capsys, tmp_path, '--json', input=path, vocabulary=WORDS, order=order
  )
  assert status == 0
  draft, params = ngram.count(ids(), Vocabulary(WORDS).size, order)
  assert_same(table, draft, params)
  result = json.loads(out.splitlines()[-1])
  assert result == {
      'output': str(table),
      'order': order,
      'vocab_size': 4196,
      'texts': 3,
      'tokens': sum(map(len, ids())),
      'entries': len(params['tokens']),
      'memory_bytes': 16 * len(params['tokens']),
      'file_bytes': table.stat().st_size,
  }


@pytest.mark.parametrize('ended', [True, False])
@pytest.mark.parametrize('name', ['ids.txt', 'ids.npy'])
def test_ids_are_counted_like_their_text(name, ended, capsys, tmp_path):
  path = tmp_path / name
  rows = ids() if ended else [row[:-1] for row in ids()]
  if name.endswith('txt'):
    path.write_text('\n'.join(' '.join(map(str, row)) for row in rows))
  else:
    padded = np.zeros([len(rows), 32], np.int32)
    for place, row in zip(padded, rows):
      place[: len(row)] = row
    np.save(path, padded)
  status, out, _, table = build(capsys, tmp_path, ids=path, vocabulary=WORDS)
  assert status == 0
  assert f'3 texts, {sum(map(len, ids()))} tokens' in out
  assert_same(table, *ngram.count(ids(), 4196, 2))
  _, out, _, table = build(
      capsys, tmp_path, ids=path, vocabulary=WORDS, examples=2
  )
  assert_same(table, *ngram.count(ids()[:2], 4196, 2))


@pytest.fixture(scope='module')
def task(tmp_path_factory):
  """The name of a SeqIO task with these texts as targets."""
  seqio = pytest.importorskip('seqio')
  tf = pytest.importorskip('tensorflow')
  words = seqio.SentencePieceVocabulary(str(WORDS))

  def read(split, shuffle_files=False, seed=None):
    del split, shuffle_files, seed
    texts = {'inputs': ['Other words.'] * 3, 'targets': TEXT}
    return tf.data.Dataset.from_tensor_slices(texts)

  name = 'ngram_build_test'
  features = {
      key: seqio.Feature(words, add_eos=True) for key in ('inputs', 'targets')
  }
  seqio.TaskRegistry.add(
      name,
      source=seqio.FunctionDataSource(read, splits=['train']),
      preprocessors=[
          seqio.preprocessors.tokenize,
          seqio.preprocessors.append_eos,
      ],
      output_features=features,
  )
  seqio.MixtureRegistry.add(f'{name}_mixture', [(name, 1)])
  return name


@pytest.mark.slow
@pytest.mark.parametrize('ending', ['', '_mixture'])
def test_targets_of_a_task_are_counted(ending, task, capsys, tmp_path):
  status, _, _, table = build(capsys, tmp_path, task=task + ending, order=3)
  assert status == 0
  assert_same(table, *ngram.count(ids(), 4196, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    'options, message',
    [
        ({'task': 'nothing'}, '--task nothing: no task or mixture'),
        ({'split': 'test'}, "has no split 'test', but ['train']"),
        ({'module_import': 'no_such_module'}, "No module named 'no_such_mod"),
        ({'vocabulary': __file__}, 'is another'),
    ],
)
def test_what_a_task_lacks_is_one_line(
    options, message, task, capsys, tmp_path
):
  options = {'task': task} | options
  status, out, err, table = build(capsys, tmp_path, **options)
  assert (status, out, table.exists()) == (2, '', False)
  assert message in err and len(err.strip().splitlines()) == 1


def _archive() -> bytes:
  """An archive of arrays, `.npz` by its right name."""
  file = io.BytesIO()
  np.savez(file, ids=np.ones([2, 2], np.int32))
  return file.getvalue()


BAD = {
    'no_vocabulary': ({}, '--vocabulary is needed'),
    'order': ({'vocabulary': WORDS, 'order': 5}, 'order must be in [1, 4]'),
    'examples': ({'examples': 0}, '--examples must be >= 1, got 0'),
    'words': ({'vocabulary': WORDS, 'ids': 'text'}, 'line 1 is not whole num'),
    'padding': ({'vocabulary': WORDS, 'ids': '4 0 5'}, 'ids must be in [1, 41'),
    'large': ({'vocabulary': WORDS, 'ids': '4196'}, 'some in [1, 4196]'),
    'latin': ({'vocabulary': WORDS, 'input': b'fr\xfch'}, 'is not UTF-8'),
    'empty': ({'vocabulary': WORDS, 'input': ''}, 'holds no line'),
    'blank': ({'vocabulary': WORDS, 'input': '\n \n'}, 'no text to count'),
    'no_ids': ({'vocabulary': WORDS, 'ids': '\n \n'}, 'no text to count'),
    'padding_alone': (
        {'vocabulary': WORDS, 'ids.npy': np.zeros([2, 3], np.int32)},
        'no text to count',
    ),
    'archive': (
        {'vocabulary': WORDS, 'ids.npy': _archive()},
        'is not an array, but an archive',
    ),
    'array': ({'vocabulary': WORDS, 'ids.npy': b'x'}, 'is not an array'),
    'floats': (
        {'vocabulary': WORDS, 'ids.npy': np.ones([2, 2])},
        'must be integers [texts, length], not float64[2, 2]',
    ),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_input_is_one_line_and_no_table(name, capsys, tmp_path):
  options, message = BAD[name]
  given = {'input': 'words'} if not {'ids', 'ids.npy'} & set(options) else {}
  flags = {}
  for key, value in (given | options).items():
    if key in ('input', 'ids', 'ids.npy'):
      path = tmp_path / key
      if isinstance(value, np.ndarray):
        np.save(path, value)
      else:
        path.write_bytes(value if isinstance(value, bytes) else value.encode())
      key, value = key.removesuffix('.npy'), path
    flags[key] = value
  status, out, err, table = build(capsys, tmp_path, **flags)
  assert (status, out, table.exists()) == (2, '', False)
  assert err.startswith('t5x-specdec: error: ')
  assert message in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize('flag', ['input', 'ids', 'vocabulary'])
def test_what_is_read_is_not_overwritten(flag, capsys, tmp_path):
  path = tmp_path / 'table.npz'
  path.write_text('5')
  flags = {'vocabulary': WORDS, flag: path}
  if flag == 'vocabulary':
    flags['input'] = '-'
  status, _, err, _ = build(capsys, tmp_path, **flags)
  assert status == 2 and f'is the --{flag}' in err
  assert path.read_text() == '5'


@pytest.mark.parametrize(
    'order, least', [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 3)]
)
def test_a_table_cut_is_the_shorter_table(order, least):
  table = ngram.Table(*ngram.count(ids(), 4196, order), 'abc')
  cut = kinds.truncated(table, least)
  draft, params = ngram.count(ids(), 4196, least)
  assert (cut.draft, cut.fingerprint) == (draft, 'abc')
  for name, leaf in params.items():
    np.testing.assert_array_equal(cut.params[name], leaf)
  with pytest.raises(ValueError, match=f'up to length {order} has none'):
    kinds.truncated(table, order + 1)


def test_rows_of_a_model_need_not_be_those_of_its_vocabulary():
  table = ngram.Table(*ngram.count([[5, 9, 1]], 12, 2), 'abc')
  assert kinds.resized(table, 16).draft == ngram.count([[5, 9, 1]], 16, 2)[0]
  assert kinds.resized(table, 10).draft.vocab_size == 10
  with pytest.raises(ValueError, match='hold the id 9, but .* only 9'):
    kinds.resized(table, 9)
