# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report's figures by hand, its HTML, and the page in a real browser."""

import copy
import html.parser
import json

import chromium
import numpy as np
import pytest

from t5x_specdec.cli import main
from t5x_specdec.report import figures
from t5x_specdec.report import page as page_module
from t5x_specdec.report import run as runs

ATTACK = '</script><img src=x onerror=alert(1)><script>alert(2)</script>'


def entry(drafted, accepted, next_token, p, q, pieces, next_piece, gamma=2):
  return {
      'position': 0,
      'gamma': gamma,
      'drafted': drafted,
      'accepted': accepted,
      'next_token': next_token,
      'p': p,
      'q': q,
      'pieces': pieces,
      'next_piece': next_piece,
  }


def record(line, text, trace, aux, times):
  counters = ('rounds', 'drafted', 'judged', 'accepted', 'emitted', 'alpha')
  return {
      'line': line,
      'input': text,
      'truncated': False,
      'prediction': text,
      'aux': dict(zip(counters, aux))
      | {'rounds_by_gamma': [0, 0, len(trace)]},
      'trace': trace,
      'run': {
          'temperature': 1.0,
          'verification': 'token',
          'gamma': 2,
          'abstains': False,
          'rows': 1,
          'parts_ms': {
              'encode': 4.0,
              'encode_draft': 1.0,
              'step': 2.0,
              'gammas': [2],
              'draft': [1.0],
              'verify': [3.0],
          },
          'batch': line - 1,
          'batch_ms': times[0],
          'batch_alone_ms': times[1],
          'batch_alone_tokens': times[2],
      },
  }


RECORDS = [
    record(
        1,
        ATTACK,
        [
            entry([5, 6], 2, 7, [0.8, 0.5], [0.6, 0.4], [' Der', ' Hut'], 'e'),
            entry([8, 9], 0, 3, [0.125, 0.2], [0.9, 0.3], [ATTACK, 'x'], ' y'),
            # The text ends with a draft; one law was not finite.
            entry([4, 1], 2, None, [1, 1], [1, None], ['z', '</s>'], None),
        ],
        (3, 6, 5, 4, 6, 0.75),
        (10.0, 20.0, 8),
    ),
    record(
        2,
        'short',
        [
            entry([5, 6], 1, 4, [0.5, 0.2], [0.5, 0.5], [' a', ' '], ' w' * 99),
            entry([], 0, 1, [], [], [], '</s>'),
        ],
        (2, 2, 2, 1, 3, 0.4),
        (10.0, 16.0, 4),
    ),
]


def parsed(records=RECORDS):
  return runs.parse([json.dumps(record) for record in records], 'run.jsonl')


def changed(**about):
  """The records with another `run`."""
  records = copy.deepcopy(RECORDS)
  for one in records:
    one['run'].update(about)
  return records


def test_figures_by_hand():
  run = parsed()
  assert run.alpha == pytest.approx((0.75 * 5 + 0.4 * 2) / 7)
  shown = figures.histogram(run)
  assert shown['counted'] == [2, 1, 2]
  np.testing.assert_allclose(
      shown['expected'], [5 * 0.35, 5 * 0.65 * 0.35, 5 * 0.65**2]
  )
  assert figures.positions(run) == {'judged': [4, 3], 'accepted': [3, 2]}
  # As the counters have it.
  assert run.counters['judged'] == 7 and run.counters['accepted'] == 5
  lines = [figures.timeline(run, text) for text in run.texts]
  assert [line['ms'] for line in lines] == [17, 13]
  assert [line['steps'] for line in lines] == [6, 3]
  assert [line['alone_ms'] for line in lines] == [16, 10]
  assert figures.expectations(run) == pytest.approx({
      'tokens_expected': 1 + 0.65 + 0.65**2,
      'tokens_empirical': 9 / 5,
      'speedup_theorem': 2.0725 / (2 * 0.25 + 1),
      'speedup_costs': 2.0725 / (0.5 + 1.5),
      'speedup_calls': 26 / 30,
      # Per token: where texts are sampled, those of the target alone differ.
      'speedup_measured': (36 / 12) / (20 / 9),
  })


@pytest.mark.parametrize(
    'accepted, follows, judged', [(0, 7, 1), (1, 7, 2), (2, 7, 2), (1, None, 1)]
)
def test_the_first_rejection_is_judged_unless_the_text_ended(
    accepted, follows, judged
):
  one = entry([5, 6], accepted, follows, [1, 1], [1, 1], 'ab', 'c')
  assert figures.judged(one) == judged


def test_rows_of_a_batch_wait_for_the_longest():
  both = parsed(
      changed(
          batch=0, batch_ms=10.0, batch_alone_ms=20.0, batch_alone_tokens=9
      )
  )
  shown = figures.expectations(both)
  assert shown['speedup_calls'] == pytest.approx(16 / 17)
  # The batch is timed once, however many lines it has.
  assert shown['speedup_measured'] == 2.0


def test_gammas_that_vary_and_drafts_that_abstain():
  records = changed(
      gamma='adaptive',
      abstains=True,
      parts_ms={
          'encode': 4.0,
          'encode_draft': 1.0,
          'step': 2.0,
          'gammas': [0, 1, 2],
          'draft': [0.0, 0.5, 1.0],
          'verify': [2.0, 2.5, 3.0],
      },
  )
  records[1]['aux']['rounds_by_gamma'] = [1, 0, 1]
  # One draft, since there was room for no more: still a round at gamma 2.
  records[1]['trace'] = [
      entry([5], 1, 4, [0.5], [0.5], [' a'], ' w'),
      entry([], 0, 1, [], [], [], '</s>', gamma=0),
  ]
  run = parsed(records)
  assert figures.timeline(run, run.texts[1])['rounds'] == [
      (2, 1.0, 3.0),
      (0, 0.0, 2.0),
  ]
  tokens = (4 * 2.0725 + 1) / 5
  shown = figures.expectations(run)
  assert shown['tokens_expected'] == pytest.approx(tokens)
  costs = (4 * (1.0 + 3.0) + 2.0) / 5 / 2.0
  assert shown['speedup_costs'] == pytest.approx(tokens / costs)
  np.testing.assert_allclose(sum(figures.histogram(run)['expected']), 5)


def test_a_run_without_drafts(tmp_path):
  records = copy.deepcopy(RECORDS[1:])
  records[0]['trace'] = [entry([], 0, 1, [], [], [], '</s>', gamma=0)]
  records[0]['aux'] = dict.fromkeys(records[0]['aux'], 0)
  records[0]['aux'] |= {
      'rounds': 1, 'emitted': 1, 'alpha': None, 'rounds_by_gamma': [1]
  }
  parts = records[0]['run']['parts_ms']
  parts |= {'gammas': [0], 'draft': [0.0], 'verify': [2.0]}
  run = parsed(records)
  assert figures.positions(run) == {'judged': [], 'accepted': []}
  assert figures.timeline(run, run.texts[0])['rounds'] == [(0, 0.0, 2.0)]
  assert '1 call of the target, 7.0 ms' in write(tmp_path, records).read_text()


def test_what_was_not_measured_is_not_made_up():
  run = parsed(changed(batch_alone_ms=None))
  assert figures.expectations(run)['speedup_measured'] is None
  records = copy.deepcopy(RECORDS[1:])
  records[0]['aux'].update(judged=0, alpha=None)
  run = parsed(records)
  assert run.alpha is None
  assert figures.expectations(run)['tokens_expected'] is None
  assert figures.histogram(run)['expected'] is None


class Document(html.parser.HTMLParser):
  """Elements of a page: tag, attributes, text directly in them."""

  def __init__(self, text):
    super().__init__()
    self.elements = []
    self._open = []
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.elements.append([tag, dict(attrs), ''])
    if tag not in ('meta', 'link', 'input', 'rect', 'path'):
      self._open.append(self.elements[-1])

  def handle_endtag(self, tag):
    if self._open and self._open[-1][0] == tag:
      self._open.pop()

  def handle_data(self, data):
    if self._open:
      self._open[-1][2] += data

  def all(self, tag, **attributes):
    return [
        (found, text)
        for name, found, text in self.elements
        if name == tag
        and all(found.get(key) == value for key, value in attributes.items())
    ]


def write(folder, records=RECORDS):
  """Runs the command on records; the page's path."""
  source, page = folder / 'run.jsonl', folder / 'report.html'
  lines = [json.dumps(record) + '\n' for record in records]
  source.write_text(''.join(lines), encoding='utf-8')
  assert main.main(['report', str(source), '-o', str(page)]) == 0
  return page


def test_the_page_has_the_run_s_values(tmp_path):
  text = write(tmp_path).read_text(encoding='utf-8')
  document = Document(text)
  [(_, embedded)] = document.all('script', id='values')
  values = json.loads(embedded)
  assert values['histogram']['counted'] == [2, 1, 2]
  assert values['positions'] == {'judged': [4, 3], 'accepted': [3, 2]}
  assert values['expectations']['speedup_measured'] == pytest.approx(1.35)
  for shown, given in zip(values['texts'], RECORDS):
    for ours, theirs in zip(shown['rounds'], given['trace'], strict=True):
      assert ours == {name: theirs[name] for name in ours}
  tiles = [text for _, text in document.all('dd')]
  assert tiles == ['2', '9', '5', '1.80', '0.650', '1.35×']
  cells = [text for _, text in document.all('td')]
  assert cells == [
      *('2', '1.8', '1', '1.1', '2', '2.1'),
      *('4', '3', '0.75', '3', '2', '0.67'),
      *('2.07', '1.80', '1.38×', '1.35×', '1.04×', '1.35×', '0.87×', '1.35×'),
  ]
  tokens = [
      (found['class'].removeprefix('token '), text)
      for found, text in document.all('button', type='button')
  ]
  assert tokens == [
      *(('accepted', 'Der'), ('accepted', 'Hut'), ('bonus', 'e')),
      *(('rejected', ATTACK), ('correction', 'y')),
      *(('accepted', 'z'), ('accepted', '‹end›')),
      *(('accepted', 'a'), ('rejected', '␣'), ('correction', 'w' + ' w' * 98)),
      ('bonus', '‹end›'),
  ]
  kinds = [found['class'] for found, _ in document.all('rect', height='20')]
  # Each call of the target is drawn: 3 + 6, then 2 + 3.
  assert kinds.count('verify') == 14 + 1  # and one in the legend
  widths = {
      found['width'] for found, _ in document.all('rect', **{'data-round': '0'})
      if found['class'] == 'verify'
  }
  assert widths == {f'{3000 / 17:.2f}', f'{3000 / 13:.2f}'}


def test_text_of_a_run_is_never_markup(tmp_path):
  document = Document(write(tmp_path).read_text(encoding='utf-8'))
  assert not document.all('img')
  assert len(document.all('script')) == 2
  for tag, found, _ in document.elements:
    assert 'style' not in found and not any(
        name.startswith('on') for name in found
    ), tag
  inputs = [text for _, text in document.all('bdi')]
  assert inputs == [ATTACK, 'short']


def test_a_long_run_shows_some_texts_and_says_so(tmp_path):
  many = [RECORDS[0] | {'line': i} for i in range(1, 103)]
  text = write(tmp_path, many).read_text(encoding='utf-8')
  document = Document(text)
  assert len(document.all('article')) == 100
  assert 'The first 100 of 102 texts' in text
  [(_, embedded)] = document.all('script', id='values')
  assert json.loads(embedded)['histogram']['counted'] == [102, 0, 204]


def test_long_texts_are_shown_up_to_a_number_of_rounds(tmp_path, monkeypatch):
  monkeypatch.setattr(page_module, 'MOST_ROUNDS', 7)
  many = [RECORDS[0] | {'line': i} for i in range(1, 5)]
  text = write(tmp_path, many).read_text(encoding='utf-8')
  assert len(Document(text).all('article')) == 2
  assert 'The first 2 of 4 texts' in text
  monkeypatch.setattr(page_module, 'MOST_ROUNDS', 1)
  text = write(tmp_path, many).read_text(encoding='utf-8')
  assert len(Document(text).all('article')) == 1


def test_half_a_character_is_no_reason_to_fail(tmp_path):
  records = copy.deepcopy(RECORDS)
  records[0]['trace'][0]['pieces'][0] = ' \ud83d'
  assert '>?</button>' in write(tmp_path, records).read_text(encoding='utf-8')


def test_a_resumed_run_is_one_run():
  """Its parts were timed again, and gave other times."""
  records = copy.deepcopy(RECORDS)
  records[1]['run']['parts_ms']['step'] = 9.0
  run = parsed(records)
  assert len(run.texts) == 2 and run.about['parts_ms']['step'] == 2.0


def test_decodes_of_one_input_stand_apart(tmp_path):
  many = copy.deepcopy(RECORDS[:1])
  many[0]['prediction'] = ['a', 'b']
  many[0]['trace'] = [RECORDS[0]['trace'], RECORDS[1]['trace']]
  many[0]['aux']['rounds_by_gamma'] = [0, 0, 5]
  document = Document(write(tmp_path, many).read_text(encoding='utf-8'))
  names = [found['aria-label'] for found, _ in document.all('article')]
  assert names == ['Line 1, decode 1', 'Line 1, decode 2']


def _without(name):
  return json.dumps({k: v for k, v in RECORDS[0].items() if k != name})


def _round(**change):
  one = copy.deepcopy(RECORDS[0])
  one['trace'][0].update(change)
  return json.dumps(one)


def _parts(**change):
  one = copy.deepcopy(RECORDS[0])
  one['run']['parts_ms'].update(change)
  return json.dumps(one)


def _old():
  """As it was written before rounds had their gamma."""
  one = copy.deepcopy(RECORDS[0])
  for entry in one['trace']:
    del entry['gamma']
  return json.dumps(one)


BAD = {
    'not_json': ('{', 'line 1 is not JSON'),
    'a_list': ('[]', 'line 1 is not a JSON object'),
    'a_summary': ('{"lines": 3}', 'line 1 has no prediction'),
    'no_trace': (_without('trace'), "line 1 is not as `generate --trace`"),
    'no_run': (_without('run'), "of this version writes it: no 'run'"),
    'an_old_one': (_old(), "of this version writes it: no 'gamma'"),
    'a_round': (_round(p=[1.0]), 'a round does not add up'),
    'too_many_drafts': (_round(gamma=1), 'a round does not add up'),
    'another_gamma': (_round(gamma=5), 'a round at gamma 5, not of [2]'),
    'no_number': (_round(accepted=float('inf')), 'infinity'),
    'not_a_chance': (_round(p=[1.0, float('nan')]), 'a chance of nan'),
    'few_costs': (_parts(draft=[]), 'no draft for each of gammas [2]'),
    'no_gammas': (_parts(gammas=[], draft=[], verify=[]), 'gammas []'),
    'no_time': (_parts(step=0), 'a time of 0.0 ms'),
    'no_cost': (_parts(verify=[float('nan')]), 'a number is nan'),
    'other_rounds': (
        json.dumps(RECORDS[0] | {'trace': RECORDS[1]['trace']}),
        'rounds_by_gamma [0, 0, 3], traced [0, 0, 2]',
    ),
    'two_runs': (
        '\n'.join(
            json.dumps(one) for one in (RECORDS[0], changed(gamma=3)[1])
        ),
        'line 2 is of another run',
    ),
    'nothing': ('\n', 'holds no record'),
}


@pytest.mark.parametrize('name', BAD)
def test_bad_input_is_one_line_and_status_2(name, tmp_path, capsys):
  content, message = BAD[name]
  source, page = tmp_path / 'run.jsonl', tmp_path / 'report.html'
  source.write_text(content)
  assert main.main(['report', str(source), '-o', str(page)]) == 2
  error = capsys.readouterr().err
  assert error.startswith('t5x-specdec: error: ') and message in error
  assert error.count('\n') == 1
  assert not page.exists()


def test_an_output_that_cannot_be_written_is_told_at_once(tmp_path, capsys):
  """Of `calibrate`, too, which would have measured for minutes by then."""
  source = tmp_path / 'run.jsonl'
  source.write_text(json.dumps(RECORDS[0]))
  for output, message in (
      (tmp_path, 'is a folder'),
      (tmp_path / 'none' / 'file', 'there is no folder'),
  ):
    for command in (['report', str(source)], ['calibrate', '--target', 'demo']):
      assert main.main([*command, '-o', str(output)]) == 2
      (error,) = capsys.readouterr().err.splitlines()
      assert str(output) in error and message in error


@pytest.fixture(scope='module')
def opened(tmp_path_factory):
  """The page in Chromium, and its address."""
  if chromium.find() is None:
    pytest.skip('no chromium on the path')
  folder = tmp_path_factory.mktemp('browser')
  address = write(folder).as_uri()
  page = chromium.Page(folder / 'profile')
  yield page, address
  page.close()


@pytest.fixture
def page(opened):
  """The page as it is first seen, on a phone."""
  page, address = opened
  page.resize(360, 740)
  page.open(address)
  for noted in (page.problems, page.requests, page.dialogs):
    noted.clear()
  page.open(address)
  yield page
  assert page.problems == []
  assert page.dialogs == []
  # The page itself and nothing else; data: is no request of the network.
  asked = [url for url in page.requests if not url.startswith('data:')]
  assert asked == [address]


DETAIL = (
    "document.getElementById('detail').hidden ? null : "
    "[...document.querySelectorAll('#detail p')].map(p => p.textContent)"
)
FOCUSED = 'document.activeElement.textContent'


def tab_to_a_token(page):
  """Presses Tab until a token is in focus."""
  for _ in range(10):
    page.press('Tab')
    if page.evaluate("document.activeElement.matches('.token')"):
      return
  pytest.fail('Tab reaches no token')


def test_keys_reach_tokens_and_show_their_detail(page):
  assert page.evaluate(DETAIL) is None
  tab_to_a_token(page)
  assert page.evaluate(FOCUSED) == 'Der'
  assert page.evaluate(DETAIL) == [
      '“Der”: draft accepted',
      'target p 0.800',
      'draft q 0.600',
      'Round 1, draft 1 of 2, id 5',
  ]
  style = "getComputedStyle(document.activeElement).outlineStyle"
  assert page.evaluate(style) == 'solid'
  for _ in range(2):
    page.press('ArrowRight')
  assert page.evaluate(DETAIL) == [
      "“e”: the target's own token",
      'Round 1, after 2 of 2 drafts stood: a bonus',
      'id 7',
  ]
  page.press('ArrowRight')
  # What looks like markup is text.
  assert page.evaluate(DETAIL) == [
      f'“{ATTACK}”: draft rejected',
      'target p 0.125',
      'draft q 0.900',
      'Round 2, draft 1 of 2, id 8',
      'Thrown away with it: “x”',
  ]
  described = "document.activeElement.getAttribute('aria-describedby')"
  assert page.evaluate(described) == 'detail'
  page.press('Escape')
  assert page.evaluate(DETAIL) is None
  page.press('End')
  assert page.evaluate(DETAIL)[:3] == [
      '“</s>”: draft accepted', 'target p 1.00', 'draft q n/a'
  ]
  # One stop a text: Tab goes on to the next one.
  page.press('Tab')
  assert page.evaluate(FOCUSED) == 'a'


def test_texts_from_right_to_left(opened, tmp_path):
  """Tokens stand in the order of reading, and arrows go where they point."""
  records = copy.deepcopy(RECORDS[:1])
  records[0]['trace'][0].update(
      pieces=[' \u05e9\u05dc', ' \u05d5\u05dd'], next_piece='\u05d0'
  )
  page, _ = opened
  page.resize(360, 740)
  page.open(write(tmp_path, records).as_uri())
  tab_to_a_token(page)
  left = 'document.activeElement.getBoundingClientRect().left'
  first = page.evaluate(left)
  page.press('ArrowLeft')
  assert page.evaluate(FOCUSED) == '\u05d5\u05dd'
  assert page.evaluate(left) < first


def test_the_mouse_shows_the_detail_and_lights_the_round(page):
  x, y = page.evaluate(
      "(() => { const token = document.querySelector('.text .rejected');"
      'token.scrollIntoView(); const box = token.getBoundingClientRect();'
      'return [box.left + 5, box.top + 5]; })()'
  )
  page.point(x, y)
  assert page.evaluate(DETAIL)[1] == 'target p 0.125'
  lit = (
      "[...document.querySelectorAll('rect.lit')].map(r => r.dataset.round + "
      "r.classList[0])"
  )
  assert page.evaluate(lit) == ['1draft', '1draft', '1verify']
  page.press('Escape')
  assert page.evaluate(lit) == []


@pytest.mark.parametrize('width', [320, 360, 1280])
def test_nothing_is_wider_than_the_window(page, width):
  page.resize(width, 740)
  tab_to_a_token(page)
  page.evaluate("document.querySelectorAll('details').forEach(d => d.open = 1)")
  page.evaluate("document.getElementById('apart').click()")
  assert page.evaluate('document.documentElement.scrollWidth') <= width
  wide = (
      "[...document.querySelectorAll('body *')].filter(e => "
      'e.getBoundingClientRect().right > document.documentElement.clientWidth '
      '+ 0.5).map(e => e.outerHTML.slice(0, 80))'
  )
  assert page.evaluate(wide) == []
  rounds = "[...document.querySelectorAll('.round')].map(r => r.offsetLeft)"
  assert len(set(page.evaluate(rounds))) == 1


# How well a text is seen before its own ground, by WCAG's formula.
CONTRAST = """
(() => {
  const linear = x => {
    x /= 255;
    return x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  };
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(linear);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = e => {
    const colour = getComputedStyle(e).backgroundColor;
    return colour === 'rgba(0, 0, 0, 0)' ? ground(e.parentElement) : colour;
  };
  return [...document.querySelectorAll('p, dd, dt, th, td, li, .token')].map(
    e => [light(getComputedStyle(e).color), light(ground(e))].sort(
      (a, b) => b - a)).map(([a, b]) => (a + .05) / (b + .05));
})()
"""


@pytest.mark.parametrize('dark', [False, True])
def test_all_text_has_contrast(page, dark):
  page.resize(360, 740, dark)
  found = page.evaluate(CONTRAST)
  assert len(found) > 50 and min(found) >= 4.5
  ground = page.evaluate('getComputedStyle(document.body).backgroundColor')
  assert (ground == 'rgb(18, 22, 28)') == dark
