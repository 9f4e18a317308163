# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Days on which something breaks under T5X: checkpoints, options, the disk."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import stat
import tempfile

import helpers
import numpy as np
import pytest
import t5x_restore_test
import t5x_runs

pytestmark = pytest.mark.t5x

runs = t5x_runs.runs  # a folder with a task, two models, gin files


def write_pair(folder: pathlib.Path, layout: str) -> dict[str, str]:
  """Writes a tiny pair; paths by model."""
  return {
      name: t5x_restore_test.write(
          folder, name, t5x_restore_test.params_of(name), layout
      )
      for name in ('target', 'draft')
  }


def said(paths: dict[str, str]) -> str:
  """What is said of a draft that cannot be restored: one line."""
  with pytest.raises((ValueError, FileNotFoundError)) as error:
    t5x_restore_test.restore(paths)
  (line,) = str(error.value).splitlines()
  assert line.startswith(f'draft checkpoint {paths["draft"]}: ')
  assert 'tensorstore_spec' not in line and len(line) < 600
  return line


@pytest.mark.slow
@pytest.mark.parametrize(
    'layout, needed, least',
    [('legacy', 'checkpoint', 10), ('orbax', 'state/manifest.ocdbt', 2)],
)
def test_a_damaged_draft_is_refused_or_restored_as_it_was(
    layout, needed, least, tmp_path
):
  """Orbax keeps most of its files for others than the reader."""
  paths = write_pair(tmp_path, layout)
  draft = pathlib.Path(paths['draft'])
  kept = tmp_path / 'kept'
  shutil.copytree(draft, kept)
  files = sorted(
      path.relative_to(kept)
      for path in kept.rglob('*')
      if path.is_file() and path.stat().st_size
  )
  rng = np.random.default_rng(0)
  refused = 0
  for i in range(20):
    # Every other time a file that all depends on.
    name = needed if i % 2 else files[rng.integers(len(files))]
    helpers.damage(draft / name, rng)
    try:
      state = t5x_restore_test.restore(paths)
    except ValueError:
      refused += 1
      said(paths)
    else:
      t5x_restore_test.check(state)
    shutil.copyfile(kept / name, draft / name)
  assert refused >= least


@contextlib.contextmanager
def unprivileged():
  """As somebody who may not read everything."""
  user = os.geteuid()
  if not user:
    os.seteuid(65534)
  try:
    yield
  finally:
    os.seteuid(user)


@pytest.mark.parametrize(
    'what',
    ['', 'checkpoint', 'target.encoder.layers_0.mlp.wo.kernel/0.0'],
    ids=['folder', 'tree', 'array'],
)
def test_a_draft_that_may_not_be_read_is_one_line(what):
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    folder.chmod(0o755)
    paths = write_pair(folder, 'legacy')
    # Imports all that restoring takes, as somebody who may.
    t5x_restore_test.check(t5x_restore_test.restore(paths))
    path = pathlib.Path(paths['draft'], what)
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0)
    try:
      with unprivileged():
        line = said(paths)
    finally:
      path.chmod(mode)
  assert 'ermission' in line


def last_words(done) -> str:
  """The last line of a run, but for what gin adds of where it was called."""
  lines = [
      line
      for line in done.stderr.strip().splitlines()
      if not line.startswith('  In call to configurable ')
  ]
  return lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    'binding, value, words',
    [
        (
            'models.SpeculativeEncoderDecoderModel.gamma',
            -1,
            'ValueError: models.SpeculativeEncoderDecoderModel.gamma: ',
        ),
        (
            'decoding.speculative_decode.temperature',
            -1.0,
            'ValueError: temperature must be ',
        ),
        (
            'DRAFT_CHECKPOINT_PATH',
            'cut/checkpoint_1',
            'ValueError: draft checkpoint cut/checkpoint_1: cannot be restored',
        ),
    ],
    ids=['gamma', 'temperature', 'checkpoint'],
)
def test_a_run_ends_with_what_is_wrong(binding, value, words, runs):
  cut = runs.folder / 'cut/checkpoint_1'
  if not cut.exists():
    shutil.copytree(runs.folder / 'near/checkpoint_1', cut)
    array = cut / 'target.decoder.logits_dense.kernel/0.0'
    array.write_bytes(array.read_bytes()[:50])
  done = runs.run(
      'wrong',
      'near',
      options={'status': 1},
      **{binding.replace('.', '__'): value},
  )
  assert last_words(done).startswith(words)
  assert not list((runs.folder / 'wrong').glob('*.jsonl*'))


@pytest.mark.slow
def test_odd_lines_are_decoded(runs):
  """Empty, blank, long and with a NUL; that of other texts stays as it is."""
  lines = (runs.folder / 'lines.txt').read_text()
  odd = ['', ' ', 'the ' * 25_000, 'x' * 100_000, 'a\0b', '\u2028 \U0001f9a6']
  (runs.folder / 'lines.txt').write_text('\n'.join([*odd, lines]))
  try:
    found = runs.infer('odd', 'near')
  finally:
    (runs.folder / 'lines.txt').write_text(lines)
  texts = [line['inputs']['inputs_pretokenized'] for line in found]
  assert texts[: len(odd)] == odd
  assert t5x_runs.texts(found)[len(odd) :] == t5x_runs.texts(runs.stock())
