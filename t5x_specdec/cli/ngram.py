# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec ngram build`: counts a table of n-grams to draft from."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import hashlib
import importlib
import itertools
import json
import os
import pathlib
from typing import Any

import numpy as np
from rich.console import Console

from t5x_specdec.cli import lines
from t5x_specdec.drafts import ngram
from t5x_specdec.vocabulary import EOS_ID
from t5x_specdec.vocabulary import Vocabulary


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments; returns those of `build`."""
  parser = subparsers.add_parser(
      'ngram',
      help='count n-grams, a draft of negligible cost',
      description="Tables of n-grams, the paper's Section 3.6.",
  )
  actions = parser.add_subparsers(
      title='actions', metavar='ACTION', dest='action', required=True,
      help='what to do',
  )
  build = actions.add_parser(
      'build',
      help='count the n-grams of texts',
      description=(
          "Counts the n-grams of texts in the target's language and writes "
          'the table that `--draft bigram --draft_table FILE` and the like '
          'draft from. Each text is counted as it would be generated: after '
          'the start token, and with EOS. The table is sparse: 16 bytes in '
          'memory for each different n-gram, whatever the vocabulary; all '
          'bigrams of 32,128 ids would take 4 GB. Counting holds all texts at '
          'once.'
      ),
  )
  _add_texts(build)
  build.add_argument(
      '--order',
      type=int,
      default=2,
      metavar='N',
      help='longest n-grams to count, 1 to 4 (default: %(default)s)',
  )
  build.add_argument(
      '--output',
      required=True,
      metavar='FILE',
      help='where the table goes, `.npz` by custom',
  )
  return build


def _add_texts(parser: argparse.ArgumentParser) -> None:
  """Adds what is counted."""
  group = parser.add_argument_group('texts, one of')
  source = group.add_mutually_exclusive_group(required=True)
  source.add_argument(
      '--input',
      metavar='FILE',
      help='text, one a line; - for standard input; empty texts are left out',
  )
  source.add_argument(
      '--ids',
      metavar='FILE',
      help='token ids, one text a line and blanks between; or, with the '
      'ending .npy, an integer array [texts, length] padded with 0; EOS is '
      'added where it is missing',
  )
  source.add_argument(
      '--task',
      metavar='NAME',
      help="a SeqIO task or mixture, whose feature 'targets' is counted",
  )
  group = parser.add_argument_group('what the ids mean, and which to take')
  group.add_argument(
      '--vocabulary',
      metavar='FILE',
      help="the target's SentencePiece model; a task knows its own",
  )
  group.add_argument(
      '--module_import',
      metavar='MODULE',
      help='Python module that registers the task',
  )
  group.add_argument(
      '--split', default='train', help='of the task (default: %(default)s)'
  )
  group.add_argument(
      '--examples',
      type=int,
      metavar='N',
      help='count only the first N texts (default: all)',
  )


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  if args.examples is not None and args.examples < 1:
    raise ValueError(f'--examples must be >= 1, got {args.examples}')
  for flag in ('input', 'ids', 'vocabulary'):
    lines.check_output(args.output, getattr(args, flag), f'--{flag}')
  if args.task is not None:
    path, texts = _task_texts(args)
    vocabulary = Vocabulary(path)
  else:
    if args.vocabulary is None:
      raise ValueError('--vocabulary is needed, unless for a --task')
    vocabulary = Vocabulary(args.vocabulary)
    if args.input is not None:
      texts = map(vocabulary.encode, lines.read(args.input))
    else:
      texts = _ids(args.ids)
  # As generation ends a text, whoever has cut it.
  ended = (
      text if text[-1:] == [EOS_ID] else [*text, EOS_ID]
      for text in filter(None, texts)
  )
  corpus = list(itertools.islice(ended, args.examples))
  draft, params = ngram.count(corpus, vocabulary.size, args.order)
  ngram.save(
      args.output, ngram.Table(draft, params, vocabulary.fingerprint)
  )
  _report(args, draft, params, corpus)
  return 0


def _report(
    args: argparse.Namespace,
    draft: ngram.Ngram,
    params: dict[str, np.ndarray],
    corpus: list[list[int]],
) -> None:
  """Says what was counted and how large it is."""
  result = {
      'output': args.output,
      'order': draft.order,
      'vocab_size': draft.vocab_size,
      'texts': len(corpus),
      'tokens': sum(map(len, corpus)),
      'entries': len(params['tokens']),
      'memory_bytes': sum(leaf.nbytes for leaf in params.values()),
      'file_bytes': os.path.getsize(args.output),
  }
  Console(stderr=args.json, highlight=False).print(
      f'{result["texts"]:,} texts, {result["tokens"]:,} tokens: '
      f'{result["entries"]:,} n-grams of 1 to {draft.order} tokens, '
      f'{result["memory_bytes"]:,} bytes in memory, '
      f'{result["file_bytes"]:,} in {args.output}',
      soft_wrap=True,
  )
  if args.json:
    print(json.dumps(result))


def _ids(path: str) -> Iterator[list[int]]:
  """Token ids of each text of a file; padding taken off."""
  if path.endswith('.npy'):
    try:
      rows = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
      raise ValueError(f'--ids {path} is not an array: {error}') from None
    if not isinstance(rows, np.ndarray):
      raise ValueError(f'--ids {path} is not an array, but an archive of some')
    if rows.ndim != 2 or rows.dtype.kind not in 'iu':
      raise ValueError(
          f'--ids {path} must be integers [texts, length], not '
          f'{rows.dtype}{list(rows.shape)}'
      )
    for row in rows:
      yield np.trim_zeros(row, 'b').tolist()
    return
  for number, line in enumerate(lines.read(path, '--ids'), start=1):
    try:
      ids = [int(word) for word in line.split()]
    except ValueError:
      raise ValueError(
          f'--ids {path}: line {number} is not whole numbers'
      ) from None
    yield ids


def _task_texts(
    args: argparse.Namespace,
) -> tuple[str, Iterator[list[int]]]:
  """The vocabulary of a SeqIO task and the ids of its targets."""
  # It imports TensorFlow.
  import seqio  # pylint: disable=g-import-not-at-top

  if args.module_import is not None:
    try:
      importlib.import_module(args.module_import)
    except ModuleNotFoundError as error:
      raise ValueError(
          f'--module_import {args.module_import}: {error}'
      ) from None
  names = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
  if args.task not in names:
    raise ValueError(
        f'--task {args.task}: no task or mixture of that name; does '
        '--module_import name the module that registers it?'
    )
  task = seqio.get_mixture_or_task(args.task)
  if 'targets' not in task.output_features:
    raise ValueError(
        f"--task {args.task} has no feature 'targets', but "
        f'{sorted(task.output_features)}'
    )
  if args.split not in task.splits:
    raise ValueError(
        f'--task {args.task} has no split {args.split!r}, but '
        f'{sorted(task.splits)}'
    )
  path = getattr(
      task.output_features['targets'].vocabulary, 'sentencepiece_model_file', ''
  )
  if not path:
    raise ValueError(f'--task {args.task} has no SentencePiece vocabulary')
  if args.vocabulary is not None and _digest(args.vocabulary) != _digest(path):
    raise ValueError(
        f'--task {args.task} has the vocabulary {path}, and --vocabulary '
        f'{args.vocabulary} is another'
    )
  dataset = task.get_dataset(
      sequence_length=None, split=args.split, shuffle=False, num_epochs=1,
      seed=0,
  )
  found = (
      example['targets'].tolist() for example in dataset.as_numpy_iterator()
  )
  return path, found


def _digest(path: str) -> str:
  return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
