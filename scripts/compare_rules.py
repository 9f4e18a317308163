# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokens per target call of both rules of verification, on the demo pair.

Every held-out sentence, at temperature 1, by `verification='token'` and by
`'block'`; intervals are 95%, by resampling sentences:

  python scripts/compare_rules.py --gamma 3 5 7 --samples 4
"""

import argparse

import jax
import numpy as np

from t5x_specdec import speculative_decode
from t5x_specdec.pair import DEMO_PAIR
from t5x_specdec.pair import Pair
from t5x_specdec.pair import read_demo_pair
from t5x_specdec.vocabulary import EOS_ID

_LENGTH = 64
_ROWS = 34  # 612 sentences are 18 times as many


def held_out(pair: Pair) -> np.ndarray:
  """The held-out sources, int32[sentences, length]."""
  lines = (DEMO_PAIR / 'test.tsv').read_text(encoding='utf-8').splitlines()
  inputs = np.zeros([len(lines), _LENGTH], np.int32)
  for row, line in zip(inputs, lines):
    ids = [*pair.vocabulary.encode(line.split('\t')[0]), EOS_ID]
    row[: len(ids)] = ids
  return inputs


def counters(
    pair: Pair, inputs: np.ndarray, gamma: int, rule: str, samples: int
) -> dict[str, np.ndarray]:
  """Counters of each sentence, added up over its samples."""
  found: dict[str, list[np.ndarray]] = {}
  for start in range(0, len(inputs), _ROWS):
    result = speculative_decode(
        pair.target.decoder,
        pair.draft.decoder,
        pair.target.params,
        pair.draft.params,
        inputs[start : start + _ROWS],
        max_decode_len=_LENGTH,
        gamma=gamma,
        topk=0,
        num_decodes=samples,
        rng=jax.random.key(start),
        verification=rule,
    )
    for name in ('emitted', 'rounds', 'overlap', 'judged'):
      rows = np.asarray(getattr(result.stats, name), np.float64)
      found.setdefault(name, []).append(rows.sum(axis=1))
  return {name: np.concatenate(rows) for name, rows in found.items()}


def interval(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
  """95% bootstrap interval of a ratio of sums over sentences."""
  rng = np.random.default_rng(0)
  drawn = rng.integers(len(top), size=[2000, len(top)])
  ratios = top[drawn].sum(axis=1) / bottom[drawn].sum(axis=1)
  return np.quantile(ratios, [0.025, 0.975])


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--gamma', type=int, nargs='+', default=[3, 5, 7])
  parser.add_argument('--samples', type=int, default=4, help='per sentence')
  args = parser.parse_args()
  pair = read_demo_pair()
  inputs = held_out(pair)
  print('| gamma | rule | alpha | tokens per call | 95% interval |')
  print('|---|---|---|---|---|')
  for gamma in args.gamma:
    for rule in ('token', 'block'):
      found = counters(pair, inputs, gamma, rule, args.samples)
      total = {name: rows.sum() for name, rows in found.items()}
      low, high = interval(found['emitted'], found['rounds'])
      print(
          f'| {gamma} | {rule} | {total["overlap"] / total["judged"]:.3f} | '
          f'{total["emitted"] / total["rounds"]:.3f} | '
          f'[{low:.3f}, {high:.3f}] |',
          flush=True,
      )


if __name__ == '__main__':
  main()
