# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The texts of a report as HTML: Figure 1's colours over Figure 5's calls."""

from __future__ import annotations

import html
from typing import Any

from t5x_specdec.report import charts
from t5x_specdec.report.run import Text
from t5x_specdec.vocabulary import EOS_ID

_TOKENS = (
    ('accepted', 'accepted draft'),
    ('rejected', 'rejected draft'),
    ('correction', "correction, the target's own"),
    ('bonus', 'bonus: the target’s own after a whole block'),
)
_CALLS = (
    ('encode', 'encoder of the target'),
    ('encode-draft', 'encoder of the draft'),
    ('draft', 'draft'),
    ('verify', 'target'),
)


def count(number: int, noun: str) -> str:
  """A number of things, in words."""
  return f'{number} {noun}' + 's' * (number != 1)


def legend() -> str:
  """What the colours and shapes stand for."""
  items = ''.join(
      f'<li><span class="token {kind}">token</span> {meaning}</li>'
      for kind, meaning in _TOKENS
  )
  calls = ''.join(
      '<li><svg class="swatch" viewBox="0 0 12 20" aria-hidden="true">'
      f'<rect class="{kind}" y="{20 - charts.height(kind)}" width="12" '
      f'height="{charts.height(kind)}"/></svg>{meaning}</li>'
      for kind, meaning in _CALLS
  )
  return f'<ul class="legend">{items}</ul><ul class="legend">{calls}</ul>'


def article(index: int, text: Text, line: dict[str, Any]) -> str:
  """One text in colours, with its timeline.

  Args:
    index: of the text among those that are shown.
    text: the text.
    line: from `figures.timeline`.

  Returns:
    An article element.
  """
  name = f'Line {text.line}'
  if text.decode:
    name += f', decode {text.decode}'
  rounds = ''.join(
      _round(index, number, entry) for number, entry in enumerate(text.rounds)
  )
  # Tab stops once in a text; the script lets the arrow keys go on from there.
  rounds = rounds.replace('tabindex="-1"', 'tabindex="0"', 1)
  cut = ' (cut)' if text.truncated else ''
  reference = ''
  if text.reference is not None:
    reference = _paragraph('Human', text.reference)
  ours, alone = charts.timeline_rows(line)
  return (
      f'<article aria-label="{name}"><h3>{name}</h3>'
      f'{_paragraph("Input", text.input, cut)}{reference}'
      '<div class="text" role="group" aria-label="Decoded text" dir="auto">'
      f'{rounds}</div>'
      f'<p class="key">Speculative: {count(len(text.rounds), "call")} of the '
      f'target, {line["ms"]:.1f} ms</p>{ours}'
      f'<p class="key">Standard: {count(line["steps"], "call")}, '
      f'{line["alone_ms"]:.1f} ms</p>{alone}</article>'
  )


def _paragraph(name: str, text: str, more: str = '') -> str:
  """A text that may run from right to left, which its name does not."""
  shown = f'<bdi>{html.escape(text)}</bdi>'
  return f'<p class="input">{name}: {shown}{more}</p>'


def _round(index: int, number: int, entry: dict[str, Any]) -> str:
  """The tokens of a round that Figure 1 shows."""
  n, count = entry['accepted'], len(entry['drafted'])
  tokens = [('accepted', i) for i in range(n)]
  if entry['next_token'] is not None:
    if n < count:
      tokens += [('rejected', n), ('correction', -1)]
    else:
      tokens.append(('bonus', -1))
  parts = []
  for kind, at in tokens:
    own = at < 0
    piece = entry['next_piece'] if own else entry['pieces'][at]
    token = entry['next_token'] if own else entry['drafted'][at]
    word = piece.lstrip(' ')
    space = piece[: len(piece) - len(word)] if number or parts else ''
    shown = '‹end›' if token == EOS_ID else word or '␣'
    label = f'{shown}, {dict(_TOKENS)[kind]}'
    parts.append(
        f'{space}<button type="button" class="token {kind}" tabindex="-1" '
        f'data-text="{index}" data-round="{number}" data-draft="{at}" '
        f'aria-label="{html.escape(label)}">{html.escape(shown)}</button>'
    )
  return f'<span class="round" data-round="{number}">{"".join(parts)}</span>'
