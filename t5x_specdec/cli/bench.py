# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""`t5x-specdec bench`: time per token beside stock T5X and Hugging Face."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress

from t5x_specdec import validation
from t5x_specdec.benchmarks import loops
from t5x_specdec.benchmarks import results
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks import sitting
from t5x_specdec.benchmarks import table
from t5x_specdec.benchmarks import workloads
from t5x_specdec.cli import demo
from t5x_specdec.cli import options
from t5x_specdec.drafts import kinds
from t5x_specdec.pair import DEMO_PAIR

# On some CPUs products with few rows cost less than with XLA's own kernels.
_ONEDNN = (
    '--xla_cpu_use_onednn=true '
    '--xla_cpu_experimental_onednn_fusion_type=LIBRARY_FUSION_TYPE_DOT'
)
# Held-out sentences that the demo pair is timed on.
_DEMO_LINES = 16


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
  """Declares the subcommand and its arguments."""
  parser = subparsers.add_parser(
      'bench',
      help='time per token beside stock T5X and Hugging Face',
      description=(
          'Times decoding with and without a draft, stock T5X and Hugging Face '
          'transformers on the same weights, each in a process of its own, '
          'where they are installed. Planted weights have the shapes of T5 1.1 '
          'and accept drafts at a rate that is given. Exit status 1: the '
          'frameworks do not compute the same, so no figure counts.'
      ),
  )
  add_pair(parser)
  options.add_sampling(parser, gammas=True)
  options.add_calibration(parser)
  group = parser.add_argument_group('measurement')
  group.add_argument(
      '--repeats',
      type=int,
      default=5,
      help='of everything, interleaved where memory allows (default: '
      '%(default)s)',
  )
  group.add_argument(
      '--loops',
      type=_loops,
      default=(),
      metavar='NAME,...',
      help='time rounds of these too, in turns: greedy; full, topk (40) and '
      'topp (.9), at temperature 1 with --verification; token and block, full '
      'by either rule. The first is what the others are held against',
  )
  group.add_argument(
      '--xla_flags',
      default='default',
      metavar='default|onednn|FLAGS',
      help="XLA_FLAGS of our process and T5X's: default leaves the environment "
      'alone, onednn has a CPU multiply with oneDNN, anything else is taken as '
      'it is, after an equals sign: --xla_flags=--xla_...',
  )
  group.add_argument(
      '--no_t5x', action='store_true', help='do not time stock T5X'
  )
  group.add_argument(
      '--no_hf', action='store_true', help='do not time Hugging Face'
  )
  group.add_argument(
      '--hf_python',
      metavar='PYTHON',
      default=sys.executable,
      help='interpreter with torch and transformers (default: this one)',
  )
  return parser


def add_pair(parser: argparse.ArgumentParser) -> None:
  """Adds the models and what they decode."""
  group = parser.add_argument_group('models and inputs')
  sizes = ', '.join(shapes.SIZES)
  group.add_argument(
      '--target',
      default='base',
      metavar='SIZE|demo|DIR',
      help=f'{sizes}: planted weights of that size; demo: the pair that ships '
      'with the package; or a T5X checkpoint (default: %(default)s)',
  )
  options.add_draft(group, sizes='a SIZE, for a planted target, or ')
  group.add_argument(
      '--alpha',
      type=float,
      default=0.75,
      help='acceptance rate of a planted pair (default: %(default)s)',
  )
  group.add_argument(
      '--vocabulary', metavar='FILE', help='SentencePiece model of checkpoints'
  )
  group.add_argument(
      '--input', metavar='FILE', help='lines of text for checkpoints'
  )
  group.add_argument(
      '--batch_size', type=int, default=1, help='default: %(default)s'
  )
  group.add_argument(
      '--input_len',
      type=int,
      default=64,
      metavar='TOKENS',
      help='of every input (default: %(default)s)',
  )
  group.add_argument(
      '--output_len',
      type=int,
      default=128,
      metavar='TOKENS',
      help='to generate; checkpoints may end a text earlier (default: '
      '%(default)s)',
  )
  group.add_argument(
      '--ragged',
      action='store_true',
      help='rows of a planted batch end one after the other, the first of n '
      'at an n-th of --output_len; our decoders alone, and the rounds that the '
      'slowest row needs are held against those that were run',
  )
  options.add_dtype(group)


def _loops(text: str) -> tuple[str, ...]:
  """Different names of `loops.LOOPS`, separated by commas."""
  names = tuple(text.split(','))
  if len(set(names)) != len(names) or not set(names) <= set(loops.LOOPS):
    raise argparse.ArgumentTypeError(
        f'{text!r}: different ones of {", ".join(loops.LOOPS)}'
    )
  return names


def _check(args: argparse.Namespace) -> None:
  """Raises ValueError for arguments that a worker would refuse later."""
  for name in ('batch_size', 'input_len', 'output_len', 'repeats'):
    if getattr(args, name) < 1:
      raise ValueError(f'--{name} must be >= 1, got {getattr(args, name)}')
  for gamma in args.gamma:
    if not isinstance(gamma, str) and not 1 <= gamma < args.output_len:
      raise ValueError(
          f'--gamma must be in [1, --output_len), got {gamma} at '
          f'--output_len {args.output_len}'
      )
  if not 0 <= args.seed < 2**31:
    raise ValueError(f'--seed must be in [0, 2^31), got {args.seed}')
  if args.ragged:
    if args.target not in shapes.SIZES or args.batch_size < 2:
      raise ValueError(
          '--ragged needs a planted target and a --batch_size of at least 2, '
          f'got --target {args.target} and {args.batch_size}'
      )
    # Neither is told how long each row of ours may become.
    args.no_t5x = args.no_hf = True
  validation.check_method(args.temperature, args.topk, args.topp, 1)
  options.check_calibration(args.calibration, args.gamma)
  if not args.no_hf and shutil.which(args.hf_python) is None:
    raise ValueError(f'--hf_python {args.hf_python}: no such interpreter')


def make_workload(
    args: argparse.Namespace, demo_lines: int = _DEMO_LINES
) -> workloads.Workload:
  """The models and inputs that the arguments of `add_pair` name."""
  common = {
      name: getattr(args, name)
      for name in ('batch_size', 'input_len', 'output_len', 'dtype', 'seed')
  }
  if args.target == 'demo':
    choice = _demo_choice(args)
    count = -(-demo_lines // args.batch_size) * args.batch_size
    return workloads.checkpoint_workload(
        DEMO_PAIR / 'target',
        choice.checkpoint,
        DEMO_PAIR / 'vocabulary.model',
        [source for source, _ in demo.held_out(count, args.seed)],
        kind=choice.kind,
        table=choice.table,
        **common,
    )
  if args.target in shapes.SIZES:
    if args.draft in kinds.KINDS and args.draft != 'model':
      raise ValueError(
          f'--draft {args.draft}: a planted text repeats nothing, copies '
          'nothing and was never counted; take --target demo or a checkpoint'
      )
    args.draft = args.draft or 'small'
    draft = options.draft_choice(args).checkpoint or ''
    if draft not in shapes.SIZES:
      raise ValueError(
          f'--draft {draft}: a planted target takes a draft of '
          f'{", ".join(shapes.SIZES)}'
      )
    return workloads.planted_workload(
        args.target, draft, alpha=args.alpha, ragged=args.ragged, **common
    )
  for name in ('draft', 'vocabulary', 'input'):
    if getattr(args, name) is None:
      raise ValueError(
          f'--target {args.target} is no size, and a checkpoint needs --{name}'
      )
  text = pathlib.Path(args.input).read_text(encoding='utf-8')
  choice = options.draft_choice(args)
  return workloads.checkpoint_workload(
      args.target,
      choice.checkpoint,
      args.vocabulary,
      text.splitlines(),
      kind=choice.kind,
      table=choice.table,
      **common,
  )


def _demo_choice(args: argparse.Namespace) -> options.DraftChoice:
  """Where drafts for the demo's target come from: its own, or a table given."""
  args.draft = 'model' if args.draft in (None, 'demo') else args.draft
  if args.draft not in kinds.KINDS or args.draft_checkpoint is not None:
    raise ValueError(
        '--target demo brings its own draft model; --draft may be one of '
        f'{", ".join(kinds.KINDS)}'
    )
  own = demo.draft_arguments(args.draft)
  given = {'draft_table': args.draft_table} if args.draft_table else {}
  return options.draft_choice(argparse.Namespace(**(own | given)))


def _workers(
    args: argparse.Namespace, workload: workloads.Workload
) -> list[sitting.Worker]:
  """Who is to be timed, ours first."""
  environment = {
      # Several processes may share a device.
      'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
  }
  if args.xla_flags != 'default':
    flags = _ONEDNN if args.xla_flags == 'onednn' else args.xla_flags
    environment['XLA_FLAGS'] = flags
  jax_process = {'environment': environment}
  models = tuple(workload.configs)
  cases = ['autoregressive', 'encode', 'encode_pair', 'block:1']
  if 'draft' in models:
    cases.append('draft_step')
  numbers = [gamma for gamma in args.gamma if isinstance(gamma, int)]
  cases += [f'speculative:{gamma}' for gamma in args.gamma]
  for gamma in numbers:
    cases += [f'block:{gamma + 1}', f'propose:{gamma}']
    cases += [f'loop:{gamma}:{name}' for name in args.loops]
  workers = [
      sitting.Worker('ours', 'worker_ours', tuple(cases), models, jax_process),
      sitting.Worker('bandwidth', 'bandwidth', ('read',), (), jax_process),
  ]
  if not args.no_t5x:
    workers.append(
        sitting.Worker(
            't5x', 'worker_t5x', ('alone',), ('target',), jax_process
        )
    )
  if not args.no_hf:
    # transformers assists one row at a time only, and here with a model.
    assisted = [f'assisted:{gamma}' for gamma in numbers]
    assists = args.batch_size == 1 and workload.kind == 'model'
    cases = ['alone', *(assisted if assists else [])]
    alone = {'python': args.hf_python, 'without_package': True}
    workers.append(
        sitting.Worker('hf', 'worker_hf', tuple(cases), models, alone)
    )
  return workers


def _widest(gammas: list[int | str]) -> int:
  """The widest block of a number of drafts; of words alone as by default."""
  return 1 + max([g for g in gammas if isinstance(g, int)] or [5])


def run(args: argparse.Namespace) -> int:
  """Runs the subcommand."""
  _check(args)
  workload = make_workload(args)
  options.warn_of_calibration(args, workload.configs)
  workers = _workers(args, workload)
  job = workload.job(
      temperature=args.temperature,
      topk=args.topk,
      topp=args.topp,
      verification=args.verification,
      calibration=args.calibration,
      seed=args.seed,
  )
  console = Console(stderr=True)
  with Progress(console=console, disable=not sys.stderr.isatty()) as progress:
    task = progress.add_task('', total=sitting.steps(workers, args.repeats))
    record = sitting.sit(
        workers,
        workload,
        job,
        widths=(1, _widest(args.gamma)),
        repeats=args.repeats,
        tell=lambda text: progress.update(task, description=text, advance=1),
    )
  result = _settings(args, workload) | results.report(
      record,
      workload,
      args.gamma,
      temperature=args.temperature,
      loops=args.loops,
  )
  table.show(result, Console(stderr=args.json, highlight=False))
  if args.json:
    print(json.dumps(result))
  return 1 if table.failures(result) else 0


def _settings(
    args: argparse.Namespace, workload: workloads.Workload
) -> dict[str, Any]:
  """What was asked for, so that a result speaks for itself."""
  planted = workload.expected is not None
  names = (
      'target', 'draft', 'batch_size', 'input_len', 'output_len', 'temperature',
      'topk', 'topp', 'verification', 'dtype', 'repeats', 'seed', 'ragged',
  )
  settings = {name: getattr(args, name) for name in names}
  return settings | {
      'draft_kind': workload.kind,
      'planted': planted,
      'planted_alpha': args.alpha if planted else None,
      'parameters': {
          name: shapes.parameter_count(config)
          for name, config in workload.configs.items()
      },
  }
