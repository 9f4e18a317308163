# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Both rules of verification beside each other, on the demo pair, sampling.

Tokens per target call of every held-out sentence, at temperature 1, by
`verification='token'` and by `'block'`; intervals are 95%, by resampling
sentences:

  python scripts/compare_rules.py --gamma 3 5 7 --samples 4

With --time, for an idle machine, the time of a round instead, batch 1, the
rules taking turns sentence by sentence: of the rounds after the first, so that
what a call takes before them does not count for the rule with fewer rounds.
"""

import argparse
import sys
import time

from demo_training import drafting
from demo_training.translate import by_model
import jax
import numpy as np

from t5x_specdec import speculative_decode
from t5x_specdec.cli import demo
from t5x_specdec.cli import exits
from t5x_specdec.pair import Pair
from t5x_specdec.pair import read_demo_pair
from t5x_specdec.vocabulary import EOS_ID

_RULES = ('token', 'block')
# One length for all sentences, so that nothing compiles while time is taken.
_INPUT_LEN, _OUTPUT_LEN = 64, 64


def _times(pair: Pair, gamma: int, sentences: int, repeats: int) -> None:
  """Prints milliseconds per round of both rules, and their ratio."""
  lines = [source for source, _ in demo.held_out(sentences, 0)]
  inputs = np.zeros([sentences, 1, _INPUT_LEN], np.int32)
  for row, line in zip(inputs[:, 0], lines):
    ids = pair.vocabulary.encode(line)[: _INPUT_LEN - 1] + [EOS_ID]
    row[: len(ids)] = ids

  def decode(rule: str, i: int, steps: int = _OUTPUT_LEN) -> int:
    result = speculative_decode(
        pair.target.decoder,
        pair.draft.decoder,
        pair.target.params,
        pair.draft.params,
        inputs[i],
        gamma=gamma,
        max_decode_len=_OUTPUT_LEN,
        max_decode_steps=steps,
        temperature=1.0,
        topk=0,
        rng=jax.random.key(i),
        verification=rule,
    )
    return int(result.stats.rounds[0, 0])

  for rule in _RULES:
    decode(rule, 0)  # compiles
  ratios, medians = [], []
  for _ in range(repeats):
    per_round = {rule: [0.0, 0] for rule in _RULES}
    for i in range(sentences):
      for rule in _RULES if i % 2 else _RULES[::-1]:
        start = time.perf_counter()
        decode(rule, i, steps=1)
        first = time.perf_counter()
        rounds = decode(rule, i)
        end = time.perf_counter()
        per_round[rule][0] += (end - first) - (first - start)
        per_round[rule][1] += rounds - 1
    found = [1e3 * per_round[rule][0] / per_round[rule][1] for rule in _RULES]
    medians.append(found)
    ratios.append(found[1] / found[0])
  token, block = np.median(medians, axis=0)
  print(
      f'| {gamma} | {token:.3f} | {block:.3f} | {np.median(ratios):.3f} '
      f'| {min(ratios):.3f} to {max(ratios):.3f} |',
      flush=True,
  )


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--gamma', type=int, nargs='+', default=[3, 5, 7])
  parser.add_argument('--samples', type=int, default=4, help='per sentence')
  parser.add_argument('--time', action='store_true', help='see above')
  parser.add_argument('--sentences', type=int, default=60, help='for --time')
  parser.add_argument('--repeats', type=int, default=7, help='for --time')
  return parser


def main(args: argparse.Namespace) -> None:
  pair = read_demo_pair()
  if args.time:
    print('| gamma | ms, token | ms, block | block / token | of the repeats |')
    print('|---|---|---|---|---|')
    for gamma in args.gamma:
      _times(pair, gamma, args.sentences, args.repeats)
    return
  source = by_model(pair.draft)
  print('| gamma | rule | alpha | tokens per call | 95% interval |')
  print('|---|---|---|---|---|')
  for gamma in args.gamma:
    for rule in _RULES:
      found = drafting.measure(
          pair.vocabulary,
          pair.target,
          source,
          gamma=gamma,
          temperature=1.0,
          verification=rule,
          samples=args.samples,
      )
      tokens = found.tokens_per_call
      print(
          f'| {gamma} | {rule} | {found.alpha.value:.3f} | '
          f'{tokens.value:.3f} | [{tokens.low:.3f}, {tokens.high:.3f}] |',
          flush=True,
      )


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
