# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""From the times of a sitting to the figures that are reported.

All times are medians over the repeats, and every ratio is one of two medians.
Two kinds of time per generated token:

- `ms_per_token`, of the whole call, from the arguments until the texts are on
  the host, the encoder included: what a user waits for. All speed-ups
  `speedup_vs_*` are ratios of these.
- `decode_ms_per_token`, the same without the encoder, the cross-attention's
  keys and values, and the prompt; these are timed alone, for speculation with
  the draft's own. `emp` is the ratio of these, ours alone over ours with the
  draft.

`exp` is Theorem 3.8 with what was measured in place of alpha and c: the run's
own tokens per round over d + v, where v is a block of gamma + 1 tokens and d
the whole draft phase, both in units of a one-token block of the target (the
paper's d is gamma c). It knows no encoder, which both decoders pay for alike
and which fades as texts grow, hence `emp` without it. What then is between
`emp` and `exp` is lost, or in part won, in the loops themselves: acceptance,
bookkeeping, dispatch, of speculation against the same of plain decoding; and
between models that push each other's weights out of a processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from t5x_specdec.benchmarks import checks
from t5x_specdec.benchmarks import machine
from t5x_specdec.benchmarks import rounds
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks.figures import Figures
from t5x_specdec.benchmarks.figures import ratio
from t5x_specdec.benchmarks.figures import without
from t5x_specdec.benchmarks.sitting import Record
from t5x_specdec.benchmarks.workloads import Workload
from t5x_specdec.sampling import MIN_TEMPERATURE
from t5x_specdec.vocabulary import EOS_ID


def report(
    record: Record,
    workload: Workload,
    gammas: list[int | str],
    *,
    temperature: float,
    loops: Sequence[str] = (),
) -> dict[str, Any]:
  """All that `bench` says, as one JSON object.

  Args:
    record: of the sitting.
    workload: what was decoded.
    gammas: drafts per round or 'adaptive' or 'auto', one row each; what a round
      costs, and so `exp`, is None for words.
    temperature: texts are compared where it is 0.
    loops: names of further loops that were timed at every gamma.

  Returns:
    See the module; None stands where something was not measured.
  """
  answers = record.answers
  alone = answers['ours', 'autoregressive'][-1]
  tokens = alone['stats']['emitted']
  figures = Figures(record)
  greedy = temperature <= MIN_TEMPERATURE
  reference = workload.expected or alone['tokens']
  same = _identical(record, reference if greedy else None)

  autoregressive = figures.per_token('ours', 'autoregressive', tokens)
  encode = figures.median('ours', 'encode')
  decode = without(figures.median('ours', 'autoregressive'), encode)
  autoregressive |= {
      'decode_ms_per_token': ratio(decode, tokens),
      'encode_ms': encode,
      'ms_per_round': ratio(decode, alone['loop_rounds']),
      'step_ms': figures.median('ours', 'block:1'),
      'identical': same['ours autoregressive'],
  }
  others = {
      name: _other(figures, record, name, same) for name in ('t5x', 'hf')
  }
  rows = [
      _row(figures, record, gamma, autoregressive, others, same)
      for gamma in gammas
  ]
  for row in rows:
    row['ragged'] = None
    counted = workload.steps is not None and isinstance(row['gamma'], int)
    if counted and workload.rounds is not None and greedy:
      row['ragged'] = rounds.ragged(figures, record, row, workload.rounds)
  verdicts = [verdict for verdict in same.values() if verdict is not None]
  return {
      'rows': rows,
      'autoregressive': autoregressive,
      'loops': [
          rounds.loop(figures, record, gamma, name)
          for gamma in gammas
          if isinstance(gamma, int)
          for name in loops
      ],
      **others,
      'bandwidth': _bandwidth(record, workload, decode, alone['loop_rounds']),
      'identical': all(verdicts) if verdicts else None,
      'logits': _finite(
          checks.compare_logits(record.logits, workload.target.dtype)
      ),
      'peak_memory_bytes': {
          name: answer['peak_bytes'] for name, answer in record.finished.items()
      },
      'peak_device_bytes': {
          name: answer['peak_device_bytes']
          for name, answer in record.finished.items()
      },
      'xla_flags': record.started['ours']['xla_flags'],
      'machine': machine.describe(),
      'devices': {
          name: answer.get('device') for name, answer in record.started.items()
      },
      'versions': {
          name: answer.get('versions')
          for name, answer in record.started.items()
      },
      'interleaved': record.interleaved,
      'absent': record.absent,
      'errors': record.errors,
  }


def _identical(record: Record, reference: list | None) -> dict[str, Any]:
  """By 'worker case': whether every repeat's texts are the reference's."""
  return {
      f'{name} {case}': None
      if reference is None
      else all(checks.identical(a['tokens'], reference) for a in answers)
      for (name, case), answers in record.answers.items()
      if answers and 'tokens' in answers[0]
  }


def _finite(logits: dict[str, Any]) -> dict[str, Any]:
  """JSON has no NaN: None stands for it, and `agree` is False then."""
  logits['differences'] = {
      name: value if math.isfinite(value) else None
      for name, value in logits['differences'].items()
  }
  return logits


def _texts_tokens(tokens: list) -> int:
  """Tokens up to EOS of a framework that does not count them."""
  ended = np.cumsum(np.array(tokens) == EOS_ID, axis=-1)
  eos_itself = np.count_nonzero(np.any(ended, axis=-1))
  return int(np.count_nonzero(ended == 0) + eos_itself)


def _other(
    figures: Figures, record: Record, name: str, same: dict[str, Any]
) -> dict[str, Any] | None:
  """Another framework decoding with the target alone; None where absent."""
  answers = record.answers.get((name, 'alone'))
  if not answers:
    return None
  tokens = _generated(answers[-1], record)
  return figures.per_token(name, 'alone', tokens) | {
      'identical': same[f'{name} alone']
  }


def _generated(answer: dict[str, Any], record: Record) -> int:
  """Tokens that a run of another framework generated, prompts left out."""
  ours = record.answers['ours', 'autoregressive'][-1]
  forced = _texts_tokens(ours['tokens']) - ours['stats']['emitted']
  return _texts_tokens(answer['tokens']) - forced


def _row(
    figures: Figures,
    record: Record,
    gamma: int | str,
    autoregressive: dict[str, Any],
    others: dict[str, dict[str, Any] | None],
    same: dict[str, Any],
) -> dict[str, Any]:
  """One gamma."""
  case = f'speculative:{gamma}'
  answer = record.answers['ours', case][-1]
  stats = answer['stats']
  emitted = stats['emitted']
  row: dict[str, Any] = {'gamma': gamma}
  row |= figures.per_token('ours', case, emitted)
  encode = figures.median('ours', 'encode_pair')
  decode = without(figures.median('ours', case), encode)
  step = figures.median('ours', 'block:1')
  parts = ['draft_step']
  if isinstance(gamma, int):
    parts += [f'propose:{gamma}', f'block:{gamma + 1}']
  c, d, v = (
      ratio(figures.median('ours', part), step)
      for part in [*parts, '', ''][:3]
  )
  # Rows of a batch wait for the slowest; with one row these are the tokens per
  # call of the target.
  alone_rounds = record.answers['ours', 'autoregressive'][-1]['loop_rounds']
  per_round = alone_rounds / answer['loop_rounds']
  row |= {
      'decode_ms_per_token': ratio(decode, emitted),
      'tokens_per_target_call': stats['tokens_per_target_call'],
      'tokens_per_round': per_round,
      'ms_per_round': ratio(decode, answer['loop_rounds']),
      'alpha': stats['alpha'],
      'c': c,
      'd': d,
      'v': v,
      'exp': None if d is None or v is None else per_round / (d + v),
      'rounds_by_gamma': stats['rounds_by_gamma'],
      'identical': same[f'ours {case}'],
  }
  row['emp'] = ratio(
      autoregressive['decode_ms_per_token'], row['decode_ms_per_token']
  )
  row['emp_over_exp'] = ratio(row['emp'], row['exp'])
  return row | _speedups(figures, record, row, autoregressive, others, same)


def _speedups(
    figures: Figures,
    record: Record,
    row: dict[str, Any],
    autoregressive: dict[str, Any],
    others: dict[str, dict[str, Any] | None],
    same: dict[str, Any],
) -> dict[str, Any]:
  """How much faster a row is than everything else."""
  case = f'assisted:{row["gamma"]}'
  assisted = None
  if answers := record.answers.get(('hf', case)):
    assisted = figures.per_token('hf', case, _generated(answers[-1], record))
    assisted['identical'] = same[f'hf {case}']

  def against(other):
    return ratio(other['ms_per_token'], row['ms_per_token']) if other else None

  return {
      'hf_assisted': assisted,
      'speedup_vs_autoregressive': against(autoregressive),
      'speedup_vs_t5x': against(others['t5x']),
      'speedup_vs_hf': against(assisted),
      'speedup_vs_hf_alone': against(others['hf']),
  }


def _bandwidth(
    record: Record, workload: Workload, decode: float | None, steps: int
) -> dict[str, Any]:
  """Bytes of weights per second against what this machine can read.

  Args:
    record: of the sitting.
    workload: for the target's shape.
    decode: milliseconds of decoding with the target alone, encoder left out.
    steps: target calls in it.

  Returns:
    GB/s (1e9 bytes) of both, their ratio, and of each way to read.
  """
  size = shapes.step_bytes(workload.target)
  weights = ratio(size * steps / 1e6, decode)
  speeds: dict[str, float] = {}
  for answer in record.answers.get(('bandwidth', 'read'), []):
    for kernel, speed in answer['gb_per_s'].items():
      speeds[kernel] = max(speed, speeds.get(kernel, 0.0))
  best = max(speeds.values(), default=None)
  return {
      'bytes_per_step': size,
      'weights_gb_per_s': weights,
      'read_gb_per_s': best,
      'share': ratio(weights, best),
      'kernels_gb_per_s': speeds,
  }
