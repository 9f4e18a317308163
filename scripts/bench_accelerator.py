# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
r"""Times a T5 1.1 XXL with a Small draft on an accelerator, beside its limits.

Planted bfloat16 weights are made on the device, leaf by leaf (22 GB), so this
needs the package, the folder `accelerator` beside it, and nothing else. After
--seconds it compiles no further program and says what it left out:

  python scripts/bench_accelerator.py --json

Decoding as stock T5X does it (`StockT5`), with our loop alone, and with drafts,
all greedy on the same weights. Texts are known in advance and compared. Time
per round is a slope, between a short and a full text, so that the encoder is
not in it. What a round must read and compute is counted and held against what
this machine copies and multiplies per second: the floor is the larger of both,
draft step by draft step and then for the target's block. A model that fits a
cache reads faster than a copy runs, and passes under its floor.

Smaller, on a CPU; and, where no accelerator is at hand, compiled only, for a
CPU or (with the package `libtpu`) for a TPU that need not be there:

  python scripts/bench_accelerator.py --size tiny
  python scripts/bench_accelerator.py --lower_only --topology v4:2x2x1
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from typing import Any

from accelerator.cells import cells_of
from accelerator.cells import compile_cell
from accelerator.cells import Setting
from accelerator.cells import xla_counts
from accelerator.sitting import Sitting
from accelerator.table import show
from accelerator.work import measured_rates
import jax
from jax.experimental import topologies

from t5x_specdec.benchmarks import shapes
from t5x_specdec.cli import exits

# What is compiled, the most telling first: rows and drafts per round.
_CELLS = '1:5,1:3,1:8,8:5,1:1,8:2,4:4,2:6,1:2,1:4,1:6,1:7'
_ALPHAS = (0.5, 0.62, 0.75, 0.9)


def _say(text: str) -> None:
  print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(description=str(__doc__).partition('\n')[0])
  parser.add_argument('--size', choices=shapes.SIZES, default='xxl')
  parser.add_argument(
      '--draft', choices=shapes.SIZES, help='default: small, tiny for tiny'
  )
  parser.add_argument('--dtype', default='bfloat16')
  parser.add_argument('--inputs', type=int, default=128, help='tokens')
  parser.add_argument('--outputs', type=int, default=128, help='tokens')
  parser.add_argument(
      '--cells',
      default=_CELLS,
      metavar='ROWS:GAMMA,...',
      help='default: %(default)s',
  )
  parser.add_argument('--alpha', type=float, nargs='+', default=_ALPHAS)
  parser.add_argument('--repeats', type=int, default=3)
  parser.add_argument(
      '--seconds',
      type=float,
      default=300,
      help='after which no further cell is compiled (default: %(default)s)',
  )
  parser.add_argument(
      '--lower_only', action='store_true', help='compile, and run nothing'
  )
  parser.add_argument('--topology', help="a TPU's to compile for: v4:2x2x1")
  parser.add_argument('--json', action='store_true')
  return parser


def find_device(topology: str | None) -> Any:
  """JAX's device, or one of a TPU that is only described."""
  if topology is None:
    return jax.devices()[0]
  jax.config.update('jax_platforms', 'cpu')
  # Else libtpu asks a server of Google's cloud what machine this is.
  os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
  # One device per chip, as jobs on a v4 see it.
  megacore = {'chip_config_name': 'megacore'}
  options = megacore if topology.startswith('v4:') else {}
  return topologies.get_topology_desc(topology, 'tpu', **options).devices[0]


def measure(args: argparse.Namespace, device: Any) -> dict[str, Any]:
  """Compiles every cell that time allows, and runs what it compiled."""
  start = time.perf_counter()
  cells_by_rows = cells_of(args.cells)
  target, draft = (
      dataclasses.replace(shapes.SIZES[size], dtype=args.dtype)
      for size in (args.size, args.draft)
  )
  setting = Setting(target, draft, args.inputs, args.outputs)
  sitting = rates = None
  if not args.lower_only:
    rates = measured_rates(args.dtype)
    sitting = Sitting(setting, list(args.alpha), args.repeats)
    _say(f'weights made: {time.perf_counter() - start:.0f} s')
  compiled, skipped = [], []
  for cells in cells_by_rows.values():
    programs = {}
    for cell in cells:
      if time.perf_counter() - start > args.seconds:
        skipped.append(str(cell))
        continue
      begin = time.perf_counter()
      program = compile_cell(cell, setting, device)
      seconds = time.perf_counter() - begin
      _say(f'compiled {cell}: {seconds:.0f} s')
      compiled.append(
          {**cell._asdict(), 'compile_s': seconds, **xla_counts(program)}
      )
      if sitting:
        programs[cell] = program
    if sitting:
      sitting.measure(programs)
  result = {'programs': compiled, 'skipped': skipped}
  if sitting and rates:
    result |= {
        'copy_gb_per_s': rates.bytes / 1e9,
        'matmul_gflop_per_s': rates.operations / 1e9,
        'rows': list(sitting.rows(rates)),
        'wrong': sitting.wrong,
    }
  return result | {'seconds': time.perf_counter() - start}


def report(result: dict[str, Any]) -> None:
  """Prints a result for a person."""
  print('Programs; of a loop XLA counts one turn:\n')
  show(result['programs'])
  if 'rows' in result:
    print(
        f'\n{result["device"]} copies {result["copy_gb_per_s"]:.1f} GB/s (read '
        f'and written), multiplies {result["matmul_gflop_per_s"]:.1f} Gflop/s; '
        'per round:\n'
    )
    show(result['rows'])
  else:
    print(f'\nCompiled for {result["device"]}, NOT RUN: no time is known.')
  for line in result['skipped']:
    print(f'out of time, not measured: {line}')
  for line in result.get('wrong', []):
    print(f'FAILED: {line}')


def main(args: argparse.Namespace) -> int:
  if args.topology and not args.lower_only:
    raise ValueError('--topology compiles only: add --lower_only')
  args.draft = args.draft or ('tiny' if args.size == 'tiny' else 'small')
  device = find_device(args.topology)
  result = {
      'device': device.device_kind,
      'jax': jax.__version__,
      'size': args.size,
      'draft': args.draft,
      'dtype': args.dtype,
      'ran': not args.lower_only,
  } | measure(args, device)
  if args.json:
    print(json.dumps(result))
  else:
    report(result)
  return 1 if result.get('wrong') else 0


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
