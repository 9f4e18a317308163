# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws Figures 2 to 5 of the paper as SVG, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
from typing import Any

from t5x_specdec.tables import curves
from t5x_specdec.tables.runs import Run

_KINDS = {
    'encoder': '#e6b800',
    'draft encoder': '#e67300',
    'draft': '#4c78d8',
    'target': '#8e5ab5',
}
_SETTINGS = {
    'svg.fonttype': 'none',  # text stays text
    'svg.hashsalt': 't5x_specdec',  # the same bytes each time
    'path.simplify': False,  # every number that was computed
    'font.size': 9,
}


def _matplotlib() -> Any:
  try:
    # Large, and wanted only here.
    import matplotlib  # pylint: disable=g-import-not-at-top
    import matplotlib.figure  # pylint: disable=g-import-not-at-top
  except ModuleNotFoundError:
    raise ValueError(
        '--figures needs matplotlib: pip install "t5x_specdec[plots]"'
    ) from None
  return matplotlib


def draw(folder: pathlib.Path, runs: Sequence[Run]) -> list[pathlib.Path]:
  """Writes figure2.svg to figure5.svg.

  Args:
    folder: where to; made where missing.
    runs: from `runs.read`, drawn on top.

  Returns:
    What was written.

  Raises:
    ValueError: matplotlib is absent.
  """
  matplotlib = _matplotlib()
  folder.mkdir(parents=True, exist_ok=True)
  written = []
  with matplotlib.rc_context(_SETTINGS):
    for number in (2, 3, 4, 5):
      content = getattr(curves, f'figure_{number}')(runs)
      if number == 5:
        figure = _timelines(matplotlib, content)
      else:
        figure = _panels(matplotlib, content)
      path = folder / f'figure{number}.svg'
      figure.savefig(path, format='svg', metadata={'Date': None})
      written.append(path)
  return written


def _panels(matplotlib: Any, panels: list[curves.Panel]) -> Any:
  """Panels side by side, each line with its name as its id in the SVG."""
  figure = matplotlib.figure.Figure(
      figsize=(5.2 * len(panels), 4.2), layout='constrained'
  )
  (row,) = figure.subplots(1, len(panels), squeeze=False)
  for axes, panel in zip(row, panels):
    for curve in panel.curves:
      steps = {'drawstyle': 'steps-mid'} if panel.y == 'best gamma' else {}
      axes.plot(curve.x, curve.y, label=curve.name, **steps)
    for i, point in enumerate(panel.points):
      axes.plot(
          point.x, point.y, 'osD^v<>*'[i % 8], color='black', label=point.name
      )
    for line in axes.get_lines():
      line.set_gid(f'{panel.title}: {line.get_label()}')
    axes.set(xlabel='alpha', ylabel=panel.y, title=panel.title, xlim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize='x-small')
  return figure


def _timelines(matplotlib: Any, timelines: list[curves.Timeline]) -> Any:
  """A row per timeline, the first on top."""
  figure = matplotlib.figure.Figure(
      figsize=(9, 1.2 + 0.6 * len(timelines)), layout='constrained'
  )
  axes = figure.subplots()
  for row, timeline in enumerate(timelines):
    for kind, colour in _KINDS.items():
      calls = [call for call in timeline.calls if call.kind == kind]
      bars = axes.broken_barh(
          [(call.start, call.length) for call in calls],
          (row - 0.35, 0.7),
          facecolors=colour,
          edgecolors='white',
          linewidth=0.3,
          label=kind if row == 0 else None,
      )
      bars.set_gid(f'{timeline.name}: {kind}')
  axes.set(
      title=f'Figure 5: calls to emit {curves.TOKENS} tokens',
      xlabel='time, in steps of the target',
      yticks=range(len(timelines)),
      yticklabels=[timeline.name for timeline in timelines],
  )
  axes.invert_yaxis()
  figure.legend(loc='outside lower center', ncols=len(_KINDS))
  return figure
