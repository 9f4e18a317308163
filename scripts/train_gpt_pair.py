# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
r"""Trains a small GPT-like pair on English text: a target and a 16x smaller draft.

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
import json
import pathlib

from demo_training import batches
from demo_training import export
from demo_training import sizes
from demo_training import train
from demo_training import vocabulary
import jax

from t5x_specdec import parameters
from t5x_specdec.cli import lines
from t5x_specdec.drafts import ngram
from t5x_specdec.vocabulary import Vocabulary

_HELD_OUT = 50
_PIECES = 2048
_CONFIGS = {
    name: parameters.T5Config(
        vocab_size=_PIECES,
        num_encoder_layers=0,
        mlp_activations=('gelu', 'linear'),
        logits_via_embedding=True,
        **shape,
    )
    for name, shape in {
        'target': {
            'emb_dim': 256,
            'num_heads': 4,
            'head_dim': 64,
            'num_decoder_layers': 4,
            'mlp_dim': 512,
        },
        'draft': {
            'emb_dim': 64,
            'num_heads': 2,
            'head_dim': 32,
            'num_decoder_layers': 1,
            'mlp_dim': 256,
        },
    }.items()
}


def _encoded(args: argparse.Namespace) -> list[tuple[list[int], list[int]]]:
  """Nothing and the ids of each passage, EOS last; learns the vocabulary."""
  texts = list(dict.fromkeys(filter(None, lines.read(args.text, '--text'))))
  path = args.work / 'vocabulary.model'
  if not path.exists():
    vocabulary.learn([(text,) for text in texts], path, _PIECES)
  passages = [
      [*ids, vocabulary.EOS_ID] for ids in vocabulary.load(path).encode(texts)
  ]
  return [([], ids) for ids in passages if len(ids) <= sizes.CONTEXT]


def main() -> None:
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
      default=(20.0, 8.0),
      metavar=('TARGET', 'DRAFT'),
      help='wall time to train each of them',
  )
  parser.add_argument(
      '--batch_tokens', type=int, default=768, help='slots of a batch'
  )
  args = parser.parse_args()
  args.work.mkdir(parents=True, exist_ok=True)
  jax.config.update('jax_compilation_cache_dir', str(args.work / 'cache'))

  encoded = _encoded(args)
  splits = {
      'train': [x for i, x in enumerate(encoded) if i % _HELD_OUT],
      'dev': encoded[::_HELD_OUT],
  }
  counts = {
      f'{name} {what}': total
      for name, texts in splits.items()
      for what, total in (
          ('passages', len(texts)),
          ('tokens', sum(len(ids) for _, ids in texts)),
      )
  }
  for name, minutes in zip(_CONFIGS, args.minutes):
    counts[f'{name} parameters'] = sizes.count(_CONFIGS[name])
    recipe = train.Recipe(minutes=minutes, word_dropout=0.0)
    trainer = train.Trainer(_CONFIGS[name], recipe, args.work / name)
    trainer.run(*(
        batches.Batches(texts, tokens=args.batch_tokens, seed=recipe.seed)
        for texts in splits.values()
    ))
    counts[f'{name} steps'] = trainer.step
    counts[f'{name} dev loss'] = float(trainer.best)
  (args.work / 'counts.json').write_text(json.dumps(counts, indent=2) + '\n')
  print(json.dumps(counts, indent=2))

  words = Vocabulary(args.work / 'vocabulary.model')
  draft, params = ngram.count(
      [ids for _, ids in splits['train']], words.size, 2
  )
  ngram.save(
      args.work / 'bigrams.npz', ngram.Table(draft, params, words.fingerprint)
  )
  export.export(
      args.work,
      args.work / 'export',
      {name: name for name in _CONFIGS},
      'best',
      'float32',
      ('vocabulary.model', 'bigrams.npz'),
  )


if __name__ == '__main__':
  main()
