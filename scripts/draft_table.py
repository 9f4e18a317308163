# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What each source of drafts is worth, on the text that ships with the demo.

  python scripts/draft_table.py translate --gamma 3
  python scripts/draft_table.py copy --gamma 3 5 10

`translate`: the demo's target and each kind of draft, on all held-out
sentences, at temperature 0 and 1, by the paper's rule.

`copy`: what lookup is worth where the output copies most of the input. The
output is each English sentence as it is, the input the same `bare`, without
capitals and punctuation, or with `typos`, two letters swapped in one of ten
longer words. No model was trained for it: the target is told its text and says
just that. At temperature 0 nothing else of a target counts.
"""

import argparse
import dataclasses
import random
import re
import sys

from demo_training import data
from demo_training import drafting
import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import resampling
from t5x_specdec import speculative_decode
from t5x_specdec.cli import demo
from t5x_specdec.cli import exits
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.drafts import PromptLookup
from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.pair import read_demo_pair
from t5x_specdec.resampling import Estimate
from t5x_specdec.testing import toys
from t5x_specdec.vocabulary import EOS_ID
from t5x_specdec.vocabulary import Vocabulary

_LENGTH = 64


@dataclasses.dataclass(frozen=True)
class _Told(toys.ScriptDecoder):
  """Row i says script i, whatever its input is."""

  def init(self, params, inputs, rows, max_len):
    return jnp.arange(rows)


def _shown(found: Estimate) -> str:
  return f'[{found.low:.2f}, {found.high:.2f}]'


def translate(args: argparse.Namespace) -> None:
  """Prints a row for each kind of draft, temperature and gamma."""
  pair = read_demo_pair()
  print('| temperature | gamma | draft | alpha | | tokens per call | |')
  print('|---|---|---|---|---|---|---|')
  for temperature in (0, 1):
    for gamma in args.gamma:
      for kind in args.drafts:
        table = demo.draft_arguments(kind)['draft_table']
        source = kinds.make(
            kind,
            pair.target.decoder.vocab_size,
            model=(pair.draft.decoder, pair.draft.params),
            table=None if table is None else ngram.load(table),
        )
        found = drafting.measure(
            pair.vocabulary,
            pair.target,
            source,
            gamma=gamma,
            temperature=temperature,
            samples=args.samples if temperature else 1,
        )
        print(
            f'| {temperature} | {gamma} | {kind} | {found.alpha.value:.3f} '
            f'| {_shown(found.alpha)} | {found.tokens_per_call.value:.3f} '
            f'| {_shown(found.tokens_per_call)} |',
            flush=True,
        )


def _bare(text: str) -> str:
  """A text without capitals and punctuation."""
  return ' '.join(re.sub(r'[^\w\s]', ' ', text.lower()).split())


def _with_typos(text: str) -> str:
  """A text with two letters swapped here and there, always the same ones."""
  rng = random.Random(text)

  def spoil(word):
    letters = list(word[0])
    at = rng.randrange(1, len(letters) - 2)
    if rng.random() < 0.1:
      letters[at : at + 2] = letters[at + 1], letters[at]
    return ''.join(letters)

  return re.sub(r'\w{4,}', spoil, text)


def _padded(rows: list[list[int]]) -> np.ndarray:
  found = np.zeros([len(rows), _LENGTH], np.int32)
  for place, row in zip(found, rows):
    place[: len(row)] = row
  return found


def copy(args: argparse.Namespace) -> None:
  """Prints what lookup is worth where the text copies its input."""
  words = Vocabulary(DEMO_PAIR / 'vocabulary.model')
  sentences = [text for text, _ in data.read_pairs(DEMO_PAIR / 'test.tsv')]
  print('| input | gamma | sentences | alpha | tokens per call | |')
  print('|---|---|---|---|---|---|')
  for name, spoilt in (('bare', _bare), ('typos', _with_typos)):
    pairs = [
        [[*words.encode(side), EOS_ID] for side in (spoilt(text), text)]
        for text in sentences
    ]
    pairs = [pair for pair in pairs if max(map(len, pair)) <= _LENGTH]
    inputs, texts = (_padded([pair[i] for pair in pairs]) for i in (0, 1))
    for gamma in args.gamma:
      result = speculative_decode(
          _Told(words.size),
          PromptLookup(),
          {'script': texts},
          {},
          inputs,
          max_decode_len=_LENGTH,
          gamma=gamma,
          temperature=0.0,
      )
      assert np.array_equal(result.tokens[:, 0], texts)
      stats = jax.tree.map(lambda x: np.asarray(x)[:, 0], result.stats)
      alpha = stats.summary()['alpha']
      tokens = resampling.ratio(stats.emitted, stats.rounds)
      print(
          f'| {name} | {gamma} | {len(pairs)} | {alpha:.3f} '
          f'| {tokens.value:.2f} | {_shown(tokens)} |'
      )


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  stages = parser.add_subparsers(dest='task', required=True)
  for function, gammas in ((translate, [3]), (copy, [3, 5, 10])):
    sub = stages.add_parser(function.__name__, help=function.__doc__)
    sub.set_defaults(function=function)
    sub.add_argument('--gamma', type=int, nargs='+', default=gammas)
  sub = stages.choices['translate']
  sub.add_argument('--samples', type=int, default=1, help='at temperature 1')
  sub.add_argument(
      '--drafts',
      nargs='+',
      choices=kinds.KINDS,
      default=['unigram', 'bigram', 'lookup', 'model'],
  )
  return parser


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), lambda args: args.function(args)))
