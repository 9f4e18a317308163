# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What docs/trust.md and scripts/mutants.toml name is there."""

import ast
import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).parents[1]


def collected(path: pathlib.Path) -> set[str]:
  """Names of a file's tests, as pytest would collect them."""
  names = set()
  for node in ast.parse(path.read_text(encoding='utf-8')).body:
    if isinstance(node, ast.ClassDef) and node.name.startswith('Test'):
      names |= {
          f'{node.name}::{inner.name}'
          for inner in node.body
          if isinstance(inner, ast.FunctionDef)
      }
    elif isinstance(node, ast.FunctionDef):
      names.add(node.name)
  return {name for name in names if name.split('::')[-1].startswith('test_')}


def missing(names: set[str]) -> set[str]:
  """Those of `tests/x_test.py::test_y` that do not exist."""
  absent = set()
  for name in names:
    file, _, test = name.partition('::')
    path = ROOT / file
    known = collected(path) if path.is_file() else set()
    if test.partition('[')[0] not in known:
      absent.add(name)
  return absent


def test_every_test_that_the_docs_name_exists():
  text = (ROOT / 'docs/trust.md').read_text(encoding='utf-8')
  named = set(re.findall(r'`(tests/[^`\s]+::[^`\s]+)`', text))
  assert len(named) > 60
  assert not missing(named)
  # Every fault has at least one.
  rows = re.findall(r'^\| B\d\d \|.*$', text, flags=re.MULTILINE)
  assert len(rows) == 42
  assert all('`tests/' in row for row in rows)


def test_every_mutant_has_its_text_and_its_tests():
  with open(ROOT / 'scripts/mutants.toml', 'rb') as file:
    mutants = tomllib.load(file)['mutant']
  assert len({mutant['name'] for mutant in mutants}) == len(mutants) > 25
  for mutant in mutants:
    text = (ROOT / mutant['file']).read_text(encoding='utf-8')
    assert text.count(mutant['old']) == 1, mutant['name']
    assert mutant['new'] != mutant['old'], mutant['name']
    assert mutant['tests'] and not missing(set(mutant['tests']))
