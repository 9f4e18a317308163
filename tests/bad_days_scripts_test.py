# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Days on which a script breaks: interrupted, on a full disk, asked nonsense.

And what no source file may do: unpickle.
"""

import ast
import errno
import importlib
import os
import pathlib
import re
import signal
import sys
import tempfile

import jax
import numpy as np
import pytest

from t5x_specdec import calibration
from t5x_specdec import parameters
from t5x_specdec.cli import exits
from t5x_specdec.resampling import Estimate

_ROOT = pathlib.Path(__file__).parents[1]
_SCRIPTS = _ROOT / 'scripts'
# Run by T5X's own main, which prints a traceback.
_OF_T5X = {'table2.py'}


@pytest.fixture
def module(monkeypatch):
  """Returns a function that imports a module of scripts/."""
  monkeypatch.syspath_prepend(str(_SCRIPTS))
  return importlib.import_module


@pytest.fixture
def start(module, monkeypatch, capsys):
  """Returns a function that runs a script: its status, and what it printed."""

  def run(name, *flags):
    script = module(name)
    monkeypatch.setattr(sys, 'argv', [f'{name}.py', *map(str, flags)])
    status = exits.run_script(script._parser(), script.main)
    return status, *capsys.readouterr()

  before = jax.config.jax_compilation_cache_dir
  yield run
  # Scripts that train have one, which later tests would fill.
  jax.config.update('jax_compilation_cache_dir', before)


def test_every_script_ends_in_one_line():
  ends = {
      path.name: path.read_text(encoding='utf-8').partition("== '__main__'")[2]
      for path in _SCRIPTS.glob('*.py')
  }
  programs = {name: end for name, end in ends.items() if end}
  assert len(programs) > 8 and _OF_T5X <= set(programs)
  for name in set(programs) - _OF_T5X:
    assert 'sys.exit(exits.run_script(_parser(), ' in programs[name], name


@pytest.mark.parametrize(
    'error, status, said',
    [
        (OSError(errno.ENOSPC, 'No space', 'out'), 2, "error: [Errno 28] No"),
        (ValueError('one\ntwo'), 2, 'error: one'),
        (MemoryError(), 2, 'error: MemoryError'),
        (KeyboardInterrupt(), 130, 'interrupted'),
        (BrokenPipeError(), 1, ''),
    ],
)
def test_what_a_program_says_when_it_ends(error, status, said, capsys):
  def fail():
    raise error

  assert exits.run(fail, 'x.py', debug=False) == status
  err = capsys.readouterr().err
  assert len(err.splitlines()) == bool(said)
  assert err.startswith(f'x.py: {said}' if said else '')
  if status == 2:
    with pytest.raises(type(error)):
      exits.run(fail, 'x.py', debug=True)


@pytest.mark.parametrize(
    'name, flags, said',
    [
        ('bench_accelerator', ['--size=tiny', '--cells', '1'], '--cells must'),
        ('bench_accelerator', ['--topology', 'v4:2x2x1'], '--lower_only'),
        ('check_plan', ['--pair', 'base'], '--pair must be TARGET:DRAFT'),
        ('check_plan', ['--output', '/dev/full'], 'No space left on device'),
        ('check_plan', ['--output', 'no/such/file'], "'no/such/file'"),
        ('mutants', ['--only', 'nonesuch'], 'no such mutant: nonesuch'),
        ('train_demo', ['train', '--work', '.', '--model', 'draft'], 'vocab'),
        ('train_demo', ['export', '--work', 'nowhere'], 'target/best.npz'),
        ('train_demo', ['data', '--work', '/dev/null/x'], 'Not a directory'),
        ('train_gpt_pair', ['--text', 'none', '--work', 'x'], "'none'"),
    ],
)
def test_what_cannot_be_is_one_line(
    name, flags, said, start, monkeypatch, tmp_path
):
  monkeypatch.chdir(tmp_path)
  status, _, err = start(name, *flags)
  assert status == 2
  (line,) = err.strip().splitlines()
  assert line.startswith(f'{name}.py: error: ')
  assert said in line
  assert not [path for path in tmp_path.rglob('*') if path.is_file()]


class TestFilesInOneStep:

  @pytest.mark.parametrize('old', [None, b'old'])
  def test_a_full_disk_leaves_the_old_file(self, old, module, tmp_path):
    states = module('demo_training.states')
    path = tmp_path / 'some.npz'
    if old is not None:
      path.write_bytes(old)
    with pytest.raises(OSError):
      with states.replacing(path) as file:
        file.write(b'half')
        file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    found = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert found == ({} if old is None else {'some.npz': old})

  def test_what_a_killed_process_left_is_written_over(self, module, tmp_path):
    states = module('demo_training.states')
    path = tmp_path / 'some.npz'
    states.write(path, {'a': np.arange(3)})
    (tmp_path / 'some.npz.part').write_bytes(b'half of a file, cut off')
    states.write(path, {'a': np.arange(5)})
    assert states.read(path)['a'].tolist() == [0, 1, 2, 3, 4]
    assert [p.name for p in tmp_path.iterdir()] == ['some.npz']

  def test_a_damaged_file_is_named(self, module, tmp_path):
    states = module('demo_training.states')
    path = tmp_path / 'latest.npz'
    states.write(path, {'params/a': np.arange(300), 'step': np.asarray(1)})
    whole = path.read_bytes()
    for content in (whole[:200], b'', whole[:100] + b'?' + whole[101:]):
      path.write_bytes(content)
      with pytest.raises(ValueError, match=f'^{path} cannot be read: '):
        states.load_params(path)
    with pytest.raises(FileNotFoundError):
      states.load_params(tmp_path / 'none.npz')

  def test_an_object_is_not_unpickled(self, module, tmp_path):
    path = tmp_path / 'latest.npz'
    np.savez(path, step=np.array({'a': 1}, dtype=object))
    with pytest.raises(ValueError, match='allow_pickle=False'):
      module('demo_training.states').read(path)


_STEPS = 6


@pytest.fixture
def training(module, tmp_path):
  """Returns a function: the trainer of a tiny model in a folder, and its data.
  """
  train = module('demo_training.train')
  batches = module('demo_training.batches')
  rng = np.random.default_rng(0)
  config = parameters.T5Config(
      vocab_size=12,
      emb_dim=8,
      num_heads=2,
      num_encoder_layers=0,
      num_decoder_layers=1,
      head_dim=4,
      mlp_dim=8,
      mlp_activations=('gelu', 'linear'),
  )
  texts = [([], rng.integers(2, 12, 6).tolist()) for _ in range(40)]
  recipe = train.Recipe(
      steps=_STEPS, eval_every=2, save_seconds=0.0, warmup_steps=2
  )

  def make(folder):
    trainer = train.Trainer(config, recipe, tmp_path / folder)
    data = [batches.Batches(texts, tokens=64, seed=0) for _ in range(2)]
    return trainer, data

  return make


class Killed(BaseException):
  """As if the process ended here: nobody catches it."""


@pytest.mark.slow
def test_training_that_is_cut_short_goes_on_to_the_same_weights(
    training, module, tmp_path, capsys
):
  """Told to stop it saves, and ends: what comes next wants a finished model."""
  trainer, data = training('whole')
  trainer.run(*data)

  trainer, data = training('cut')
  build = data[0].build

  def act(step, action):
    def build_and_act(*args):
      if trainer.step == step:
        action()
      return build(*args)

    data[0].build = build_and_act

  def die():
    raise Killed

  act(1, die)
  with pytest.raises(Killed):
    trainer.run(*data)
  (tmp_path / 'cut/latest.npz.part').write_bytes(b'half')  # and in a save
  for number in (signal.SIGINT, signal.SIGTERM):
    before = signal.getsignal(number)
    trainer, _ = training('cut')
    start = trainer.step
    act(start + 1, lambda number=number: os.kill(os.getpid(), number))
    with pytest.raises(SystemExit) as stopped:
      trainer.run(*data)
    assert stopped.value.code == 128 + number
    assert trainer.step == start + 2
    said = f'stopped at step {start + 2}: the same command goes on'
    assert said in capsys.readouterr().out
    assert signal.getsignal(number) is before
  assert trainer.step == 5
  trainer, data = training('cut')
  trainer.run(*data)
  assert trainer.step == _STEPS
  states = module('demo_training.states')
  for name in ('latest.npz', 'best.npz'):
    found, wanted = (
        states.read(tmp_path / folder / name) for folder in ('cut', 'whole')
    )
    assert found.keys() == wanted.keys()
    for key in found:
      if key != 'elapsed':
        np.testing.assert_array_equal(found[key], wanted[key], err_msg=key)


def test_help_pages_that_were_half_unpacked_are_unpacked_again(
    module, monkeypatch, tmp_path
):
  data = module('demo_training.data')
  died = []

  def run(command, check, cwd=pathlib.Path()):
    assert check
    if command[0] == 'apt-get':
      for package in data.PACKAGES:
        (cwd / f'{package}_1.deb').touch()
      return
    _, _, archive, folder = command
    code = 'en-US' if 'en-us' in archive else 'de'
    pages = pathlib.Path(folder) / data.HELP / code / 'text'
    pages.mkdir(parents=True)
    (pages / 'first.html').touch()
    if code == 'de' and not died:
      died.append(code)
      raise Killed
    (pages / 'second.html').touch()

  monkeypatch.setattr(data.subprocess, 'run', run)
  with pytest.raises(Killed):
    data.obtain(tmp_path)
  folder = data.obtain(tmp_path)
  pages = sorted(str(p.relative_to(folder)) for p in folder.rglob('*.html'))
  assert pages == [
      f'{code}/text/{name}.html'
      for code in ('de', 'en-US')
      for name in ('first', 'second')
  ]
  monkeypatch.setattr(data.subprocess, 'run', None)
  assert data.obtain(tmp_path) == folder


def test_a_plan_is_compared_gamma_by_gamma(module):
  """By Equation 1 and by the text's own tokens, whatever the runs' order."""
  costs = {'d': [0, 0.5, 1.0], 'v': [1, 1.5, 1.5]}
  known = calibration.Calibration(
      'a', 'b', [0, 1, 2], **costs, alpha=Estimate(0.5),
      step_ms=10.0, encode_ms={'target': 20.0, 'pair': 30.0}, text_len=8.0,
  )  # fmt: skip
  one = {'emp': 0.75, 'speedup_vs_autoregressive': 0.5}
  second, first = (
      {'gamma': gamma, 'tokens_per_round': tokens} | one
      for gamma, tokens in ((2, 2.5), (1, 1.0))
  )
  rows = module('check_plan').compare(known, {'rows': [second, first]})
  assert [row['gamma'] for row in rows] == [1, 2]
  assert rows[0]['tokens'] == (1.5, 1.0) and rows[1]['tokens'] == (1.75, 2.5)
  assert rows[0]['predicted'] == (0.75, 0.5)
  assert rows[1]['predicted'] == pytest.approx((0.7, 1.0))
  assert rows[0]['error_by_equation'] == 0
  assert rows[0]['error'] == pytest.approx(-1 / 3)
  # 20 + 80 ms alone against 30 + 160.
  assert rows[0]['whole_call_error'] == pytest.approx(100 / 190 / 0.5 - 1)


def test_rows_so_far_of_a_plan_that_is_interrupted(
    module, start, monkeypatch, tmp_path
):
  check_plan = module('check_plan')
  calls = []

  def run(command, *arguments):
    calls.append(command)
    if len(calls) == 3:
      raise KeyboardInterrupt
    return {}

  row = {
      'pair': 'a:b', 'alpha': 0.5, 'gamma': 1, 'tokens': (1.5, 1.5),
      'predicted': (1.0, 1.0), 'measured': 1.0, 'error_by_equation': 0.0,
      'error': 0.0, 'whole_call_error': 0.0,
  }
  monkeypatch.setattr(check_plan, 'run', run)
  monkeypatch.setattr(calibration, 'read', lambda path: None)
  monkeypatch.setattr(check_plan, 'compare', lambda *args: [row])
  output = tmp_path / 'rows.json'
  status, _, err = start('check_plan', '--output', output)
  assert status == 130 and err == 'check_plan.py: interrupted\n'
  assert check_plan.json.loads(output.read_text())[0]['measured'] == 1.0


def test_a_soak_that_is_interrupted_says_what_it_did(
    module, start, monkeypatch
):
  seeds = []

  def trial(seed):
    seeds.append(seed)
    if len(seeds) == 3:
      raise KeyboardInterrupt
    return 'a pair', []

  monkeypatch.setattr(module('soak'), '_trial', trial)
  status, out, err = start('soak', '--seed', '7')
  assert status == 130 and err == 'soak.py: interrupted\n'
  assert 'seed 7' in out and '2 configurations, 0 with failures' in out


def test_mutants_that_are_interrupted_leave_the_tree_alone(
    module, start, monkeypatch, tmp_path
):
  """They are made in a copy, which goes."""
  mutants = module('mutants')
  with open(mutants._LIST, 'rb') as file:
    mutant = mutants.tomllib.load(file)['mutant'][0]
  ours = _ROOT / mutant['file']
  before = ours.read_text(), ours.stat().st_mtime_ns

  def copy(tree):
    (tree / mutant['file']).parent.mkdir(parents=True)
    (tree / mutant['file']).write_text(before[0])

  seen = []

  def run_pytest(tree, tests, seconds=None):
    del tests, seconds
    seen.append((tree / mutant['file']).read_text())
    if len(seen) == 2:
      raise KeyboardInterrupt
    return 0, ''

  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  monkeypatch.setattr(mutants, '_copy', copy)
  monkeypatch.setattr(mutants, '_pytest', run_pytest)
  monkeypatch.setenv('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
  status, _, err = start('mutants', '--only', mutant['name'])
  assert status == 130 and err == 'mutants.py: interrupted\n'
  assert seen[0] == before[0] and seen[1] != before[0]
  assert (ours.read_text(), ours.stat().st_mtime_ns) == before
  assert not list(tmp_path.iterdir())


def unpickling(source: str) -> list[str]:
  """What could unpickle, or run what it reads, in Python source."""
  found = []
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      found += [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      found.append(node.module or '')
    elif isinstance(node, ast.Call):
      name = ast.unparse(node.func)
      safe = any(
          (word.arg, ast.unparse(word.value)) == ('allow_pickle', 'False')
          for word in node.keywords
      )
      if not (safe and name in ('np.load', 'numpy.load')):
        found.append(name)
  barred = r'(pickle|cPickle|_pickle|dill|cloudpickle|joblib|marshal|shelve)'
  barred += r'(\..*)?|(np|numpy|torch)\.load|eval|exec|compile|yaml\.load'
  return [name for name in found if re.fullmatch(barred, name)]


def test_no_source_unpickles():
  """Of ours; what a run unpickles is seen in bad_days_test.py."""
  for bad in (
      'import pickle', 'from joblib import load', 'np.load(path)',
      'np.load(path, allow_pickle=True)', 'torch.load(path)', 'eval(text)',
  ):
    assert unpickling(bad), bad
  assert not unpickling('np.load(path, allow_pickle=False)\nmodel.eval()')
  sources = [
      path
      for folder in ('t5x_specdec', 'scripts')
      for path in (_ROOT / folder).rglob('*.py')
  ]
  assert len(sources) > 100
  for path in sources:
    assert not unpickling(path.read_text(encoding='utf-8')), path
