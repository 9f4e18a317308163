# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookup on real text that copies its input, as README.md states it."""

import pathlib
import subprocess
import sys

import pytest

import t5x_specdec

ROOT = pathlib.Path(t5x_specdec.__file__).parents[1]


@pytest.mark.slow
def test_lookup_gives_two_tokens_a_call_where_text_copies():
  script = ROOT / 'scripts/draft_table.py'
  done = subprocess.run(
      [sys.executable, script, 'copy', '--gamma', '10'],
      capture_output=True,
      text=True,
      check=True,
      cwd=ROOT,
  )
  rows = [
      [cell.strip() for cell in line.strip('|').split('|')]
      for line in done.stdout.splitlines()[2:]
  ]
  assert [row[0] for row in rows] == ['bare', 'typos']
  for _, _, sentences, alpha, tokens, interval in rows:
    assert int(sentences) > 600
    low, high = map(float, interval.strip('[]').split(','))
    # At gamma 10 no call gives more than 11; of what copies, most is right.
    assert 2 <= low <= float(tokens) <= high < 11
    assert 0.7 < float(alpha) < 1
  bare, typos = (float(row[4]) for row in rows)
  assert typos > bare
