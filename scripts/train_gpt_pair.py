# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
r"""Trains a GPT-like pair on English text: a target and a 16x smaller draft.

  apt-get download bible-kjv bible-kjv-text
  for deb in bible-kjv*.deb; do dpkg-deb -x $deb bible; done
  bible/usr/bin/bible -p bible/usr/lib -f gen1:1-rev22:21 \
    | cut -d ' ' -f 2- > english.txt
  python scripts/train_gpt_pair.py --text english.txt --work out/gpt
  t5x-specdec tables --only 3 --gpt_pair out/gpt/export

Both are decoder-only and say texts like those given from nothing but the start
token, as the pair of the paper's Figure 1 does. Any UTF-8 text with one passage
a line will do; passages of more than 63 tokens are left out, and every 50th is
held out. The draft has a sixteenth of the target's parameters, all matrices and
the embedding counted. An interrupted run is gone on with.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

from demo_training import batches
from demo_training import export
from demo_training import sizes
from demo_training import states
from demo_training import train
from demo_training import vocabulary
import jax

from t5x_specdec import parameters
from t5x_specdec.cli import exits
from t5x_specdec.cli import lines
from t5x_specdec.drafts import ngram
from t5x_specdec.vocabulary import Vocabulary

_HELD_OUT = 50
_PIECES = 2048
_TARGET = parameters.T5Config(
    vocab_size=_PIECES,
    emb_dim=256,
    num_heads=4,
    num_encoder_layers=0,
    num_decoder_layers=4,
    head_dim=64,
    mlp_dim=512,
    mlp_activations=('gelu', 'linear'),
    logits_via_embedding=True,
)
_DRAFT = dataclasses.replace(
    _TARGET,
    emb_dim=64,
    num_heads=2,
    num_decoder_layers=1,
    head_dim=32,
    mlp_dim=256,
)
_CONFIGS = {'target': _TARGET, 'draft': _DRAFT}


def _passages(args: argparse.Namespace) -> dict[str, list[int]]:
  """Ids of each passage, EOS last, by its text; learns the vocabulary."""
  texts = list(dict.fromkeys(filter(None, lines.read(args.text, '--text'))))
  path = args.work / 'vocabulary.model'
  if not path.exists():
    vocabulary.learn([(text,) for text in texts], path, _PIECES)
  passages = {
      text: [*ids, vocabulary.EOS_ID]
      for text, ids in zip(texts, vocabulary.load(path).encode(texts))
  }
  return {k: ids for k, ids in passages.items() if len(ids) <= sizes.CONTEXT}


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument(
      '--text', required=True, help='English, one passage a line'
  )
  parser.add_argument(
      '--work', type=pathlib.Path, required=True, help='folder of all results'
  )
  parser.add_argument(
      '--minutes',
      type=float,
      nargs=2,
      default=(28.0, 10.0),
      metavar=('TARGET', 'DRAFT'),
      help='wall time to train each of them',
  )
  parser.add_argument(
      '--steps',
      type=int,
      nargs=2,
      default=(0, 0),
      metavar=('TARGET', 'DRAFT'),
      help='steps instead, which give the same weights each time; 0: minutes',
  )
  parser.add_argument(
      '--batch_tokens', type=int, default=512, help='slots of a batch'
  )
  return parser


def _train(
    args: argparse.Namespace, splits: dict[str, list[list[int]]]
) -> dict[str, float]:
  """Trains both models and says how it went."""
  counts = {}
  for name, minutes, steps in zip(_CONFIGS, args.minutes, args.steps):
    recipe = train.Recipe(minutes=minutes, steps=steps, word_dropout=0.0)
    trainer = train.Trainer(_CONFIGS[name], recipe, args.work / name)
    trainer.run(*(
        batches.Batches(
            [([], ids) for ids in texts],
            tokens=args.batch_tokens,
            seed=recipe.seed,
        )
        for texts in splits.values()
    ))
    counts[f'{name} parameters'] = sizes.count(_CONFIGS[name])
    counts[f'{name} steps'] = trainer.step
    counts[f'{name} dev loss'] = float(trainer.best)
  return counts


def main(args: argparse.Namespace) -> None:
  args.work.mkdir(parents=True, exist_ok=True)
  jax.config.update('jax_compilation_cache_dir', str(args.work / 'cache'))

  passages = _passages(args)
  held_out = list(passages)[::_HELD_OUT]
  # A held-out text stands where the demo pair has its English and German.
  states.write_text(
      args.work / 'test.tsv', ''.join(f'{x}\n' for x in held_out)
  )
  splits = {
      'train': [passages[x] for i, x in enumerate(passages) if i % _HELD_OUT],
      'dev': [passages[x] for x in held_out],
  }
  counts: dict[str, float] = {}
  for name, texts in splits.items():
    counts[f'{name} passages'] = len(texts)
    counts[f'{name} tokens'] = sum(map(len, texts))
  counts |= _train(args, splits)
  states.write_text(
      args.work / 'counts.json', json.dumps(counts, indent=2) + '\n'
  )
  print(json.dumps(counts, indent=2))

  words = Vocabulary(args.work / 'vocabulary.model')
  draft, params = ngram.count(splits['train'], words.size, 2)
  ngram.save(
      args.work / 'bigrams.npz', ngram.Table(draft, params, words.fingerprint)
  )
  export.export(
      args.work,
      args.work / 'export',
      {name: name for name in _CONFIGS},
      'best',
      'float32',
      ('vocabulary.model', 'bigrams.npz', 'test.tsv'),
  )


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
