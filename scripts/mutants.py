# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Puts small faults into the decoder, one at a time: do the tests find them?

Each entry of mutants.toml is an edit and the tests that should fail by it. It
is made in a copy of the tree, in a temporary folder; first all these tests run
there as they are, and must pass:

  python scripts/mutants.py
  python scripts/mutants.py --only ratios_are_not_joint --jobs 2

Exit status: 0 if every mutant is killed, 1 if one survives, no longer applies
or cannot be run, or if the tests fail without any.
"""

import argparse
from collections.abc import Iterator
from concurrent import futures
import contextlib
import multiprocessing
import os
import pathlib
import queue
import shutil
import sys
import tempfile
import tomllib

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_LIST = _ROOT / 'scripts/mutants.toml'
# What the tests import and read.
_COPIED = ('t5x_specdec', 'tests', 'scripts', 'docs', 'pyproject.toml')
# A mutant that loops for ever is found, too.
_SECONDS = 900
# Of pytest: all passed, and some failed.
_PASSED, _FAILED = 0, 1
# Each run is a process of its own that has what takes long to import; the
# package itself comes from the copy.
_PROCESSES = multiprocessing.get_context('forkserver')
_PRELOADED = ('pytest', 'hypothesis', 'jax', 'flax', 'scipy.stats')


def _copy(folder: pathlib.Path) -> None:
  ignored = shutil.ignore_patterns('__pycache__', '.*')
  for name in _COPIED:
    if (_ROOT / name).is_dir():
      shutil.copytree(_ROOT / name, folder / name, ignore=ignored)
    else:
      shutil.copy(_ROOT / name, folder / name)


@contextlib.contextmanager
def _edited(tree: pathlib.Path, mutant: dict) -> Iterator[bool]:
  """Makes the edit and takes it back; yields whether it applies."""
  path = tree / mutant['file']
  text = path.read_text(encoding='utf-8')
  applies = text.count(mutant['old']) == 1
  if applies:
    edited = text.replace(mutant['old'], mutant['new'])
    path.write_text(edited, encoding='utf-8')
  try:
    yield applies
  finally:
    path.write_text(text, encoding='utf-8')


def _run_pytest(tree: pathlib.Path, tests: list[str]) -> None:
  """Runs tests in this process and ends it; prints into `tree`/output."""
  # pylint: disable-next=g-import-not-at-top
  import pytest

  # Byte code that is cached goes by time and size: an edit may change neither.
  sys.dont_write_bytecode = True
  sys.path.insert(0, str(tree))
  os.environ['PYTHONPATH'] = str(tree)
  os.chdir(tree)
  output = os.open('output', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
  os.dup2(output, 1)
  os.dup2(output, 2)
  options = ['-x', '-q', '-p', 'no:cacheprovider', '-p', 'no:xdist']
  status = pytest.main([*options, '--tb=line', *tests])
  package = sys.modules.get('t5x_specdec')
  if package is None or not str(package.__file__).startswith(str(tree)):
    print(f'it was not {tree} that was tested, but {package}')
    status = 4
  sys.stdout.flush()
  os._exit(status)


def _pytest(
    tree: pathlib.Path, tests: list[str], seconds: float | None = None
) -> tuple[int | None, str]:
  """Exit status, None where it took too long, and what was printed."""
  process = _PROCESSES.Process(target=_run_pytest, args=(tree, tests))
  process.start()
  process.join(seconds)
  status = process.exitcode
  if status is None:
    process.kill()
    process.join()
  return status, (tree / 'output').read_text(encoding='utf-8')


def _judge(tree: pathlib.Path, mutant: dict) -> str:
  """What becomes of a mutant, in one or a few words."""
  with _edited(tree, mutant) as applies:
    if not applies:
      return 'does not apply'
    status, output = _pytest(tree, mutant['tests'], _SECONDS)
  if status in (None, _FAILED):
    return 'killed'
  if status == _PASSED:
    return 'SURVIVED'
  return f'cannot be run (pytest exits with {status}):\n{output}'


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--only', nargs='+', metavar='NAME')
  parser.add_argument('--jobs', type=int, default=1, help='at a time')
  return parser


def main(args: argparse.Namespace) -> int:
  # Read when JAX is imported: as the tests set it, and less time to compile.
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')
  os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
  _PROCESSES.set_forkserver_preload(list(_PRELOADED))
  mutants = tomllib.loads(_LIST.read_text(encoding='utf-8'))['mutant']
  if args.only:
    unknown = set(args.only) - {mutant['name'] for mutant in mutants}
    if unknown:
      raise ValueError(f'no such mutant: {", ".join(sorted(unknown))}')
    mutants = [mutant for mutant in mutants if mutant['name'] in args.only]

  with tempfile.TemporaryDirectory() as scratch:
    trees = queue.SimpleQueue()
    for job in range(args.jobs):
      tree = pathlib.Path(scratch, str(job))
      tree.mkdir()
      _copy(tree)
      trees.put(tree)
    tests = sorted({test for mutant in mutants for test in mutant['tests']})
    status, output = _pytest(pathlib.Path(scratch, '0'), tests)
    if status != _PASSED:
      print(f'without any mutant the tests do not pass:\n{output}')
      return 1
    print(f'{len(tests)} tests pass without any mutant', flush=True)

    def run(mutant):
      tree = trees.get()
      try:
        return _judge(tree, mutant)
      finally:
        trees.put(tree)

    with futures.ThreadPoolExecutor(args.jobs) as pool:
      verdicts = []
      for mutant, verdict in zip(mutants, pool.map(run, mutants)):
        print(f'{mutant["name"]}: {verdict}', flush=True)
        verdicts.append(verdict)
  left = [m['name'] for m, v in zip(mutants, verdicts) if v != 'killed']
  print(f'{len(mutants)} mutants, {len(mutants) - len(left)} killed')
  if left:
    print(f'not killed: {", ".join(left)}')
  return 1 if left else 0


if __name__ == '__main__':
  # Not at the top: a run's process imports the package from its copy alone.
  # pylint: disable-next=g-import-not-at-top
  from t5x_specdec.cli import exits

  sys.exit(exits.run_script(_parser(), main))
