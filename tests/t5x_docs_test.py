# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What docs/from_t5x_to_speculative.md shows can be pasted, and says so."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

_ROOT = pathlib.Path(__file__).parents[1]
_PAGE = _ROOT / 'docs/from_t5x_to_speculative.md'


def test_the_pages_commands_run_and_agree_as_it_says(tmp_path):
  page = _PAGE.read_text(encoding='utf-8')
  blocks = re.findall(r'```sh\n(.*?)```', page, flags=re.DOTALL)
  whole = [block for block in blocks if '...' not in block]
  assert len(whole) == 2  # the run that a user has, and the speculative one
  script = '\n'.join(whole).replace('$(mktemp -d)', str(tmp_path))
  assert str(tmp_path) in script
  done = subprocess.run(
      ['bash', '-ec', script],
      cwd=_ROOT,
      env={
          **os.environ,
          'PATH': os.pathsep.join(
              [str(pathlib.Path(sys.executable).parent), os.environ['PATH']]
          ),
          'XLA_FLAGS': '--xla_backend_optimization_level=0',
          'DEMO_LINES': '3',
      },
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  lines = {}
  for kind, mode in (('stock', 'predict'), ('speculative', 'predict_with_aux')):
    path = tmp_path / kind / f'demo_ende-{mode}.jsonl-00000-of-00001'
    lines[kind] = [json.loads(x) for x in path.read_text().splitlines()]
  assert len(lines['stock']) == 3
  for stock, ours in zip(lines['stock'], lines['speculative'], strict=True):
    assert ours['inputs'] == stock['inputs']
    assert ours['prediction'] == stock['prediction']
  # The example is the first line.
  (example,) = re.findall(r'```\n(\{"inputs".*?)```', page, flags=re.DOTALL)
  shown = re.sub(r'\s+', ' ', example)
  first = lines['speculative'][0]
  assert f'"prediction": "{first["prediction"]}"' in shown
  assert json.dumps(first['aux']['speculation']) in shown
  assert re.search(r'chunk00000: alpha \S+, \S+ tokens per', done.stderr)
