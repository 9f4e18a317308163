# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a worker in an interpreter without JAX: `python alone.py worker_hf`.

`import t5x_specdec` imports JAX. Here its packages are bare folders instead, so
that a worker and `protocol` can be imported without what stands beside them.
"""

import importlib
import pathlib
import sys
import types


def main() -> None:
  """Runs the module named on the command line."""
  folder = pathlib.Path(__file__).resolve().parent
  # Python puts the script's folder first, whose modules are not to be found
  # without their package's name.
  sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != folder]
  for name, path in (
      ('t5x_specdec', folder.parent),
      ('t5x_specdec.benchmarks', folder),
  ):
    package = types.ModuleType(name)
    package.__path__ = [str(path)]
    sys.modules[name] = package
  worker = importlib.import_module(f't5x_specdec.benchmarks.{sys.argv[1]}')
  worker.main()


if __name__ == '__main__':
  main()
