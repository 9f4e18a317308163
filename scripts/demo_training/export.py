# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the pair as T5X checkpoints, beside vocabulary, bigrams, test set."""

from collections.abc import Sequence
import pathlib
import shutil

from demo_training import states
from t5x_specdec.testing import checkpoint_writer


def export(
    work: pathlib.Path,
    out: pathlib.Path,
    sources: dict[str, str],
    which: str,
    dtype: str,
    beside: Sequence[str],
) -> None:
  """Writes `out`/{target,draft}/checkpoint_<step>, and what stands beside them.

  A model's earlier checkpoints in `out` go once the new one is written.

  Args:
    work: folder of the training results.
    out: folder to write to.
    sources: folder below `work` of each model's training, by model.
    which: 'best' on dev, or 'latest'.
    dtype: 'bfloat16' or 'float32'.
    beside: names of what else of `work` is copied there.
  """
  for model, folder in sources.items():
    params, step = states.load_params(work / folder / f'{which}.npz')
    place = out / model
    if (place / f'checkpoint_{step}').exists():
      shutil.rmtree(place / f'checkpoint_{step}')
    written = checkpoint_writer.write_checkpoint(
        place, params, step=step, dtype=dtype
    )
    for old in place.glob('checkpoint_*'):
      if old != pathlib.Path(written):
        shutil.rmtree(old)
    print(f'{model}: {written}')
  for name in beside:
    with (work / name).open('rb') as source, states.replacing(out / name) as to:
      shutil.copyfileobj(source, to)
