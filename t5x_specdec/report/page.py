# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file that asks the network for nothing.

All that comes from a run is escaped, and should that ever fail, the page's own
policy runs no script and loads nothing but what stands here.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import pathlib
import string
from typing import Any

from t5x_specdec import sampling
from t5x_specdec.report import charts
from t5x_specdec.report import figures
from t5x_specdec.report import texts
from t5x_specdec.report.run import Run
from t5x_specdec.report.run import Text
from t5x_specdec.version import __version__

_FOLDER = pathlib.Path(__file__).parent
# More would be slow to open; figures count every text.
MOST_TEXTS = 100
MOST_ROUNDS = 10_000


def values(run: Run) -> dict[str, Any]:
  """All values of the page, as its JSON has them.

  Args:
    run: the run.

  Returns:
    about, summary, histogram, positions, expectations, and of the texts that
    are shown their line, rounds and timeline.
  """
  return {
      'about': run.about,
      'summary': figures.summary(run),
      'histogram': figures.histogram(run),
      'positions': figures.positions(run),
      'expectations': figures.expectations(run),
      'texts': [
          {
              'line': text.line,
              'rounds': text.rounds,
              'timeline': figures.timeline(run, text),
          }
          for text in _shown(run)
      ],
  }


def render(run: Run, name: str) -> str:
  """The page of a run.

  Args:
    run: the run.
    name: what it is called.

  Returns:
    HTML.
  """
  content = values(run)
  style, script = (
      (_FOLDER / file).read_text(encoding='utf-8')
      for file in ('page.css', 'page.js')
  )
  articles = [
      texts.article(i, text, content['texts'][i]['timeline'])
      for i, text in enumerate(_shown(run))
  ]
  if len(run.texts) > len(articles):
    articles.insert(
        0,
        f'<p>The first {len(articles)} of {len(run.texts)} texts; the figures '
        'above count all of them.</p>',
    )
  template = (_FOLDER / 'page.html').read_text(encoding='utf-8')
  return string.Template(template).substitute(
      policy="default-src 'none'; img-src data:; base-uri 'none'; "
      f"form-action 'none'; style-src '{_hash(style)}'; "
      f"script-src '{_hash(script)}'",
      version=__version__,
      title=f'{_escape(name)} · speculative decoding',
      style=style,
      subtitle=_subtitle(run, name),
      tiles=_tiles(content),
      figures=_figures(run, content),
      legend=texts.legend(),
      texts='\n'.join(articles),
      method=_method(run),
      values=_embedded(content),
      script=script,
  )


def _shown(run: Run) -> list[Text]:
  """The texts that have a place on the page: as many as fit, at least one."""
  rounds = itertools.accumulate(len(text.rounds) for text in run.texts)
  fitting = sum(count <= MOST_ROUNDS for count in rounds)
  return run.texts[: max(1, min(fitting, MOST_TEXTS))]


def _escape(text: str) -> str:
  return html.escape(text)


def _hash(content: str) -> str:
  """What a Content-Security-Policy knows an inline element by."""
  digest = hashlib.sha256(content.encode()).digest()
  return f'sha256-{base64.b64encode(digest).decode()}'


def _embedded(content: dict[str, Any]) -> str:
  """JSON that cannot end the element it stands in."""
  text = json.dumps(content, ensure_ascii=True, allow_nan=False)
  return text.replace('<', '\\u003c')


def _number(value: float | None, form: str = '.2f', unit: str = '') -> str:
  return 'n/a' if value is None else format(value, form) + unit


def _subtitle(run: Run, name: str) -> str:
  about = run.about
  text = (
      f'{name}: gamma {about["gamma"]}, temperature {about["temperature"]:g}, '
      f'verification by {about["verification"]}, {_rows(run)}.'
  )
  if about['temperature'] <= sampling.MIN_TEMPERATURE:
    text += ' At temperature 0 both laws are certain: p is 1 or 0, and q is 1.'
  return _escape(text)


def _rows(run: Run) -> str:
  return texts.count(run.about['rows'], 'row') + ' at a time'


def _tiles(content: dict[str, Any]) -> str:
  summary, expected = content['summary'], content['expectations']
  speedup = expected['speedup_measured']
  tiles = (
      ('texts', str(summary['texts'])),
      ('tokens', str(summary['emitted'])),
      ('calls of the target', str(summary['rounds'])),
      ('tokens per call', _number(expected['tokens_empirical'])),
      ('alpha (Corollary 3.6)', _number(summary['alpha'], '.3f')),
      ('speed-up, measured', _number(speedup, unit='×')),
  )
  return ''.join(
      f'<div><dt>{name}</dt><dd>{value}</dd></div>' for name, value in tiles
  )


def _figures(run: Run, content: dict[str, Any]) -> str:
  return '\n'.join(
      (
          _histogram(content['histogram']),
          _positions(content['positions'], content['summary']),
          _expectations(content['expectations'], run),
      )
  )


def _figure(title: str, body: str, caption: str) -> str:
  return (
      f'<figure><h3>{title}</h3>{body}<figcaption>{caption}</figcaption>'
      '</figure>'
  )


def _table(head: list[str], rows: list[list[str]], *, id: str) -> str:
  """A table whose first column names its rows."""
  heads = ''.join(f'<th scope="col">{cell}</th>' for cell in head)
  body = ''.join(
      f'<tr><th scope="row">{first}</th>'
      + ''.join(f'<td>{cell}</td>' for cell in rest)
      + '</tr>'
      for first, *rest in rows
  )
  return (
      f'<table id="{id}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody>'
      '</table>'
  )


def _details(table: str) -> str:
  return f'<details><summary>values</summary>{table}</details>'


def _histogram(histogram: dict[str, Any]) -> str:
  counted, expected = histogram['counted'], histogram['expected']
  names = [str(i) for i in range(len(counted))]
  chart = charts.bars(
      counted,
      names=names,
      labels=[str(count) for count in counted],
      axis='drafts accepted in a round',
      marks=expected,
      summary='Rounds by accepted drafts: '
      + ', '.join(f'{name}: {n}' for name, n in zip(names, counted)),
  )
  table = _table(
      ['accepted', 'rounds', 'expected'],
      [
          [name, str(count), _number(expected and expected[i], '.1f')]
          for i, (name, count) in enumerate(zip(names, counted))
      ],
      id='histogram',
  )
  return _figure(
      'Accepted drafts per round',
      chart + _details(table),
      'Bars: rounds counted. Diamonds: as many as Equation 1’s law expects at '
      'this alpha. It knows no end of a text, which cuts rounds short.',
  )


def _positions(positions: dict[str, Any], summary: dict[str, Any]) -> str:
  pairs = list(zip(positions['judged'], positions['accepted']))
  shares = [accepted / judged if judged else 0.0 for judged, accepted in pairs]
  names = [str(i) for i in range(1, len(pairs) + 1)]
  labels = [
      f'{share:.2f}' if judged else 'none'
      for share, (judged, _) in zip(shares, pairs)
  ]
  chart = charts.bars(
      shares,
      names=names,
      labels=labels,
      axis='place of the draft in its block',
      level=summary['alpha_empirical'],
      top=1.0,
      summary='Share of judged drafts accepted, by place: '
      + ', '.join(f'{name}: {label}' for name, label in zip(names, labels)),
  )
  table = _table(
      ['place', 'judged', 'accepted', 'share'],
      [
          [name, str(judged), str(accepted), label]
          for name, label, (judged, accepted) in zip(names, labels, pairs)
      ],
      id='positions',
  )
  return _figure(
      'Acceptance by place in the block',
      chart + _details(table),
      'Of the drafts that were judged: those up to a round’s first rejection. '
      f'Dashed: all places, {_number(summary["alpha_empirical"], ".3f")}.',
  )


def _expectations(expected: dict[str, Any], run: Run) -> str:
  measured = _number(expected['speedup_measured'], unit='×')
  rows = [
      [
          'tokens per call (Equation 1)',
          _number(expected['tokens_expected']),
          _number(expected['tokens_empirical']),
      ],
      *(
          [name, _number(expected[key], unit='×'), measured]
          for name, key in (
              ('speed-up (Theorem 3.8)', 'speedup_theorem'),
              ('speed-up, measured costs', 'speedup_costs'),
              ('speed-up, calls as made', 'speedup_calls'),
          )
      ),
  ]
  caption = (
      'Theorem 3.8 takes verification for the price of one step; the next row '
      'has what both phases cost here; the last is the calls that were made, '
      'encoders included, a batch as long as its longest row.'
  )
  if run.about['verification'] == 'block' and run.about['temperature'] > 0:
    caption += (
        ' Equation 1 is of the rule that judges tokens one by one; blocks '
        'accept no fewer.'
    )
  if expected['speedup_measured'] is None:
    caption += ' Measured: n/a, the run was without --compare.'
  table = _table(['', 'Exp', 'Emp'], rows, id='expectations')
  return _figure('Expected and empirical', table, caption)


def _method(run: Run) -> str:
  parts = run.about['parts_ms']
  costs = ', '.join(
      f'{draft:.3g} and {verify:.3g} ms at gamma {gamma}'
      for gamma, draft, verify in zip(
          parts['gammas'], parts['draft'], parts['verify']
      )
  )
  return (
      'Rounds run inside one compiled loop, where no clock can be read. So the '
      'timelines are the calls as counted, at what each kind of call took when '
      'it was measured apart, on the machine of the run, '
      f'{_rows(run)}: encoders {parts["encode"]:.3g} and '
      f'{parts["encode_draft"]:.3g} ms, a step of the target alone '
      f'{parts["step"]:.3g} ms, drafting and verifying {_escape(costs)}.'
  )
