# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec demo`: the pair that ships with the package, at work.

English to German by two small models trained on LibreOffice's help, each text
shown as in the paper's Figure 1.
"""

from __future__ import annotations

import argparse
import json
import random
from typing import Any

from rich.console import Console
from rich.text import Text

from t5x_specdec import theory
from t5x_specdec.cli import options
from t5x_specdec.cli import runner
from t5x_specdec.cli import setup
from t5x_specdec.drafts import kinds
from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.pair import DEMO_TABLE
from t5x_specdec.vocabulary import EOS_ID
from t5x_specdec.vocabulary import Vocabulary

# What stood, what did not, and what the target put in its place.
_STYLES = {
    'accepted': ('green', '{}'),
    'rejected': ('red strike', '[-{}-]'),
    'target': ('bold blue', '{{{}}}'),
}


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'demo',
      help='translate with the pair that ships with the package',
      description=(
          'Translates held-out sentences of LibreOffice Help, or your own, '
          'from English to German, one at a time, and compares with the '
          'target alone. Accepted drafts are green, rejected ones red and '
          "struck, the target's own tokens blue; without colours [-rejected-] "
          'and {target}.'
      ),
  )
  parser.add_argument(
      '--draft',
      choices=[kind for kind in kinds.KINDS if kind != 'ngram'],
      default='model',
      help='where drafts come from: the small model, n-grams of German help '
      'texts, what the text or the sentence said before (lookup), or lookup '
      'and then the model (default: %(default)s)',
  )
  options.add_sampling(parser)
  options.add_calibration(parser)
  # The best of 1 to 5 for this pair on a CPU, see README.
  parser.set_defaults(gamma=2)
  parser.add_argument(
      '--trace',
      action='store_true',
      help='measure how long the parts of a decode take here, too; with --json '
      '`report` reads what is printed',
  )
  group = parser.add_argument_group('input')
  group.add_argument(
      '--text',
      action='append',
      metavar='ENGLISH',
      help='a sentence of your own; may be given several times',
  )
  group.add_argument(
      '--n',
      type=int,
      default=5,
      help='held-out sentences, drawn at random by --seed (default: '
      '%(default)s)',
  )
  return parser


def held_out(count: int, seed: int) -> list[tuple[str, str]]:
  """Random English and German sentences that the pair was not trained on.

  Args:
    count: how many.
    seed: which.

  Returns:
    Pairs of a source and a human translation.
  """
  lines = (DEMO_PAIR / 'test.tsv').read_text(encoding='utf-8').splitlines()
  if not 1 <= count <= len(lines):
    raise ValueError(f'--n must be in [1, {len(lines)}], got {count}')
  chosen = random.Random(seed).sample(lines, count)
  return [(line.split('\t')[0], line.split('\t')[1]) for line in chosen]


def draft_arguments(kind: str) -> dict[str, Any]:
  """What `options.draft_choice` reads, for the pair's own draft of a kind."""
  of_model, of_table = kind in kinds.OF_MODEL, kind in kinds.OF_TABLE
  return {
      'draft': kind,
      'draft_checkpoint': DEMO_PAIR / 'draft' if of_model else None,
      'draft_table': DEMO_TABLE if of_table else None,
  }


def setup_arguments(kind: str) -> dict[str, Any]:
  """What `setup.load` reads, for the pair and its own draft of a kind."""
  return {
      **draft_arguments(kind),
      'target': DEMO_PAIR / 'target',
      'vocabulary': DEMO_PAIR / 'vocabulary.model',
      'draft_vocabulary': None,
      'dtype': 'float32',
      'batch_size': 1,
      'max_input_len': 64,
      'max_decode_len': 96,
  }


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  if args.text:
    sources = [(text, None) for text in args.text]
  else:
    sources = held_out(args.n, args.seed)
  job = argparse.Namespace(
      **(vars(args) | setup_arguments(args.draft) | {'trace': True}),
      num_decodes=1,
      compare=True,
      # Few sentences, of some 30 ms each: one interruption would show.
      repeats=3,
      times=args.trace,
  )
  console = Console(stderr=args.json, highlight=False)
  pair = setup.load(job)
  runner.check(pair, job)
  references = dict(sources)
  examples = []

  def show(record: dict[str, Any]) -> None:
    record['reference'] = references[record['input']]
    examples.append(record)
    colour = bool(console.color_system)
    console.print(_rendered(record, pair.vocabulary, colour))

  lines = [source for source, _ in sources]
  summary = runner.decode_lines(pair, lines, job, show)
  c = runner.draft_cost(pair, lines, job, summary)
  summary |= {'draft': args.draft, 'c': c, 'predicted_speedup': None}
  console.print(runner.describe(summary))
  if c is not None and isinstance(args.gamma, int):
    if summary['alpha'] is not None:
      summary['predicted_speedup'] = float(
          theory.walltime_improvement(summary['alpha'], args.gamma, c)
      )
    console.print(
        f'draft step / target step: c = {c:.2f}; Theorem 3.8, which takes a '
        f'block of {args.gamma + 1} tokens for one step, predicts '
        f'{runner.number(summary["predicted_speedup"])}x'
    )
  if args.json:
    print(json.dumps({'summary': summary, 'examples': examples}))
  return 0


def _rendered(
    record: dict[str, Any], vocabulary: Vocabulary, colour: bool
) -> Text:
  """Source, reference and the prediction as in Figure 1."""
  text = Text()
  cut = ' (cut)' if record['truncated'] else ''
  text.append(f'English   {record["input"]}{cut}\n')
  if record['reference'] is not None:
    text.append(f'human     {record["reference"]}\n', style='dim')
  text.append('decoded  ')
  for entry in record['trace']:
    stood = entry['drafted'][: entry['accepted']]
    parts = [('accepted', token) for token in stood]
    if entry['next_token'] is not None:
      parts += [
          ('rejected', token)
          for token in entry['drafted'][len(stood) : len(stood) + 1]
      ]
      parts.append(('target', entry['next_token']))
    for kind, token in parts:
      style, marks = _STYLES[kind]
      piece = '' if token == EOS_ID else vocabulary.piece(token)
      if piece and not colour:
        word = piece.lstrip(' ')
        piece = piece[: len(piece) - len(word)] + marks.format(word)
      text.append(piece, style=style if colour else None)
  aux = record['aux']
  text.append(f'\n          {aux["emitted"]} tokens, {aux["rounds"]} calls\n')
  return text
