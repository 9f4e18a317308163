# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""English-German help paragraphs: obtained, aligned, filtered, split by page.

The pages of Debian's LibreOffice Help packages (MPL-2.0) carry the same
paragraph ids in every language, and a human wrote each translation.
"""

import collections
import hashlib
from html import parser
import pathlib
import re
import shutil
import subprocess

from demo_training import states

PACKAGES = ('libreoffice-help-en-us', 'libreoffice-help-de')
HELP = pathlib.Path('usr/share/libreoffice/help')
LANGUAGES = ('en-US', 'de')
TEST_SHARE = 0.03
DEV_SHARE = 0.02
SPLITS = ('train', 'dev', 'test')

_VOID = frozenset({'br', 'img', 'meta', 'input', 'link', 'hr', 'col', 'source'})
_SENTENCE_END = re.compile(r'(?<=[a-zäöüß)“"][.!?:]) (?=[A-ZÄÖÜ„"])')

Pair = tuple[str, str]


def obtain(root: pathlib.Path) -> pathlib.Path:
  """Unpacks both help packages under `root`, unless they are there already.

  Args:
    root: folder to download to and to unpack in.

  Returns:
    The folder that holds one folder of pages per language.

  Raises:
    RuntimeError: if a package cannot be downloaded or unpacked.
  """
  folder = root / HELP
  missing = [x for x in LANGUAGES if not (folder / x / 'text').is_dir()]
  if not missing:
    return folder
  folder.mkdir(parents=True, exist_ok=True)
  part = root / 'part'  # what stands in `folder` is whole
  shutil.rmtree(part, ignore_errors=True)
  try:
    subprocess.run(['apt-get', 'download', *PACKAGES], cwd=root, check=True)
    for package in PACKAGES:
      archive = max(root.glob(f'{package}_*.deb'))
      subprocess.run(['dpkg-deb', '-x', str(archive), str(part)], check=True)
    for code in missing:
      (part / HELP / code).rename(folder / code)
    shutil.rmtree(part)
  except (OSError, ValueError, subprocess.CalledProcessError) as error:
    raise RuntimeError(
        f'cannot obtain {" ".join(PACKAGES)} into {root}: {error}. This needs '
        'Debian with package lists (run apt-get update), or the pages already '
        f'unpacked under {folder}.'
    ) from error
  return folder


class _Paragraphs(parser.HTMLParser):
  """Collects the text of every element whose id names a paragraph.

  Where a page offers a text for Mac beside the one for the rest, only the one
  for the rest is read.
  """

  def __init__(self):
    super().__init__(convert_charrefs=True)
    self.found: dict[str, str] = {}
    self._id = ''
    self._open: list[tuple[str, bool]] = []  # tag, whether its text counts
    self._text: list[str] = []

  def handle_starttag(self, tag, attrs):
    values = dict(attrs)
    name = values.get('id') or ''
    if not self._id and name.startswith(('par_id', 'hd_id')):
      self._id, self._open, self._text = name, [(tag, True)], []
    elif self._id and tag in _VOID:
      self._text.append(' ')
    elif self._id:
      counts = self._open[-1][1] and values.get('class') != 'MAC'
      self._open.append((tag, counts))

  def handle_endtag(self, tag):
    if not any(tag == name for name, _ in self._open):
      return
    while self._open.pop()[0] != tag:
      pass
    if not self._open:
      self.found.setdefault(self._id, ' '.join(''.join(self._text).split()))
      self._id = ''

  def handle_data(self, data):
    if self._id and self._open[-1][1]:
      self._text.append(data)


def paragraphs(page: pathlib.Path) -> dict[str, str]:
  """Returns the text of each paragraph of a page, by the paragraph's id."""
  reader = _Paragraphs()
  reader.feed(page.read_text(encoding='utf-8'))
  return reader.found


def letter_share(text: str) -> float:
  """Returns which share of the characters, spaces apart, are letters."""
  solid = text.replace(' ', '')
  return sum(map(str.isalpha, solid)) / max(len(solid), 1)


def is_translation(english: str, german: str, words: int) -> bool:
  """Says whether a pair looks like prose and its translation.

  Args:
    english: the source text.
    german: the target text.
    words: the least number of German words.
  """
  lengths = len(english), len(german)
  return (
      english != german
      and min(lengths) > 0
      and 0.5 <= lengths[0] / lengths[1] <= 2.0
      and min(letter_share(english), letter_share(german)) >= 0.75
      and len(german.split()) >= words
  )


def sentences(english: str, german: str) -> list[Pair]:
  """Splits a pair into sentence pairs, if both sides have equally many."""
  sides = [_SENTENCE_END.split(text) for text in (english, german)]
  if len(sides[0]) != len(sides[1]):
    return []
  return list(zip(*sides))


def split_of(page: str) -> str:
  """Returns the split of a page, from a hash of its path within the help."""
  digest = hashlib.sha256(page.encode()).digest()
  share = int.from_bytes(digest[:8], 'big') / 2**64
  if share < TEST_SHARE:
    return 'test'
  return 'dev' if share < TEST_SHARE + DEV_SHARE else 'train'


def _key(text: str) -> str:
  """What two texts share that differ in case, digits or punctuation only."""
  return re.sub(r'[\W\d_]+', ' ', text.casefold()).strip()


def align(folder: pathlib.Path) -> tuple[dict[str, list[Pair]], dict[str, int]]:
  """Aligns the paragraphs of every page that both languages have.

  Args:
    folder: the folder that holds `en-US/text` and `de/text`.

  Returns:
    The pairs of each split, in page order, and the counts on the way.
  """
  pairs = {split: [] for split in SPLITS}
  counts = collections.Counter()
  distinct = set()
  root = folder / 'en-US' / 'text'
  for page in sorted(root.rglob('*.html')):
    name = page.relative_to(root).as_posix()
    other = folder / 'de' / 'text' / name
    if not other.exists():
      continue
    german = paragraphs(other)
    split = split_of(name)
    counts[f'{split} pages'] += 1
    for key, text in paragraphs(page).items():
      if key in german:
        counts['aligned'] += 1
        if text != german[key]:
          distinct.add((text, german[key]))
          pairs[split].append((text, german[key]))
  counts['distinct pairs that differ'] = len(distinct)
  return pairs, dict(counts)


def prepare(
    pairs: dict[str, list[Pair]], *, train_words: int, held_out_words: int
) -> dict[str, list[Pair]]:
  """Filters and deduplicates the splits, and keeps them apart.

  A training pair goes when either of its sides occurs in dev or test, case,
  digits and punctuation apart: help pages share whole paragraphs.

  Args:
    pairs: the aligned pairs of each split.
    train_words: the least number of German words of a training pair.
    held_out_words: the least number of German words of a held-out pair.

  Returns:
    The remaining pairs of each split, in the order they came.
  """
  result = {}
  taken = set()
  for split in reversed(SPLITS):
    words = train_words if split == 'train' else held_out_words
    kept, sources = [], set()
    for english, german in pairs[split]:
      if not is_translation(english, german, words):
        continue
      keys = ('en', _key(english)), ('de', _key(german))
      if taken.intersection(keys) or english in sources:
        continue
      sources.add(english)
      kept.append((english, german))
    # A pair under the filter's limits still shows its text: keep it apart too.
    if split != 'train':
      for english, german in pairs[split]:
        taken.update((('en', _key(english)), ('de', _key(german))))
    result[split] = kept
  return result


def write_pairs(path: pathlib.Path, pairs: list[Pair]) -> None:
  """Writes one pair a line: English, a tab, German."""
  text = ''.join(f'{english}\t{german}\n' for english, german in pairs)
  states.write_text(path, text)


def read_pairs(path: pathlib.Path) -> list[Pair]:
  """Reads what `write_pairs` wrote."""
  pairs = []
  for number, line in enumerate(path.read_text('utf-8').split('\n'), start=1):
    if not line:
      continue
    sides = line.split('\t')
    if len(sides) != 2:
      raise ValueError(f'{path}:{number}: {len(sides)} columns, expected 2')
    pairs.append((sides[0], sides[1]))
  return pairs
