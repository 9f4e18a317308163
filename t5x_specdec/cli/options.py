# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments that several subcommands share, described once."""

from __future__ import annotations

import argparse


def add_pair(parser: argparse.ArgumentParser) -> None:
  """Adds where the target, the draft and their vocabulary are."""
  group = parser.add_argument_group('models')
  group.add_argument(
      '--target',
      required=True,
      metavar='DIR',
      help='T5X checkpoint of the target: a checkpoint_<step> directory, or a '
      'parent of several, of which the last is taken',
  )
  group.add_argument(
      '--draft',
      required=True,
      metavar='DIR',
      help='T5X checkpoint of the draft model',
  )
  group.add_argument(
      '--vocabulary',
      required=True,
      metavar='FILE',
      help='SentencePiece model of both',
  )
  group.add_argument(
      '--draft_vocabulary',
      metavar='FILE',
      help="the draft's own SentencePiece model, to be compared with the "
      "target's",
  )
  add_dtype(group)


def add_dtype(group: argparse._ArgumentGroup) -> None:
  """Adds what the models compute in."""
  group.add_argument(
      '--dtype',
      choices=('float32', 'bfloat16'),
      default='float32',
      help='of parameters and activations; logits are float32 in any case '
      '(default: %(default)s)',
  )


def _numbers(text: str) -> list[int]:
  """Different integers, separated by commas."""
  numbers = [int(part) for part in text.split(',')]
  if len(set(numbers)) != len(numbers):
    raise argparse.ArgumentTypeError(f'{text} repeats a number')
  return numbers


def add_sampling(
    parser: argparse.ArgumentParser, *, gammas: bool = False
) -> None:
  """Adds how tokens are drawn and how many are drafted.

  Args:
    parser: of the subcommand.
    gammas: whether `--gamma` is a list.
  """
  group = parser.add_argument_group('decoding')
  text = 'tokens to draft per target call'
  group.add_argument(
      '--gamma',
      type=_numbers if gammas else int,
      default=[3, 5] if gammas else 5,
      metavar='N,...' if gammas else 'N',
      help=f'{text}, several to compare (default: 3,5)'
      if gammas
      else f'{text} (default: %(default)s)',
  )
  group.add_argument(
      '--temperature',
      type=float,
      default=0.0,
      help='0 takes the most likely token (default: %(default)s)',
  )
  group.add_argument(
      '--topk',
      type=int,
      default=0,
      metavar='K',
      help='sample among the K most likely tokens, 0 for all (default: 0)',
  )
  group.add_argument(
      '--topp',
      type=float,
      default=0.0,
      metavar='P',
      help='sample among the fewest likely tokens of mass P, 0 for all '
      '(default: 0)',
  )
  group.add_argument(
      '--verification',
      choices=('token', 'block'),
      default='block',
      help="how drafts are judged when sampling: one by one, the paper's "
      'Algorithm 1, or as a block, which accepts more (default: %(default)s)',
  )
  group.add_argument(
      '--seed',
      type=int,
      default=0,
      help='of the samples, in [0, 2^63) (default: %(default)s)',
  )
