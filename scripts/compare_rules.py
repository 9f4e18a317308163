# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokens per target call of both rules of verification, on the demo pair.

Every held-out sentence, at temperature 1, by `verification='token'` and by
`'block'`; intervals are 95%, by resampling sentences:

  python scripts/compare_rules.py --gamma 3 5 7 --samples 4
"""

import argparse

from demo_training import drafting
from demo_training.translate import by_model

from t5x_specdec.pair import read_demo_pair


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--gamma', type=int, nargs='+', default=[3, 5, 7])
  parser.add_argument('--samples', type=int, default=4, help='per sentence')
  args = parser.parse_args()
  pair = read_demo_pair()
  source = by_model(pair.draft)
  print('| gamma | rule | alpha | tokens per call | 95% interval |')
  print('|---|---|---|---|---|')
  for gamma in args.gamma:
    for rule in ('token', 'block'):
      found = drafting.measure(
          pair.vocabulary,
          pair.target,
          source,
          gamma=gamma,
          temperature=1.0,
          verification=rule,
          samples=args.samples,
      )
      low, high = found.tokens_interval
      print(
          f'| {gamma} | {rule} | {found.alpha:.3f} | '
          f'{found.tokens_per_call:.3f} | [{low:.3f}, {high:.3f}] |',
          flush=True,
      )


if __name__ == '__main__':
  main()
