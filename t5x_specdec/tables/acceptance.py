# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables 3 and 5: how often drafts stand, exactly and with lenience."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t5x_specdec.resampling import Estimate
from t5x_specdec.tables import paper
from t5x_specdec.tables.measure import Agreement
from t5x_specdec.tables.measure import DRAFTS

DEMO = 'demo pair (EnDe help)'
GPT = 'GPT-like pair'
# Whose rows of the paper stand beside ours, and its draft nearest to ours.
_BESIDE = {
    DEMO: (paper.ENDE, 'T5 small'),
    GPT: (paper.GPT, 'GPT-like 6M'),
}

# By target and temperature, 0 or 1.
Measured = Mapping[str, Mapping[int, Agreement]]


def table_3(measured: Measured) -> dict[str, Any]:
  """Alpha of each draft, the targets of ours first; see the package.

  Besides the alphas and their intervals a row of ours has the tokens that they
  are means over, and that of a model judged_alpha and accepted, Corollary 3.6
  and what happened, over the drafts that speculation judged.

  Args:
    measured: what was.

  Returns:
    The table; rows of the paper's own models have no `ours`.
  """
  rows, shown = [], set()
  for target, by_temperature in measured.items():
    theirs, model = _BESIDE[target]
    for draft in DRAFTS:
      like = model if draft == 'model' else draft
      printed = next(
          x for x in paper.TABLE_3 if (x.target, x.draft) == (theirs, like)
      )
      shown.add(printed)
      rows.append({
          'target': target,
          'draft': draft,
          'beside': f'{theirs}, {like}',
          'paper': {'t0': printed.greedy, 't1': printed.sampled},
          'ours': {
              f't{temperature}': _entry(found, draft)
              for temperature, found in by_temperature.items()
          },
      })
  rows += [
      {
          'target': row.target,
          'draft': row.draft,
          'beside': None,
          'paper': {'t0': row.greedy, 't1': row.sampled},
          'ours': None,
      }
      for row in paper.TABLE_3
      if row not in shown
  ]
  return {
      'table': 3,
      'title': 'Acceptance rate alpha along texts of the target',
      'differs': _differs(measured),
      'rows': rows,
  }


def table_5(measured: Measured) -> dict[str, Any]:
  """Alpha under lenience, that of Appendix A.5: E(sum(min(p / l, q))).

  Args:
    measured: what was; only the demo pair, as the paper has only EnDe.

  Returns:
    The table.
  """
  rows = []
  for row in paper.TABLE_5:
    draft = row.draft if row.draft in DRAFTS else 'model'
    found = measured.get(DEMO, {}).get(row.temperature)
    # The demo pair has one model, and it is the small one.
    beside = found and row.draft != 'T5 base'
    rows.append({
        'draft': row.draft,
        'temperature': row.temperature,
        'paper': _by_lenience(row.alphas),
        'ours': _by_lenience([_estimate(x) for x in found.alphas[draft]])
        if found and beside
        else None,
    })
  return {
      'table': 5,
      'title': 'Acceptance rate alpha under lenience l',
      'differs': _differs(measured),
      'rows': rows,
  }


def _by_lenience(values) -> dict[str, Any]:
  return dict(zip((f'{x:g}' for x in paper.LENIENCES), values, strict=True))


def _estimate(found: Estimate) -> dict[str, float | None]:
  return {'alpha': found.value, 'low': found.low, 'high': found.high}


def _entry(found: Agreement, draft: str) -> dict[str, Any]:
  """A draft's alpha without lenience."""
  entry: dict[str, Any] = _estimate(found.alphas[draft][0])
  entry['tokens'] = found.tokens
  if draft == 'model':
    entry['judged_alpha'] = _estimate(found.judged_alpha)
    entry['accepted'] = _estimate(found.accepted)
  return entry


def _differs(measured: Measured) -> str:
  """What must be said where the two columns stand side by side."""
  if not measured:
    return 'nothing of ours was measured'
  return (
      f'tasks and models: ours is {" and ".join(measured)}, of a few million '
      'parameters; draft model means its own small one, beside the paper\'s '
      'smallest'
  )
