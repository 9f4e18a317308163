# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run of t5x/infer.py tells while it writes: a chunk's statistics.

In mode 'predict_with_aux' they come with the predictions. Mode 'predict' keeps
only the predictions, so there the model's counters are sent to the host, batch
by batch, and wait here for the chunk to be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import logging
from typing import Any

import jax
import numpy as np

from t5x_specdec.stats import PER_GAMMA
from t5x_specdec.stats import SPECULATION
from t5x_specdec.stats import Stats

_logger = logging.getLogger(__name__)

# Counters of the batches since the last chunk, summed over their rows.
_waiting: dict[str, np.ndarray] = {}


def keep(counters: Mapping[str, Any]) -> None:
  """Adds a batch's counters to those that wait for their chunk.

  Args:
    counters: fields of `Stats`, arrays with leading axes [batch] or [batch,
      num_decodes].
  """
  # This runs on the host in the middle of a decode: no JAX, and no error.
  for name, leaf in counters.items():
    rows = np.asarray(leaf)
    last = rows.shape[-1:] if name in PER_GAMMA else ()
    total = rows.reshape(-1, *last).sum(axis=0)
    before = _waiting.get(name, np.zeros(last, total.dtype))
    # Models of another gamma have histograms of another width.
    width = max(before.size, total.size)
    if last:
      before, total = (
          np.pad(x, (0, width - x.size)) for x in (before, total)
      )
    _waiting[name] = before + total


def _take_waiting() -> dict[str, Any]:
  jax.effects_barrier()  # the last batches' counters may be under way
  taken = dict(_waiting)
  _waiting.clear()
  return taken


def summary(aux: Mapping[str, Any]) -> dict[str, Any] | None:
  """Totals over the examples of an aux, see `Stats.summary`.

  Args:
    aux: as the models of `t5x_specdec.models` return it, arrays or lists.

  Returns:
    alpha, tokens_per_target_call and so on; None where aux has no counters.
  """
  if SPECULATION not in aux:
    return None
  counters = aux[SPECULATION]
  return Stats(**{k: np.asarray(v) for k, v in counters.items()}).summary()  # pyright: ignore


def write_inferences_to_file(
    path: str,
    inferences: tuple[Sequence[Any], Mapping[str, Any]],
    task_ds: Any,
    mode: str,
    vocabulary: Any = None,
    **kwargs,
) -> None:
  """T5X's own writer, after a line of log with the chunk's statistics.

  Args:
    path: file to write.
    inferences: predictions and aux; in mode 'predict' there is no aux, and
      the line counts the rows that pad a last batch, too.
    task_ds: the chunk's examples.
    mode: infer.py's.
    vocabulary: of the outputs.
    **kwargs: as of `t5x.infer.write_inferences_to_file`, for gin to bind.
  """
  from t5x import infer

  waiting = _take_waiting()
  totals = summary(inferences[1])
  if totals is None and waiting:
    totals = summary({SPECULATION: waiting})
  if totals is not None:
    _logger.info(
        '%s: alpha %s, %s tokens per target call over %d calls%s',
        path,
        *(
            'unknown' if totals[name] is None else f'{totals[name]:.3f}'
            for name in ('alpha', 'tokens_per_target_call')
        ),
        totals['rounds'],
        '' if totals['exact'] else "; LENIENT: the law is not the target's",
    )
  infer.write_inferences_to_file(
      path, inferences, task_ds, mode, vocabulary, **kwargs
  )
