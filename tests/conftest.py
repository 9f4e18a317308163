"""What every test shares: the environment, and tests that need T5X.

T5X, airio and jestimator are on GitHub only, so a test that needs them carries
`@pytest.mark.t5x` (or its file `pytestmark = pytest.mark.t5x`) and imports T5X
inside its functions or fixtures, never at the top of its file. Where one of the
three is missing these tests are skipped, and one line at the end counts them.

`T5X_CHECKOUTS` names checkouts of the three that lie on disk, or one folder
that holds them, separated by `os.pathsep`. Whoever sets it wants these tests to
run, so with it a package that is missing is an error and not a skip.
"""

from collections.abc import Iterator
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

# Processes share a CPU but not an accelerator, and expected values are float32
# on a CPU. JAX reads this when it is first imported; set it to run elsewhere.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')

_T5X_PACKAGES = ('t5x', 'airio', 'jestimator')
# What these mark is compiled as users compile.
_OPTIMIZED = ('optimized', 't5x')
_MISSING = pytest.StashKey[list[str]]()
_COMPILED = pytest.StashKey[str]()
_SKIP = 'needs T5X: '


def _has_modules(package: pathlib.Path) -> bool:
  # Not by its __init__.py: airio has none. A checkout has its setup.py.
  return any(path.name != 'setup.py' for path in package.glob('*.py'))


def _folders(checkouts: str) -> Iterator[str]:
  """Yields what to put on the path for a value of T5X_CHECKOUTS."""
  for entry in filter(None, checkouts.split(os.pathsep)):
    folder = pathlib.Path(entry).expanduser().resolve()
    found = [
        str(candidate)
        for candidate in (folder, *(folder / name for name in _T5X_PACKAGES))
        if any(_has_modules(candidate / name) for name in _T5X_PACKAGES)
    ]
    if not found:
      raise pytest.UsageError(
          f'T5X_CHECKOUTS names {entry!r}, which neither is nor holds a'
          f' checkout of {", ".join(_T5X_PACKAGES)}.'
      )
    yield from found


def _put_on_path(folders: list[str]) -> None:
  """Puts folders first on this process's path and on its children's."""
  inherited = os.environ.get('PYTHONPATH', '').split(os.pathsep)
  rest = [path for path in inherited if path and path not in folders]
  os.environ['PYTHONPATH'] = os.pathsep.join([*folders, *rest])
  sys.path[:] = [*folders, *(p for p in sys.path if p not in folders)]


def _is_missing(package: str) -> bool:
  spec = importlib.util.find_spec(package)
  # Any folder of that name counts as a package to Python, a checkout's too.
  folders = (spec and spec.submodule_search_locations) or []
  return not any(_has_modules(pathlib.Path(folder)) for folder in folders)


def _share_compilations(config: pytest.Config) -> None:
  """Keeps what any process of this run has compiled, for all of them.

  Most of the tests' time goes into compiling, and workers, files and the
  processes that tests start compile many a program again. Where JAX is told of
  a cache of the user's own it is left to that one. Tests that need T5X, some
  over several processes or meshes, were never tried with a cache: where they
  run there is none.
  """
  is_worker = hasattr(config, 'workerinput')
  given = 'JAX_COMPILATION_CACHE_DIR' in os.environ
  if is_worker or given or not config.stash[_MISSING]:
    return
  config.stash[_COMPILED] = tempfile.mkdtemp(prefix='t5x_specdec_compiled_')
  os.environ['JAX_COMPILATION_CACHE_DIR'] = config.stash[_COMPILED]
  # Small programs too: they are many.
  os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
  os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'


def pytest_unconfigure(config: pytest.Config) -> None:
  if _COMPILED in config.stash:
    shutil.rmtree(config.stash[_COMPILED], ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
  checkouts = os.environ.get('T5X_CHECKOUTS', '')
  folders = list(_folders(checkouts))
  if folders:
    _put_on_path(folders)
  missing = [name for name in _T5X_PACKAGES if _is_missing(name)]
  if folders and missing:
    raise pytest.UsageError(
        f'T5X_CHECKOUTS={checkouts!r} lacks a checkout of {", ".join(missing)}.'
    )
  config.stash[_MISSING] = missing
  _share_compilations(config)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
  missing = config.stash[_MISSING]
  if not missing:
    return
  reason = f'{_SKIP}{", ".join(missing)} cannot be imported'
  for item in items:
    if item.get_closest_marker('t5x'):
      item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope='module', autouse=True)
def forget_compiled_functions():
  """Drops a file's compiled functions when its tests are done.

  XLA maps each of them into memory many times over, and Linux ends a process
  that holds over 65,530 maps (vm.max_map_count): half the suite.
  """
  yield
  jax = sys.modules.get('jax')
  if jax is not None:
    jax.clear_caches()


def _compile_as_marked(request: pytest.FixtureRequest) -> Iterator[None]:
  # pylint: disable=g-import-not-at-top
  import helpers  # and with it JAX, which reads the environment

  optimized = any(request.node.get_closest_marker(name) for name in _OPTIMIZED)
  with helpers.quick_compilation(not optimized):
    yield


@pytest.fixture(scope='module', autouse=True)
def compile_fixtures(request: pytest.FixtureRequest) -> Iterator[None]:
  """Turns most of XLA's optimizations off for what a file's tests share."""
  yield from _compile_as_marked(request)


@pytest.fixture(autouse=True)
def compile_test(request: pytest.FixtureRequest) -> Iterator[None]:
  """Turns them off for each test that is not marked."""
  yield from _compile_as_marked(request)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> None:
  skipped = terminalreporter.stats.get('skipped', [])
  reasons = [str(report.longrepr).partition(_SKIP)[2] for report in skipped]
  reasons = [reason.rstrip("')") for reason in reasons if reason]
  if reasons:
    tests = 'test needs' if len(reasons) == 1 else 'tests need'
    terminalreporter.write_line(
        f'{len(reasons)} {tests} T5X, skipped: {reasons[0]} (see "Tests with'
        ' T5X" in README.md).'
    )
