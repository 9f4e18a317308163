# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
r"""Trains the demo pair: English to German help texts, target and draft.

Stages, in order; each continues where an interrupted run of it stopped:

  python scripts/train_demo.py data --work out/demo
  python scripts/train_demo.py train --work out/demo --model target
  python scripts/train_demo.py train --work out/demo --model draft
  python scripts/train_demo.py train --work out/demo --model draft \
      --teacher target --start draft --folder draft_distilled --minutes 8
  python scripts/train_demo.py compare --work out/demo \
      --drafts draft draft_distilled
  python scripts/train_demo.py bigrams --work out/demo
  python scripts/train_demo.py export --work out/demo --draft draft_distilled
  python scripts/train_demo.py evaluate --work out/demo --draft draft_distilled

`data` needs a Debian machine with package lists, or the help pages already
unpacked under --raw. With --minutes the learning rate follows the clock; with
--steps the same command gives the same weights again.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

from demo_training import batches
from demo_training import card
from demo_training import data
from demo_training import evaluate
from demo_training import export
from demo_training import sizes
from demo_training import states
from demo_training import train
from demo_training import vocabulary
import jax

from t5x_specdec.cli import exits
from t5x_specdec.drafts import ngram
from t5x_specdec.vocabulary import EOS_ID
from t5x_specdec.vocabulary import Vocabulary


def _encoded(args, split):
  pieces = vocabulary.load(args.work / 'vocabulary.model')
  pairs = data.read_pairs(args.work / f'{split}.tsv')
  return batches.encode(pairs, pieces)


def make_data(args: argparse.Namespace) -> None:
  """Writes train.tsv, dev.tsv, test.tsv, vocabulary.model and counts.json."""
  args.work.mkdir(parents=True, exist_ok=True)
  pages, counts = data.align(data.obtain(args.raw or args.work / 'raw'))
  pairs = data.prepare(
      pages, train_words=args.train_words, held_out_words=args.held_out_words
  )
  path = args.work / 'vocabulary.model'
  vocabulary.learn(pairs['train'], path, args.vocab_size)
  pieces = vocabulary.load(path)
  for split in data.SPLITS:
    kept = vocabulary.within(
        pairs[split], pieces, sizes.CONTEXT, split_longer=split == 'train'
    )
    data.write_pairs(args.work / f'{split}.tsv', kept)
    lengths = [
        sum(len(target) for _, target in batches.encode(kept, pieces)),
        sum(len(english.split()) for english, _ in kept),
        sum(len(german.split()) for _, german in kept),
    ]
    for name, total in zip(
        ('target tokens', 'English words', 'German words'), lengths, strict=True
    ):
      counts[f'{split} {name}'] = total
    counts[f'{split} pairs'] = len(kept)
  states.write_text(
      args.work / 'counts.json', json.dumps(counts, indent=2) + '\n'
  )
  print(json.dumps(counts, indent=2))


def run_training(args: argparse.Namespace) -> None:
  """Trains --model, from its checkpoint where there is one."""
  pieces = vocabulary.load(args.work / 'vocabulary.model')
  rows = vocabulary.embedding_rows(pieces)
  config = sizes.config(args.model, rows)
  fields = {field.name for field in dataclasses.fields(train.Recipe)}
  recipe = train.Recipe(
      **{k: v for k, v in vars(args).items() if k in fields}
  )
  teacher = start = None
  if args.teacher:
    params, _ = states.load_params(args.work / args.teacher / 'best.npz')
    teacher = sizes.config('target', rows), params
  if args.start:
    start, _ = states.load_params(args.work / args.start / 'best.npz')
  folder = args.work / (args.folder or args.model)
  trainer = train.Trainer(config, recipe, folder, teacher, start)
  described = {name: getattr(args, name) for name in sorted(fields)}
  for name in ('batch_tokens', 'teacher', 'start'):
    described[name] = getattr(args, name)
  states.write_text(
      folder / 'recipe.json', json.dumps(described, indent=2) + '\n'
  )
  train_batches, dev_batches = (
      batches.Batches(
          _encoded(args, split), tokens=args.batch_tokens, seed=args.seed
      )
      for split in ('train', 'dev')
  )
  trainer.run(train_batches, dev_batches)


def count_bigrams(args: argparse.Namespace) -> None:
  """Writes bigrams.npz, of the training pairs' German."""
  words = Vocabulary(args.work / 'vocabulary.model')
  texts = [
      [*words.encode(german), EOS_ID]
      for _, german in data.read_pairs(args.work / 'train.tsv')
  ]
  draft, params = ngram.count(texts, words.size, 2)
  path = args.work / 'bigrams.npz'
  ngram.save(path, ngram.Table(draft, params, words.fingerprint))
  print(f'{len(params["tokens"]):,} n-grams, {path.stat().st_size:,} bytes')


def run_export(args: argparse.Namespace) -> None:
  """Writes T5X checkpoints, vocabulary and test set to --out."""
  sources = {'target': args.target, 'draft': args.draft}
  export.export(
      args.work,
      args.out or args.work / 'export',
      {model: sources[model] for model in args.models},
      args.which,
      args.export_dtype,
      ('vocabulary.model', 'bigrams.npz', 'test.tsv'),
  )


def run_compare(args: argparse.Namespace) -> None:
  """Prints the alphas of --drafts on dev, to choose one of them by."""
  found = evaluate.compare_drafts(args.work, args.target, args.drafts)
  print(json.dumps(found, indent=2))


def run_evaluate(args: argparse.Namespace) -> None:
  """Measures the exported pair; writes WORK/measured.json and its CARD.md."""
  out = args.out or args.work / 'export'
  folders = {'target': args.target, 'draft': args.draft}
  found = evaluate.measure(args.work, out, folders)
  found['machine'] = card.machine()
  states.write_text(
      args.work / 'measured.json',
      json.dumps(found, indent=2, ensure_ascii=False) + '\n',
  )
  states.write_text(out / 'CARD.md', card.write(found))
  print(card.write(found))


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  stages = parser.add_subparsers(dest='stage', required=True)

  def stage(name, function):
    sub = stages.add_parser(name, help=function.__doc__)
    sub.set_defaults(function=function)
    sub.add_argument(
        '--work', type=pathlib.Path, required=True, help='folder of all results'
    )
    return sub

  sub = stage('data', make_data)
  sub.add_argument(
      '--raw',
      type=pathlib.Path,
      help='folder to download and unpack the help packages in',
  )
  sub.add_argument('--vocab_size', type=int, default=4096)
  sub.add_argument('--train_words', type=int, default=1)
  sub.add_argument('--held_out_words', type=int, default=4)

  sub = stage('train', run_training)
  sub.add_argument('--model', choices=sizes.MODELS, required=True)
  sub.add_argument('--folder', help='below --work; the name of the model')
  sub.add_argument(
      '--batch_tokens', type=int, default=320, help='target slots of a batch'
  )
  sub.add_argument(
      '--teacher', help='folder of the target whose law is to be learned'
  )
  sub.add_argument(
      '--start', help='folder of the training to start from the best of'
  )
  for field in dataclasses.fields(train.Recipe):
    sub.add_argument(
        f'--{field.name}', type=type(field.default), default=field.default
    )

  stage('bigrams', count_bigrams)

  sub = stage('export', run_export)
  sub.add_argument('--models', nargs='+', default=sizes.MODELS)
  sub.add_argument('--which', choices=('best', 'latest'), default='best')
  sub.add_argument('--export_dtype', default='bfloat16')
  stage('evaluate', run_evaluate)
  sub = stage('compare', run_compare)
  sub.add_argument('--drafts', nargs='+', default=['draft'])
  sub.add_argument('--target', default='target')
  for name in ('export', 'evaluate'):
    sub = stages.choices[name]
    sub.add_argument('--out', type=pathlib.Path, help='instead of WORK/export')
    for model in sizes.MODELS:
      sub.add_argument(
          f'--{model}', default=model, help='folder of its training in --work'
      )
  return parser


def main(args: argparse.Namespace) -> None:
  jax.config.update('jax_compilation_cache_dir', str(args.work / 'cache'))
  args.function(args)


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
