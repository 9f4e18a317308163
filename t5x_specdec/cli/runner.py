# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Decodes lines of text in batches: what `generate` and `demo` share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
import functools
import statistics
import sys
import time
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress

import t5x_specdec
from t5x_specdec import pair as pairs
from t5x_specdec import sampling
from t5x_specdec import validation
from t5x_specdec.benchmarks import on_the_spot
from t5x_specdec.cli import options as flags
from t5x_specdec.cli import records
from t5x_specdec.cli.setup import Setup
from t5x_specdec.decoding import DecodeResult
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.gamma import as_policy
from t5x_specdec.gamma import Fixed
from t5x_specdec.stats import Stats
from t5x_specdec.vocabulary import EOS_ID

# Inputs are padded to the next of these lengths: one compilation each.
_SMALLEST_BUCKET = 32


def check(pair: Setup, args: argparse.Namespace) -> None:
  """Raises ValueError for arguments that the decoder would refuse later.

  So that nothing has been written, or overwritten, by then.
  """
  if not 0 <= args.seed < 2**63:
    raise ValueError(f'--seed must be in [0, 2^63), got {args.seed}')
  if isinstance(args.gamma, int):
    if args.gamma > args.max_decode_len:
      raise ValueError(
          f'--gamma {args.gamma} drafts more than --max_decode_len '
          f'{args.max_decode_len} tokens'
      )
    as_policy(args.gamma)
  flags.check_calibration(args.calibration, [args.gamma])
  validation.check_draft(pair.target.decoder, pair.draft, pair.draft_params)
  validation.check_lengths(args.max_decode_len, None, args.num_decodes, 1)
  validation.check_method(args.temperature, args.topk, args.topp, 1)
  models = {'target': pair.target, 'draft': pair.draft_model}
  flags.warn_of_calibration(
      args,
      {name: model.decoder.config for name, model in models.items() if model},
  )


class _Decoder:
  """Calls one of the two decoders and keeps its time.

  Time is counted from a call's start until its result is on the host. The first
  call of a shape compiles, and counts as compilation and not as decoding. Calls
  are repeated until there are `repeats` timings, of which the median counts.
  """

  def __init__(self, decode: Callable[..., DecodeResult], repeats: int = 0):
    self._decode = decode
    self._repeats = repeats
    self._shapes: set[tuple[int, ...]] = set()
    self.last_seconds: float | None = None
    self.last_tokens: int | None = None
    self.seconds = 0.0
    self.tokens = 0
    self.first_seconds = 0.0
    self.stats: list[Stats] = []

  def __call__(self, text: np.ndarray, real: int, **options) -> DecodeResult:
    """Decodes int32[batch, length] of which `real` rows count."""
    result, seconds = self._timed(text, options)
    first = text.shape not in self._shapes
    self._shapes.add(text.shape)
    timings = [] if first else [seconds]
    if first:
      self.first_seconds += seconds
    while len(timings) < self._repeats:
      timings.append(self._timed(text, options)[1])
    stats = jax.tree.map(lambda x: x[:real], result.stats)
    self.stats.append(stats)
    self.last_seconds = statistics.median(timings) if timings else None
    self.last_tokens = int(stats.emitted.sum())
    if self.last_seconds is not None:
      self.seconds += self.last_seconds
      self.tokens += self.last_tokens
    return result

  def _timed(
      self, text: np.ndarray, options: dict[str, Any]
  ) -> tuple[DecodeResult, float]:
    start = time.perf_counter()
    result = jax.device_get(self._decode(text, **options))
    return result, time.perf_counter() - start

  def summary(self) -> dict[str, Any]:
    """Counters of all calls and milliseconds per generated token."""
    stats = jax.tree.map(lambda *x: np.concatenate(x), *self.stats)
    per_token = 1e3 * self.seconds / self.tokens if self.tokens else None
    return stats.summary() | {
        'ms_per_token': per_token,
        'first_call_seconds': self.first_seconds,
    }


def decode_lines(
    pair: Setup,
    lines: list[str],
    args: argparse.Namespace,
    write: Callable[[dict[str, Any]], None],
    start: int = 0,
) -> dict[str, Any]:
  """Decodes all lines and writes one record each, in order.

  Args:
    pair: target, draft, vocabulary.
    lines: the inputs.
    args: from `options.add_sampling` and `generate`; with `trace` records hold
      the rounds, and with `times` also how long the parts and the batch took.
    write: called with each record.
    start: lines to skip, a multiple of the batch size.

  Returns:
    The summary: counters, alpha, tokens_per_target_call, ms_per_token; with
    `--compare` also `target_alone`, `speedup` and, at temperature 0,
    `identical`.
  """
  target = pair.target
  keys = sampling.row_keys(jax.random.key(args.seed), len(lines))

  def speculative(text, *, gamma, **options):
    return t5x_specdec.speculative_decode(
        target.decoder,
        pair.draft,
        target.params,
        pair.draft_params,
        gamma=gamma,
        verification=args.verification,
        trace=args.trace,
        **_as_arguments(target, text),
        **options,
    )

  def sample():
    batch = next(_batches(pair, lines, args))
    options = _options(batch, args, keys)
    sample_gamma = on_the_spot.SAMPLE_GAMMA
    result = speculative(batch['text'], gamma=sample_gamma, **options)
    alpha: Any = result.stats.summary()['alpha']
    return alpha

  gamma = args.gamma
  if isinstance(gamma, str):
    gamma = on_the_spot.policy(
        gamma,
        args.calibration,
        sample,
        target.decoder,
        target.params,
        pair.draft,
        pair.draft_params,
        rows=args.batch_size,
        verification=args.verification,
    )
  ours = _Decoder(
      functools.partial(speculative, gamma=gamma), args.repeats
  )
  baseline = _Decoder(functools.partial(_alone, target), args.repeats)
  identical = True
  about = None
  if args.times:
    first = next(_batches(pair, lines, args))
    about = records.of_run(pair, args, as_policy(gamma), first)
  console = Console(stderr=True)
  with Progress(console=console, disable=not sys.stderr.isatty()) as progress:
    task = progress.add_task('decoding', total=len(lines) - start)
    for batch in _batches(pair, lines, args, start):
      options = _options(batch, args, keys)
      result = ours(batch['text'], batch['real'], **options)
      if args.compare:
        other = baseline(batch['text'], batch['real'], **options)
        same = result.tokens == other.tokens
        identical &= bool(np.all(same[: batch['real']]))
      for record in records.of_batch(pair, lines, batch, result):
        if about is not None:
          record['run'] = about | {
              'batch': batch['start'] // args.batch_size,
              'batch_ms': _milliseconds(ours),
              'batch_alone_ms': _milliseconds(baseline),
              'batch_alone_tokens': baseline.last_tokens,
          }
        write(record)
      progress.advance(task, batch['real'])

  chosen = gamma.gamma if isinstance(gamma, Fixed) else args.gamma
  summary = {'lines': len(lines) - start, 'gamma': chosen} | ours.summary()
  summary['gamma_policy'] = args.gamma if isinstance(args.gamma, str) else None
  summary['temperature'] = args.temperature
  summary['verification'] = args.verification
  if args.compare:
    summary['target_alone'] = baseline.summary()
    theirs = summary['target_alone']['ms_per_token']
    summary['speedup'] = theirs / summary['ms_per_token']
    greedy = args.temperature <= sampling.MIN_TEMPERATURE
    summary['identical'] = identical if greedy else None
  return summary


def _milliseconds(decoder: _Decoder) -> float | None:
  """How long the last batch took, None where it was not timed."""
  seconds = decoder.last_seconds
  return None if seconds is None else 1e3 * seconds


def draft_cost(
    pair: Setup,
    lines: list[str],
    args: argparse.Namespace,
    summary: dict[str, Any],
) -> float | None:
  """The paper's c: a step of the draft over a step of the target.

  Args:
    pair: target, draft, vocabulary.
    lines: what to decode with the draft model alone.
    args: as for `decode_lines`.
    summary: of `decode_lines` with `compare`, for the target's time.

  Returns:
    Ratio of the times per token of the two models decoding alone; None where
    the draft is not a model and nothing else.
  """
  if not isinstance(pair.draft, ModelDraft) or pair.draft_model is None:
    return None
  decoder = _Decoder(functools.partial(_alone, pair.draft_model), args.repeats)
  keys = sampling.row_keys(jax.random.key(args.seed), len(lines))
  for batch in _batches(pair, lines, args):
    decoder(batch['text'], batch['real'], **_options(batch, args, keys))
  per_token = summary['target_alone']['ms_per_token']
  return decoder.summary()['ms_per_token'] / per_token


def _as_arguments(model: pairs.Model, text: np.ndarray) -> dict[str, Any]:
  """Padded text as encoder inputs, or as a decoder-only model's prompts."""
  if model.decoder.config.decoder_only:
    return {'inputs': None, 'prompts': text}
  return {'inputs': text}


def _alone(model: pairs.Model, text: np.ndarray, **options) -> DecodeResult:
  return t5x_specdec.autoregressive_decode(
      model.decoder, model.params, **_as_arguments(model, text), **options
  )


def _options(
    batch: dict[str, Any], args: argparse.Namespace, keys: jax.Array
) -> dict[str, Any]:
  """What a batch is decoded with, whoever decodes it."""
  rows = np.arange(len(batch['text']))
  rows = batch['start'] + np.where(rows < batch['real'], rows, 0)
  return {
      'max_decode_len': args.max_decode_len + batch['prompt_len'],
      'temperature': args.temperature,
      'topk': args.topk,
      'topp': args.topp,
      'num_decodes': args.num_decodes,
      'rescale_log_probs': False,
      'row_keys': keys[rows],
      # A prompt is part of the text, so its room must not be generated into.
      'max_decode_steps': args.max_decode_len if batch['prompt_len'] else None,
  }


def _batches(
    pair: Setup, lines: list[str], args: argparse.Namespace, first: int = 0
) -> Iterator[dict[str, Any]]:
  """Pads lines from the one of index `first` on to batches of few shapes.

  Yields:
    start: index of the first line; text: int32[batch, bucket]; real: rows that
    are lines, the others copies of the first; truncated: bool[real];
    prompt_len: bucket of a decoder-only model's prompts, else 0.
  """
  decoder_only = pair.target.decoder.config.decoder_only
  for start in range(first, len(lines), args.batch_size):
    chunk = lines[start : start + args.batch_size]
    tail = [] if decoder_only else [EOS_ID]
    ids = [
        _encode(pair, line, start + i + 1) for i, line in enumerate(chunk)
    ]
    limit = args.max_input_len - len(tail)
    truncated = [len(row) > limit for row in ids]
    ids = [row[:limit] + tail for row in ids]
    bucket = _SMALLEST_BUCKET
    while bucket < max(map(len, ids)):
      bucket *= 2
    bucket = min(bucket, args.max_input_len)
    text = np.zeros([args.batch_size, bucket], np.int32)
    for i in range(args.batch_size):
      # Filler rows repeat the first, key included: none outlasts the others.
      row = ids[i] if i < len(ids) else ids[0]
      text[i, : len(row)] = row
    yield {
        'start': start,
        'text': text,
        'real': len(chunk),
        'truncated': truncated,
        'prompt_len': bucket if decoder_only else 0,
    }


def _encode(pair: Setup, line: str, number: int) -> list[int]:
  """Ids of a line; raises ValueError where the models have no row for one."""
  ids = pair.vocabulary.encode(line)
  size = pair.target.decoder.vocab_size
  if max(ids, default=0) >= size:
    raise ValueError(
        f'line {number} holds a sentinel of {pair.vocabulary.path} with id '
        f'{max(ids)}, but the models score only {size} ids'
    )
  return ids


def number(value: float | None, form: str = '.2f') -> str:
  """A figure for a person, 'n/a' where there is none."""
  return 'n/a' if value is None else format(value, form)


def describe(summary: dict[str, Any]) -> str:
  """The summary in a few lines for a person."""
  text = [
      f'{summary["lines"]} lines, {summary["emitted"]} tokens in '
      f'{summary["rounds"]} target calls: '
      f'{number(summary["tokens_per_target_call"])} tokens per call at gamma '
      f'{summary["gamma"]}',
      f'alpha {number(summary["alpha"], ".3f")} (Corollary 3.6), '
      f'{number(summary["alpha_empirical"], ".3f")} of the judged drafts '
      'accepted',
      f'{number(summary["ms_per_token"])} ms per token '
      f'(first calls, compilation included: '
      f'{summary["first_call_seconds"]:.1f} s)',
  ]
  if summary['gamma'] == 0:
    text.append('drafts do not pay here: decoded plainly, at gamma 0')
  if summary['gamma'] == 'adaptive':
    rounds = enumerate(summary['rounds_by_gamma'])
    shares = (f'{count} at gamma {gamma}' for gamma, count in rounds if count)
    text.append(f'calls: {", ".join(shares)}')
  if summary['nonfinite']:
    text.append(
        f'WARNING: the target gave NaN or inf in {summary["nonfinite"]} rounds'
    )
  if 'target_alone' in summary:
    verdict = {True: 'identical', False: 'DIFFERENT', None: 'sampled'}
    text.append(
        f'target alone: {number(summary["target_alone"]["ms_per_token"])} ms '
        f'per token; speed-up {number(summary["speedup"])}x; texts '
        f'{verdict[summary["identical"]]}'
    )
  return '\n'.join(text)
