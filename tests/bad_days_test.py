# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Days on which something breaks: killed runs, full disks, damaged files.

What is finished stays, what is wrong is said in one line, and nothing is
touched that was not named.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import generate_test
import helpers
import jax
import numpy as np
import pytest

from t5x_specdec import loop
from t5x_specdec import pair
from t5x_specdec.benchmarks import on_the_spot
from t5x_specdec.cli import main
from t5x_specdec.cli import setup
from t5x_specdec.gamma import Fixed
from t5x_specdec.testing.checkpoint_writer import write_checkpoint

# Two checkpoints, a vocabulary and 7 lines of text.
folder = generate_test.folder
run = generate_test.run
_ROOT = pathlib.Path(__file__).parents[1]


def one_line(err: str) -> str:
  """The error, which is all there is."""
  (line,) = err.strip().splitlines()
  assert line.startswith('t5x-specdec: error: ')
  return line


# Sampled, so that a line depends on its number, too.
SAMPLED = {'temperature': 1.0, 'num_decodes': 2, 'seed': 3}


@pytest.mark.slow
def test_a_run_cut_anywhere_continues_to_the_same_file(
    folder, capsys, tmp_path
):
  output = tmp_path / 'out.jsonl'
  assert run(capsys, folder, output=output, **SAMPLED)[0] == 0
  whole = output.read_bytes()
  ends = [i + 1 for i, byte in enumerate(whole) if byte == ord('\n')]
  assert len(ends) == 7
  # Nothing, the first line, a batch and all but the last byte; and between.
  for cut, kept in (
      (0, 0),
      (ends[0] // 2, 0),
      (ends[0], 1),
      (ends[2], 3),
      (ends[2] + 1, 3),
      (ends[4] - 1, 4),
      (ends[5], 6),
      (len(whole) - 1, 6),
      (len(whole), 7),
  ):
    output.write_bytes(whole[:cut])
    status, out, err = run(
        capsys, folder, output=output, resume=True, json=True, **SAMPLED
    )
    assert status == 0, err
    assert output.read_bytes() == whole, cut
    summary = json.loads(out)
    assert summary['resumed_after'] == kept
    assert summary['lines'] == 7 - max(kept - 1, 0) // 3 * 3
  output.unlink()
  assert run(capsys, folder, output=output, resume=True, **SAMPLED)[0] == 0
  assert output.read_bytes() == whole


@pytest.mark.parametrize(
    'change, message',
    [
        ({'seed': 4}, 'line 1 of --output .* is not what is decoded now'),
        ({'temperature': 0.0}, 'not what is decoded now'),
        ({'input': 'other.txt'}, 'line 2 of --output .* not of line 2'),
        ({'input': 'short.txt'}, 'line 2 of --output .* not of line 2'),
        ({'output': 'text.jsonl'}, 'line 1 of --output .* not of line 1'),
        ({'output': 'list.jsonl'}, 'line 1 of --output .* not of line 1'),
    ],
)
def test_resume_touches_no_other_file(
    change, message, folder, capsys, tmp_path
):
  output = tmp_path / 'out.jsonl'
  assert run(capsys, folder, output=output, **SAMPLED)[0] == 0
  lines = output.read_bytes().splitlines(keepends=True)
  output.write_bytes(b''.join(lines[:2]) + b'{"line": 3')
  (tmp_path / 'other.txt').write_text(f'{generate_test.TEXT[0]}\nanother\n')
  (tmp_path / 'short.txt').write_text(f'{generate_test.TEXT[0]}\n')
  (tmp_path / 'text.jsonl').write_text('a diary\nof mine')
  (tmp_path / 'list.jsonl').write_text('[1, 2]\n')
  before = {path: path.read_bytes() for path in tmp_path.iterdir()}
  options = {'output': 'out.jsonl'} | change
  for name in ('input', 'output'):
    if name in options:
      options[name] = tmp_path / options[name]
  status, _, err = run(capsys, folder, resume=True, **(SAMPLED | options))
  assert status == 2
  assert '--resume' in one_line(err)
  with pytest.raises(AssertionError, match=message):
    raise AssertionError(err)
  assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_a_gamma_measured_anew_may_be_another(
    folder, capsys, tmp_path, monkeypatch
):
  """Then samples are others, and the error says what would keep them."""
  output = tmp_path / 'out.jsonl'
  options = SAMPLED | {'draft': 'lookup', 'gamma': 'auto', 'output': output}
  found = iter([Fixed(0), Fixed(2)])
  monkeypatch.setattr(on_the_spot, 'policy', lambda *_, **__: next(found))
  assert run(capsys, folder, **options)[0] == 0
  written = output.read_bytes()
  status, _, err = run(capsys, folder, resume=True, **options)
  assert status == 2 and output.read_bytes() == written
  assert 'or --gamma auto measured other costs: with --calib' in one_line(err)


def test_resume_needs_a_file(folder, capsys):
  status, _, err = run(capsys, folder, resume=True)
  assert status == 2 and '--resume needs --output' in one_line(err)


def command(folder, **options):
  """Arguments of a process that generates, and imports this checkout."""
  code = 'import sys; from t5x_specdec.cli import main; sys.exit(main.main())'
  arguments = generate_test.arguments(folder, **options)
  return [sys.executable, '-c', code, *arguments]


def environment(**changes):
  """Of such a process, which compiles as the tests do."""
  search = os.pathsep.join([str(_ROOT), os.environ.get('PYTHONPATH', '')])
  ours = {'PYTHONPATH': search, 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  return os.environ | ours | changes


@pytest.mark.slow
def test_a_killed_process_leaves_whole_lines(folder, capsys, tmp_path):
  text, output = tmp_path / 'in.txt', tmp_path / 'out.jsonl'
  text.write_text('\n'.join(generate_test.TEXT * 200) + '\n')
  options = {'input': text, 'output': output, 'batch_size': 8}
  process = subprocess.Popen(
      command(folder, **options),
      env=environment(),
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
  )
  try:
    while not (output.exists() and output.read_bytes().count(b'\n') > 2):
      assert process.poll() is None
      time.sleep(0.01)
  finally:
    process.send_signal(signal.SIGKILL)
    process.wait()
  kept = output.read_bytes()
  assert kept.count(b'\n') < 1400
  for line in kept.split(b'\n')[:-1]:
    json.loads(line)
  assert run(capsys, folder, resume=True, **options)[0] == 0
  resumed = output.read_bytes()
  assert resumed.startswith(kept)
  assert run(capsys, folder, **options)[0] == 0
  assert resumed == output.read_bytes()


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='needs /dev/full')
class TestFullDisk:

  def test_output(self, folder, capsys):
    status, out, err = run(capsys, folder, output='/dev/full')
    assert status == 2 and not out
    assert "No space left on device: '/dev/full'" in one_line(err)

  @pytest.mark.slow
  def test_standard_output(self, folder):
    """Of a real process, which must not fail once more at its end."""
    table = folder / 'counted.npz'
    with open('/dev/full', 'w') as full:
      done = subprocess.run(
          [
              *command(folder)[:3],
              *('ngram', 'build', '--json', '--order', '1'),
              *('--vocabulary', folder / 'words.model'),
              *('--input', folder / 'input.txt', '--output', table),
          ],
          env=environment(),
          stdout=full,
          stderr=subprocess.PIPE,
          text=True,
          check=False,
      )
    assert done.returncode == 2, done.stderr
    assert 'No space left on device' in done.stderr
    assert 'Exception ignored' not in done.stderr
    assert 'Traceback' not in done.stderr


_WATCH = """
import os, sys
log = []
def hook(event, arguments):
  if event == 'open':
    path, mode, flags = arguments
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
      log.append(f'writes {path}')
  elif event in ('os.mkdir', 'os.rename', 'os.remove', 'os.rmdir', 'os.link',
                 'os.symlink', 'os.truncate', 'shutil.rmtree'):
    log.append(f'{event} {arguments}')
  elif event == 'pickle.find_class':
    log.append(f'unpickles {arguments[1:]}')
sys.addaudithook(hook)
from t5x_specdec.cli import main
del log[:]  # what importing does is not ours
status = main.main()
print(*log, sep='\\n')
sys.exit(status)
"""


@pytest.mark.slow
def test_nothing_else_is_written_and_nothing_unpickled(folder, tmp_path):
  """Not by Python, as it tells itself, nor by any library, in the usual places.
  """
  for name in ('home', 'tmp', 'work', 'out'):
    (tmp_path / name).mkdir()
  output = tmp_path / 'out/out.jsonl'
  table = generate_test._unigrams(folder, 'words')
  before = {path: path.stat().st_mtime_ns for path in folder.rglob('*')}
  done = subprocess.run(
      [
          *(sys.executable, '-c', _WATCH),
          *generate_test.arguments(
              folder, output=output, draft='unigram', draft_table=table
          ),
      ],
      cwd=tmp_path / 'work',
      env=environment(
          HOME=str(tmp_path / 'home'),
          TMPDIR=str(tmp_path / 'tmp'),
          XDG_CACHE_HOME=str(tmp_path / 'home'),
          PYTHONDONTWRITEBYTECODE='1',
          # That of these tests, which is in a folder of its own.
          JAX_ENABLE_COMPILATION_CACHE='0',
      ),
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == 0, done.stderr
  assert set(done.stdout.split('\n')) - {'', f'writes {os.devnull}'} == {
      f'writes {output}'
  }
  written = [path for path in tmp_path.rglob('*') if path.is_file()]
  assert written == [output]
  after = {path: path.stat().st_mtime_ns for path in folder.rglob('*')}
  assert after == before


_RUN_ALL = _WATCH.replace(
    'status = main.main()',
    'import json\n'
    'from t5x_specdec.certificate import trial\n'
    'trial.SETTINGS = trial.SETTINGS[:1]  # less to compile\n'
    'status = max(map(main.main, json.loads(sys.argv[1])))',
)


@pytest.mark.slow
def test_no_command_writes_elsewhere(folder, tmp_path):
  """In a folder that is none of theirs, without a home."""
  for name in ('tmp', 'work', 'out'):
    (tmp_path / name).mkdir()
  out = tmp_path / 'out'
  # What these tests compile goes into a folder that they ask for.
  compiled = os.environ.get('JAX_COMPILATION_CACHE_DIR')
  calibration, counted, page, texts = (
      str(out / name) for name in ('c.json', 'n.npz', 'page.html', 'texts')
  )
  commands = [
      generate_test.arguments(folder, output=texts, trace=True),
      ['report', texts, '--output', page],
      ['demo', '--n', '1'],
      ['certify', '--target', 'toy', '--samples', '200'],
      ['tables', '--only', '1'],
      [
          *('ngram', 'build', '--order', '1', '--output', counted),
          *('--vocabulary', str(folder / 'words.model')),
          *('--input', str(folder / 'input.txt')),
      ],
      [
          *('calibrate', '--target', 'tiny', '--draft', 'tiny'),
          *('--alpha', '0.5', '--gamma', '1', '--repeats', '1'),
          *('--output_len', '8', '--output', calibration),
      ],
      ['plan', '--calibration', calibration],
  ]
  done = subprocess.run(
      [sys.executable, '-c', _RUN_ALL, json.dumps(commands)],
      cwd=tmp_path / 'work',
      env=environment(
          HOME=str(tmp_path / 'none'),
          TMPDIR=str(tmp_path / 'tmp'),
          PYTHONDONTWRITEBYTECODE='1',
      ),
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == 0, done.stderr
  told = {
      line
      for line in done.stdout.split('\n')
      if line.startswith(('writes ', 'os.', 'shutil.', 'unpickles '))
      and not (compiled and compiled in line)
  }
  named = {calibration, counted, page, texts}
  assert told - {f'writes {os.devnull}'} == {f'writes {x}' for x in named}
  assert not (tmp_path / 'none').exists()
  assert {str(x) for x in tmp_path.rglob('*') if x.is_file()} == named


def test_a_damaged_checkpoint_is_refused_or_read_as_it_was(tmp_path):
  """Any bit of any file, or its end: never other weights, never a traceback.

  Arrays here are compressed, as T5X writes them: they have a checksum.
  """
  params = helpers.random_params(generate_test._config(), 8)
  path = pathlib.Path(write_checkpoint(tmp_path, params, step=7))
  good = pair.read_model(path)
  kept = tmp_path / 'kept'
  shutil.copytree(path, kept)
  files = sorted(file.relative_to(path) for file in path.rglob('*')
                 if file.is_file())
  rng = np.random.default_rng(0)
  refused = 0
  for i in range(80):
    # Every other time the file that all depends on.
    name = pathlib.Path('checkpoint') if i % 2 else rng.choice(files)
    helpers.damage(path / name, rng)
    try:
      model = pair.read_model(path)
    except (ValueError, OSError) as error:
      refused += 1
      assert len(str(error).splitlines()) == 1
      assert str(tmp_path) in str(error)
    else:
      assert model.decoder == good.decoder
      jax.tree.map(np.testing.assert_array_equal, model.params, good.params)
    shutil.copyfile(kept / name, path / name)
  assert refused > 20


def test_a_damaged_checkpoint_is_one_line(folder, capsys, tmp_path):
  target = tmp_path / 'target'
  shutil.copytree(folder / 'target', target)
  chunk = next(target.rglob('target.token_embedder.embedding/0.0'))
  chunk.write_bytes(chunk.read_bytes()[:100])
  status, out, err = run(capsys, folder, target=target)
  assert status == 2 and not out
  assert 'cannot read array target.token_embedder.embedding' in one_line(err)


def test_unreadable_directories(folder, capsys, tmp_path, monkeypatch):
  knot = tmp_path / 'knot'
  knot.symlink_to(knot)
  for options in ({'target': knot}, {'vocabulary': knot}, {'input': knot}):
    status, out, err = run(capsys, folder, **options)
    assert status == 2 and not out
    assert str(knot) in one_line(err)
  # Who is root may read all, so that a mode alone proves nothing.
  listdir = os.listdir

  def forbidden(path='.'):
    if str(path) == str(folder / 'draft'):
      raise PermissionError(13, 'Permission denied', str(path))
    return listdir(path)

  monkeypatch.setattr(os, 'listdir', forbidden)
  status, out, err = run(capsys, folder)
  assert status == 2 and not out
  assert 'Permission denied' in one_line(err)


@pytest.mark.parametrize(
    'content, truncated',
    [
        (b'\n', [False]),
        (b'\n\n the\r\n', [False] * 3),
        (b'the\0dog \x01\x7f', [False]),
        ('\ufeffthe \u2028 \U0001f9a6'.encode(), [False]),
        (b'the ' * 2_500_000, [True]),
        (b'x' * 10_000_000 + b'\nthe', [True, False]),
    ],
    ids=['empty', 'blank', 'control', 'odd', 'words', 'one_word'],
)
def test_odd_lines_are_decoded(content, truncated, folder, capsys, tmp_path):
  text = tmp_path / 'in.txt'
  text.write_bytes(content)
  status, out, err = run(capsys, folder, input=text, max_input_len=32)
  assert status == 0, err
  records = [json.loads(line) for line in out.split('\n')[:-1]]
  assert [record['truncated'] for record in records] == truncated
  lines = [line.rstrip('\r') for line in content.decode().split('\n')]
  assert [record['input'] for record in records] == lines[: len(records)]


@pytest.mark.parametrize('content', [b'', b'the\n\xff\n', b'the\n\xed\xa0\x80'])
def test_inputs_that_are_no_lines(content, folder, capsys, tmp_path):
  text = tmp_path / 'in.txt'
  text.write_bytes(content)
  status, out, err = run(capsys, folder, input=text)
  assert status == 2 and not out
  want = 'line 2 is not UTF-8' if content else 'holds no line'
  assert want in one_line(err)


@pytest.mark.parametrize(
    'error, said',
    [
        (RuntimeError('RESOURCE_EXHAUSTED: 9 GB\nand a stack'), '9 GB'),
        (MemoryError(), 'MemoryError'),
        (OSError(5, 'Input/output error', 'disk'), "error: 'disk'"),
    ],
)
def test_a_traceback_is_for_debugging(
    error, said, folder, capsys, monkeypatch
):
  def fail(args):
    raise error

  monkeypatch.setattr(setup, 'load', fail)
  status, _, err = run(capsys, folder)
  assert status == 2
  assert said in one_line(err)
  with pytest.raises(type(error)):
    main.main(generate_test.arguments(folder, debug=True))


def test_a_short_last_batch_compiles_nothing(folder, capsys):
  """Nor do other seeds, temperatures and filters (B51)."""
  run(capsys, folder)
  compiled = loop.decode._cache_size()
  for options in ({'temperature': 1.0, 'topk': 3}, {'seed': 5, 'topp': 0.5}):
    assert run(capsys, folder, **options)[0] == 0
  assert loop.decode._cache_size() == compiled
