"""`import t5x_specdec` is light: two modules alone may import T5X."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys

import pytest

import t5x_specdec

_HEAVY = ('t5x', 'seqio', 'tensorflow')
_MAY_IMPORT_HEAVY = ('t5x_specdec.checkpoints', 't5x_specdec.models')
_PACKAGE = pathlib.Path(t5x_specdec.__file__).parent


def _heavy_after_importing(modules: list[str]) -> list[str]:
  """Returns which of _HEAVY a new process holds after importing modules."""
  code = (
      'import importlib, json, sys\n'
      f'for name in {modules}:\n'
      '  importlib.import_module(name)\n'
      f'print(json.dumps([n for n in {_HEAVY} if n in sys.modules]))'
  )
  done = subprocess.run(
      [sys.executable, '-c', code],
      cwd=_PACKAGE.parent,
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout.splitlines()[-1])


def test_package_imports_no_tensorflow_seqio_or_t5x():
  assert _heavy_after_importing(['t5x_specdec']) == []


def test_modules_import_no_tensorflow_seqio_or_t5x():
  modules = set()
  for path in _PACKAGE.rglob('*.py'):
    parts = path.relative_to(_PACKAGE.parent).with_suffix('').parts
    modules.add('.'.join(parts).removesuffix('.__init__'))
  assert 't5x_specdec.version' in modules
  light = sorted(modules.difference(_MAY_IMPORT_HEAVY))
  assert _heavy_after_importing(light) == []


def test_version_is_the_installed_one():
  try:
    installed = importlib.metadata.version('t5x_specdec')
  except importlib.metadata.PackageNotFoundError:
    pytest.skip('this checkout is not installed')
  assert t5x_specdec.__version__ == installed
