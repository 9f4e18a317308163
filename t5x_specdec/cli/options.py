# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments that several subcommands share, described once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import sys
from typing import NamedTuple

from t5x_specdec import calibration
from t5x_specdec.benchmarks import machine
from t5x_specdec.benchmarks import shapes
from t5x_specdec.drafts import kinds
from t5x_specdec.parameters import T5Config

# Instead of a number of drafts.
GAMMA_WORDS = ('adaptive', 'auto')


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
  add_draft(group, required=True)
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


def add_draft(
    group: argparse._ArgumentGroup, *, required: bool = False, sizes: str = ''
) -> None:
  """Adds where drafts come from; `draft_choice` reads it.

  Args:
    group: the arguments about models.
    required: whether a draft must be named.
    sizes: what a draft may be besides a kind and a directory, in words.
  """
  planted = 'SIZE|' if sizes else ''
  group.add_argument(
      '--draft',
      required=required,
      metavar=f'KIND|{planted}DIR',
      help=f'where drafts come from: {", ".join(kinds.KINDS)}; anything else '
      f'is {sizes}the T5X checkpoint of a draft model, short for --draft model '
      '--draft_checkpoint DIR. unigram, bigram and ngram (of any length) need '
      '--draft_table; lookup copies from the input and the text; chain is '
      'lookup, and the model where that finds nothing. A folder that is called '
      'like a kind can be written ./model',
  )
  group.add_argument(
      '--draft_checkpoint',
      metavar='DIR',
      help='T5X checkpoint of the draft model, for model and chain',
  )
  group.add_argument(
      '--draft_table',
      metavar='FILE',
      help='n-grams from `t5x-specdec ngram build`, of at least the length '
      'that is asked for',
  )


class DraftChoice(NamedTuple):
  """Where drafts come from.

  Attributes:
    kind: one of `kinds.KINDS`.
    checkpoint: of the draft model, for kinds that have one.
    table: file of n-grams, for kinds that have one.
  """

  kind: str
  checkpoint: str | None
  table: str | None


def draft_choice(args: argparse.Namespace) -> DraftChoice:
  """Reads `add_draft`'s arguments.

  Args:
    args: with draft, draft_checkpoint, draft_table.

  Returns:
    The choice, with all its kind needs and nothing else.

  Raises:
    ValueError: something is missing, or would be passed over.
  """
  kind, checkpoint = str(args.draft), args.draft_checkpoint
  if kind not in kinds.KINDS:
    if checkpoint is not None:
      raise ValueError(
          f'--draft {kind} is none of {", ".join(kinds.KINDS)}, so it is taken '
          f'for a checkpoint; --draft_checkpoint {checkpoint} is a second one'
      )
    kind, checkpoint = 'model', kind
  for name, value, kinds_of in (
      ('checkpoint', checkpoint, kinds.OF_MODEL),
      ('table', args.draft_table, kinds.OF_TABLE),
  ):
    if value is None and kind in kinds_of:
      raise ValueError(f'--draft {kind} needs --draft_{name}')
    if value is not None and kind not in kinds_of:
      raise ValueError(f'--draft {kind} has no use for --draft_{name} {value}')
  return DraftChoice(kind, checkpoint, args.draft_table)


def add_dtype(group: argparse._ArgumentGroup) -> None:
  """Adds what the models compute in."""
  group.add_argument(
      '--dtype',
      choices=('float32', 'bfloat16'),
      default='float32',
      help='of parameters and activations; logits are float32 in any case '
      '(default: %(default)s)',
  )


def gamma(text: str) -> int | str:
  """A number of drafts, or one of `GAMMA_WORDS`."""
  if text in GAMMA_WORDS:
    return text
  try:
    return int(text)
  except ValueError:
    raise argparse.ArgumentTypeError(
        f'{text!r} is neither a whole number nor {" or ".join(GAMMA_WORDS)}'
    ) from None


def _gammas(text: str) -> list[int | str]:
  """Different gammas, separated by commas."""
  found = [gamma(part) for part in text.split(',')]
  if len(set(found)) != len(found):
    raise argparse.ArgumentTypeError(f'{text} repeats a number')
  return found


def add_calibration(parser: argparse.ArgumentParser) -> None:
  """Adds what the words of `--gamma` go by; `check_calibration` checks it."""
  parser.add_argument(
      '--calibration',
      metavar='FILE',
      help='from `t5x-specdec calibrate`, for --gamma adaptive and auto '
      '(default: costs, and alpha of the first lines, are measured on the '
      'spot)',
  )


def check_calibration(path: str | None, gammas: list[int | str]) -> None:
  """Raises ValueError for a file that is no calibration, or of no use.

  Args:
    path: of `--calibration`, or None.
    gammas: of `--gamma`.
  """
  if path is None:
    return
  if not any(isinstance(gamma, str) for gamma in gammas):
    raise ValueError(
        f'--calibration {path} is for --gamma {" or ".join(GAMMA_WORDS)}'
    )
  calibration.read(path)


def warn_of_calibration(
    args: argparse.Namespace, configs: Mapping[str, T5Config]
) -> None:
  """Warns where a calibration is of another pair, machine or way to decode.

  Texts are right in any case, but may take longer than they need.

  Args:
    args: with calibration, `add_sampling`'s, batch_size and dtype.
    configs: shapes of the models by 'target' and, where it has one, 'draft'.
  """
  if args.calibration is None:
    return
  found = calibration.read(args.calibration)
  here, there = machine.describe(), found.machine or {}
  counts = {name: shapes.parameter_count(x) for name, x in configs.items()}
  compared = {
      'parameters': (found.parameters, counts),
      'processor': (there.get('model'), here['model']),
      'cores': (there.get('cores'), here['cores']),
  }
  for name in ('batch_size', 'dtype', 'temperature', 'topk', 'topp'):
    compared[name] = found.settings.get(name), getattr(args, name)
  # A calibration from numbers says nothing of these.
  others = [
      f'{name} {theirs} (here {ours})'
      for name, (theirs, ours) in compared.items()
      if theirs is not None and theirs != ours
  ]
  if others:
    print(
        f'WARNING: --calibration {args.calibration} was measured with '
        f'{", ".join(others)}: its gamma may not be the best',
        file=sys.stderr,
    )


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
  words = (
      'adaptive follows what is accepted, auto is the best one for the first '
      'lines, 0 where drafts do not pay'
  )
  group.add_argument(
      '--gamma',
      type=_gammas if gammas else gamma,
      default=[3, 5] if gammas else 5,
      metavar='N,...' if gammas else 'N|adaptive|auto',
      help=f'{text}, several to compare; {words} (default: 3,5)'
      if gammas
      else f'{text}; {words} (default: %(default)s)',
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
