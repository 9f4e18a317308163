# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Table 2 of the paper, and how a row that was measured is shown beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import pathlib
from typing import Any

import numpy as np

from t5x_specdec import theory
from t5x_specdec.tables import paper as printed


def paper(files: Iterable[str]) -> dict[str, Any] | None:
  """The paper's figures of a row.

  Args:
    files: gin files.

  Returns:
    What the table says of the first that is named like one of its rows, such as
    ende_small_t0.gin; None where none is.
  """
  for file in files:
    name = pathlib.Path(file).stem
    for row in printed.TABLE_2:
      if name.removesuffix('_public') == row.name:
        return {
            'row': name,
            'gamma': row.gamma,
            'alpha': row.alpha,
            'c': row.c,
            'expected': row.expected,
            'measured': row.measured,
        }
  return None


def count_tokens(texts: np.ndarray, eos_id: int) -> int:
  """Tokens of int32[rows, length] texts up to and including their EOS."""
  ends = texts == eos_id
  lengths = np.where(
      np.any(ends, axis=1), np.argmax(ends, axis=1) + 1, texts.shape[1]
  )
  return int(lengths.sum())


def times(
    alpha: float,
    gamma: int,
    seconds: Mapping[str, float],
    tokens: Mapping[str, int],
) -> dict[str, Any]:
  """The figures of a row that come from times.

  Args:
    alpha: Corollary 3.6's.
    gamma: drafts per round.
    seconds: by decoder: 'stock', 'speculative', 'target' and 'draft'.
    tokens: likewise, how many were decoded in that time.

  Returns:
    ms_per_token by decoder, c, expected (Theorem 3.8) and measured.
  """
  ms = {name: 1e3 * seconds[name] / tokens[name] for name in seconds}
  c = ms['draft'] / ms['target']
  return {
      'c': c,
      'expected': float(theory.walltime_improvement(alpha, gamma, c)),
      'measured': ms['stock'] / ms['speculative'],
      'ms_per_token': ms,
  }


def describe(row: dict[str, Any]) -> str:
  """The row, and the paper's under it, for a person."""
  columns = [
      ('gamma', 'gamma', 'd'),
      ('alpha', 'alpha', '.3f'),
      ('accepted/judged', 'alpha_empirical', '.3f'),
      ('c', 'c', '.3f'),
      ('Exp', 'expected', '.2f'),
      ('Emp', 'measured', '.2f'),
  ]
  lines = ['          ' + ''.join(f'{name:>17}' for name, _, _ in columns)]
  for title, figures in (('measured', row), ('paper', row['paper'])):
    if figures is not None:
      cells = [
          format(figures[key], form) if key in figures else '-'
          for _, key, form in columns
      ]
      lines.append(f'{title:10}' + ''.join(f'{cell:>17}' for cell in cells))
  same = row['identical']
  ms = row['ms_per_token']
  lines.append(
      f'temperature {row["temperature"]}, topk {row["topk"]}, {row["texts"]} '
      f'texts, {"sampled" if same is None else f"{same} identical to stock"}; '
      f'{row["tokens_per_target_call"]:.2f} tokens per target call'
  )
  lines.append(
      f'ms per token on {row["device"]}: {ms["stock"]:.3f} stock, '
      f'{ms["speculative"]:.3f} speculative; alone with our loop '
      f'{ms["target"]:.3f} target, {ms["draft"]:.3f} draft'
  )
  if row['nonfinite']:
    lines.append(
        f'WARNING: the target gave NaN or inf in {row["nonfinite"]} rounds'
    )
  return '\n'.join(lines)
