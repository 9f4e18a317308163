# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec certify`: do speculative outputs have the target's own law?"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from t5x_specdec.certificate import checks
from t5x_specdec.certificate import trial
from t5x_specdec.certificate.subject import Subject
from t5x_specdec.cli import demo
from t5x_specdec.cli import lines as text_lines
from t5x_specdec.cli import options
from t5x_specdec.cli import setup
from t5x_specdec.drafts import kinds
from t5x_specdec.gamma import as_policy
from t5x_specdec.vocabulary import EOS_ID

# Held-out sentences that the demo pair is tried on.
_DEMO_LINES = 32


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'certify',
      help="test that speculative outputs have the target's own law",
      description=(
          'Decodes with and without drafts and holds the outputs against the '
          "target's word on them: token equality at temperature 0; above, by "
          'both rules and with top-k and top-p, the law of each token given '
          'the text before it, of log-likelihoods and lengths, and '
          'independence. A random toy pair, tried first in any case, is held '
          'against the joint law of whole texts too. Exit status 0: every '
          'check holds, 1: one fails. The last line is the verdict.'
      ),
  )
  group = parser.add_argument_group('models')
  group.add_argument(
      '--target',
      default='demo',
      metavar='toy|demo|DIR',
      help='toy: only the toy pair; demo: the pair that ships with the '
      'package; or a T5X checkpoint (default: %(default)s)',
  )
  options.add_draft(group)
  group.add_argument(
      '--vocabulary', metavar='FILE', help='SentencePiece model of checkpoints'
  )
  group.add_argument(
      '--draft_vocabulary',
      metavar='FILE',
      help="the draft's own SentencePiece model, to be compared with the "
      "target's",
  )
  options.add_dtype(group)
  _add_trial(parser.add_argument_group('trial'))
  return parser


def _add_trial(group: argparse._ArgumentGroup) -> None:
  """Adds what is decoded and how often."""
  group.add_argument(
      '--input', metavar='FILE', help='lines of text for checkpoints'
  )
  group.add_argument(
      '--samples',
      type=int,
      default=8,
      metavar='N',
      help='of each line and setting above temperature 0; more find smaller '
      'biases (default: %(default)s)',
  )
  group.add_argument(
      '--gamma',
      type=int,
      default=3,
      metavar='N',
      help='tokens to draft per target call (default: %(default)s)',
  )
  group.add_argument(
      '--batch_size',
      type=int,
      default=16,
      metavar='N',
      help='lines decoded together, each with all its samples (default: '
      '%(default)s)',
  )
  group.add_argument(
      '--max_input_len',
      type=int,
      default=64,
      metavar='TOKENS',
      help='longer inputs are cut (default: %(default)s)',
  )
  group.add_argument(
      '--max_decode_len',
      type=int,
      default=40,
      metavar='TOKENS',
      help='most tokens to generate (default: %(default)s)',
  )
  group.add_argument(
      '--seed',
      type=int,
      default=0,
      help='of the toy pair, of the demo\'s sentences and of all samples, in '
      '[0, 2^31) (default: %(default)s)',
  )


def _check(args: argparse.Namespace) -> None:
  """Raises ValueError for arguments that would be refused later."""
  for name in ('samples', 'batch_size', 'max_input_len', 'max_decode_len'):
    if getattr(args, name) < 1:
      raise ValueError(f'--{name} must be >= 1, got {getattr(args, name)}')
  if not 0 <= args.seed < 2**31:
    raise ValueError(f'--seed must be in [0, 2^31), got {args.seed}')
  if args.gamma > args.max_decode_len:
    raise ValueError(
        f'--gamma {args.gamma} drafts more than --max_decode_len '
        f'{args.max_decode_len} tokens'
    )
  as_policy(args.gamma)
  own = args.target not in ('toy', 'demo')
  for name in ('vocabulary', 'input'):
    if own and getattr(args, name) is None:
      raise ValueError(f'--target {args.target} needs --{name}')
  if own and args.draft is None:
    raise ValueError(f'--target {args.target} needs --draft')
  foreign = ['vocabulary', 'draft_vocabulary', 'draft_checkpoint',
             'draft_table']
  if args.target == 'toy':
    foreign += ['draft', 'input']
  for name in [] if own else foreign:
    if getattr(args, name) is not None:
      raise ValueError(f'--target {args.target} has its own: no --{name}')


def _subject(args: argparse.Namespace) -> Subject:
  """Reads the pair and its lines."""
  if args.target == 'demo':
    kind = args.draft or 'model'
    if kind not in kinds.KINDS or kind == 'ngram':
      raise ValueError(f'--target demo has no draft {kind!r} of its own')
    own = demo.setup_arguments(kind)
    args = argparse.Namespace(**(own | vars(args) | {
        name: own[name]
        for name in ('target', 'vocabulary', 'draft', 'draft_checkpoint',
                     'draft_table')
    }))
    name = 'demo'
  else:
    name = str(args.target)
  if args.input is None:
    lines = [text for text, _ in demo.held_out(_DEMO_LINES, args.seed)]
  else:
    lines = text_lines.read(args.input)
  pair = setup.load(args)
  return Subject(
      name=name,
      target=pair.target.decoder,
      draft=pair.draft,
      target_params=pair.target.params,
      draft_params=pair.draft_params,
      text=_encoded(pair, lines, args),
      steps=args.max_decode_len,
      batch_size=min(args.batch_size, len(lines)),
      dtype=args.dtype,
      eos_id=EOS_ID,
      seed=args.seed,
  )


def _encoded(
    pair: setup.Setup, lines: list[str], args: argparse.Namespace
) -> np.ndarray:
  """Ids of whole batches of lines, int32[lines, longest]."""
  size = min(args.batch_size, len(lines))
  lines = lines[: len(lines) // size * size]
  tail = [EOS_ID] if pair.target.decoder.has_encoder else []
  ids = [
      pair.vocabulary.encode(line)[: args.max_input_len - len(tail)] + tail
      for line in lines
  ]
  vocab = pair.target.decoder.vocab_size
  for number, row in enumerate(ids, start=1):
    if max(row, default=0) >= vocab:
      raise ValueError(
          f'line {number} holds id {max(row)}, but the models score only '
          f'{vocab} ids'
      )
  text = np.zeros([len(ids), max(1, *map(len, ids))], np.int32)
  for row, line in zip(text, ids):
    row[: len(line)] = line
  return text


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  _check(args)
  out = sys.stderr if args.json else sys.stdout
  parts = [trial.try_toy(args.seed)]
  if args.target != 'toy':
    subject = _subject(args)
    parts.append(trial.try_pair(subject, args.gamma, args.samples))
  print(f'seed {args.seed}, target {args.target}', file=out)

  def tell(check: checks.Check) -> None:
    if sys.stderr.isatty():
      print(f'{check.subject}, {check.setting}: {check.name}', file=sys.stderr)

  certificate = trial.certify(parts, tell)
  for check in certificate.checks:
    print(_line(certificate, check), file=out)
  print(_power(certificate), file=out)
  if args.json:
    report = certificate.as_json() | {
        'seed': args.seed,
        'target': args.target,
    }
    print(json.dumps(report))
  else:
    print(certificate.verdict)
  return int(bool(certificate.failed))


def _line(certificate: trial.Certificate, check: checks.Check) -> str:
  """A check for a person."""
  record = certificate.report(check)
  text = f'{"ok  " if record["holds"] else "FAIL"} {check.subject}, '
  text += f'{check.setting}: {check.name}'
  if check.outcome is not None:
    text += f', p = {record["p_value"]:.2g}, n = {record["samples"]}'
    for name, words in (
        ('effect', 'effect'), ('detectable_effect', 'would find'),
    ):
      if record[name] is not None:
        text += f', {words} {record[name]:.3g}'
  elif check.name == 'greedy tokens':
    differences = record['first_differences']
    text += f', {record["identical"]} of {record["texts"]} texts identical'
    if differences:
      margins = [entry['margin'] for entry in differences]
      text += (
          f', margins at the first difference up to {max(margins):.3g}, '
          f'{sum(entry["tie"] for entry in differences)} of '
          f'{len(differences)} within rounding'
      )
  return text if record['holds'] else f'{text}: {check.fault}'


def _power(certificate: trial.Certificate) -> str:
  """False alarms and power in words."""
  return (
      f'{certificate.tests} tests at level {certificate.level:.2g}, together '
      f'{certificate.false_alarm:g} (Bonferroni). "would find": the smallest '
      f'effect found with probability {trial.POWER:g}; effects are Cohen\'s w, '
      'at least twice a total variation distance, for means in standard '
      'deviations, for shared noise a correlation.'
  )
