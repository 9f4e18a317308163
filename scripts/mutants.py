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
import os
import pathlib
import queue
import shutil
import subprocess
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


def _pytest(
    tree: pathlib.Path, tests: list[str], seconds: float | None = None
) -> tuple[int | None, str]:
  """Exit status, None where it took too long, and what was printed."""
  # Byte code that is cached goes by time and size: an edit may change neither.
  environment = os.environ | {
      'PYTHONPATH': str(tree),
      'PYTHONDONTWRITEBYTECODE': '1',
  }
  options = ['-x', '-q', '-p', 'no:cacheprovider', '--tb=line']
  try:
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', *options, *tests],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
  except subprocess.TimeoutExpired:
    return None, ''
  return done.returncode, done.stdout + done.stderr


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


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--only', nargs='+', metavar='NAME')
  parser.add_argument('--jobs', type=int, default=1, help='at a time')
  args = parser.parse_args()
  mutants = tomllib.loads(_LIST.read_text(encoding='utf-8'))['mutant']
  if args.only:
    unknown = set(args.only) - {mutant['name'] for mutant in mutants}
    if unknown:
      parser.error(f'no such mutant: {", ".join(sorted(unknown))}')
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
  sys.exit(main())
