# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The charts of a report as inline SVG; colours are the style sheet's."""

from __future__ import annotations

from collections.abc import Sequence
import html
from typing import Any

# Of a chart with bars, in units of its view box.
_WIDTH, _HEIGHT = 340, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 12, 12, 24, 40
# Of a row of a timeline; its width is its time.
_ROW = 20
# Height of a call in it, so that colour is not all that tells them apart.
_HEIGHTS = {'encode': 20, 'encode-draft': 14, 'draft': 8, 'verify': 20}

# Kind, ms, and number of its round.
_Call = tuple[str, float, int | None]


def bars(
    values: Sequence[float],
    *,
    names: Sequence[str],
    labels: Sequence[str],
    axis: str,
    marks: Sequence[float] | None = None,
    level: float | None = None,
    top: float | None = None,
    summary: str,
) -> str:
  """A chart of upright bars.

  Args:
    values: of the bars, not negative.
    names: under the bars.
    labels: over the bars.
    axis: what the names are.
    marks: a diamond at each bar.
    level: a dashed line across.
    top: value at the upper edge; default the largest.
    summary: the chart in words, for those who do not see it.

  Returns:
    An svg element.
  """
  shown = [*values, *(marks or ())]
  scale = (_HEIGHT - _TOP - _BOTTOM) / (top or max(shown, default=0) or 1)
  base = _HEIGHT - _BOTTOM
  step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(values))
  parts, text = [], []
  for i, value in enumerate(values):
    x, y = _LEFT + (i + 0.5) * step, base - value * scale
    width = min(44.0, 0.66 * step)
    parts.append(
        f'<rect class="bar" x="{x - width / 2:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{value * scale:.1f}"/>'
    )
    text.append(_label(x, base + 14, names[i]))
    over = y
    if marks is not None:
      at = base - marks[i] * scale
      over = min(y, at - 4)
      parts.append(
          f'<path class="mark" d="M{x:.1f} {at - 5:.1f}l5 5l-5 5l-5-5z"/>'
      )
    text.append(_label(x, over - 5, labels[i], 'value'))
  if level is not None:
    y = base - level * scale
    parts.append(
        f'<path class="level" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
    )
  parts.append(f'<path class="axis" d="M{_LEFT} {base}H{_WIDTH - _RIGHT}"/>')
  text.append(_label(_WIDTH / 2, _HEIGHT - 8, axis, 'name'))
  return (
      f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
      f'aria-label="{html.escape(summary)}">{"".join(parts + text)}</svg>'
  )


def _label(x: float, y: float, text: str, kind: str = 'tick') -> str:
  return (
      f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">'
      f'{html.escape(text)}</text>'
  )


def height(kind: str) -> int:
  """Of a kind of call in a timeline, up to 20."""
  return _HEIGHTS[kind]


def timeline_rows(line: dict[str, Any]) -> tuple[str, str]:
  """Figure 5 for one text: its calls, and those of the target alone.

  Args:
    line: from `figures.timeline`.

  Returns:
    Two svg elements on one scale, speculative and standard decoding.
  """
  scale = 1000 / max(line['ms'], line['alone_ms'])
  ours: list[_Call] = [
      ('encode', line['encode'], None),
      ('encode-draft', line['encode_draft'], None),
  ]
  for i, (gamma, draft, verify) in enumerate(line['rounds']):
    ours += [('draft', draft / max(1, gamma), i)] * gamma
    ours.append(('verify', verify, i))
  alone: list[_Call] = [('encode', line['encode'], None)]
  alone += [('verify', line['step'], None)] * line['steps']
  return (
      _row(
          ours,
          scale,
          f'speculative decoding: {line["ms"]:.1f} ms, encoders and '
          f'{len(line["rounds"])} rounds',
      ),
      _row(
          alone,
          scale,
          f'standard decoding: {line["alone_ms"]:.1f} ms, encoder and '
          f'{line["steps"]} steps',
      ),
  )


def _row(calls: list[_Call], scale: float, summary: str) -> str:
  """Calls one after another."""
  parts, x = [], 0.0
  for kind, milliseconds, number in calls:
    width, height = milliseconds * scale, _HEIGHTS[kind]
    of_round = '' if number is None else f' data-round="{number}"'
    parts.append(
        f'<rect class="{kind}" x="{x:.2f}" y="{_ROW - height}" '
        f'width="{width:.2f}" height="{height}"{of_round}/>'
    )
    x += width
  return (
      f'<svg class="row" viewBox="0 0 1000 {_ROW}" preserveAspectRatio="none" '
      f'role="img" aria-label="{html.escape(summary)}">{"".join(parts)}</svg>'
  )
