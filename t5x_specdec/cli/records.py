# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The JSON record of a decoded line, its rounds included: what `report` reads.

With `--trace` a record has `trace`, a list of rounds for each decode, and
`run`, what `report` has to know of the run that the line was part of.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.benchmarks import costs
from t5x_specdec.cli.setup import Setup
from t5x_specdec.decoding import DecodeResult
from t5x_specdec.gamma import Policy
from t5x_specdec.sampling import Method
from t5x_specdec.trace import Round
from t5x_specdec.vocabulary import Vocabulary


def of_batch(
    pair: Setup,
    lines: list[str],
    batch: dict[str, Any],
    result: DecodeResult,
) -> Iterator[dict[str, Any]]:
  """One record per line: prediction, scores, statistics, perhaps rounds."""
  for i in range(batch['real']):
    number = batch['start'] + i
    texts = [pair.vocabulary.decode(row) for row in result.tokens[i]]
    stats = jax.tree.map(lambda x, i=i: x[i], result.stats)
    single = len(texts) == 1
    scores = _finite(result.scores[i])
    record = {
        'line': number + 1,
        'input': lines[number],
        'truncated': batch['truncated'][i],
        'prediction': texts[0] if single else texts,
        'aux': {'scores': scores[0] if single else scores, **stats.summary()},
    }
    if result.trace is not None:
      traces = [
          [
              _round(entry, pair.vocabulary)
              for entry in result.trace.rounds((i, d), result.tokens[i, d])
          ]
          for d in range(len(texts))
      ]
      record['trace'] = traces[0] if single else traces
    yield record


def _finite(values) -> list[float | None]:
  """Floats; None for what JSON has no word for, as a target that overflows."""
  return [float(x) if np.isfinite(x) else None for x in values]


def _round(entry: Round, vocabulary: Vocabulary) -> dict[str, Any]:
  """A round with its tokens' pieces, so that it reads without a vocabulary."""
  follows = entry.next_token
  return entry._asdict() | {
      'p': _finite(entry.p),
      'q': _finite(entry.q),
      'pieces': [vocabulary.piece(token) for token in entry.drafted],
      'next_piece': None if follows is None else vocabulary.piece(follows),
  }


def of_run(
    pair: Setup,
    args: argparse.Namespace,
    policy: Policy,
    batch: dict[str, Any],
) -> dict[str, Any]:
  """What every record of a run says of it; measures the parts of a decode.

  Args:
    pair: target, draft, vocabulary.
    args: as for `runner.decode_lines`.
    policy: of gamma.
    batch: the run's first, whose shape is timed.

  Returns:
    temperature; verification; gamma, as it was asked for; abstains, whether a
    round without drafts costs the target one token's time; rows, of a batch;
    parts_ms: encode, encode_draft and step (the target on one token), in ms;
      gammas of the policy, and for each of them draft and verify, in ms.
  """
  size, length = batch['text'].shape
  rows = size * args.num_decodes
  return {
      'temperature': args.temperature,
      'verification': args.verification,
      'gamma': args.gamma,
      'abstains': pair.draft.may_abstain,
      'rows': rows,
      'parts_ms': _parts(pair, args, policy.gammas, batch['text'], rows),
  }


def _parts(
    pair: Setup,
    args: argparse.Namespace,
    gammas: tuple[int, ...],
    inputs: np.ndarray,
    rows: int,
) -> dict[str, Any]:
  """Rounds run inside one loop, without a clock: so they are timed apart.

  Texts are random; a decoder-only model's prompts are as long as the inputs.
  """
  config = pair.target.decoder.config
  prompt_len = inputs.shape[1] if config.decoder_only else 0
  used = prompt_len + args.max_decode_len
  text = np.random.default_rng(0).integers(
      2, config.vocab_size, [rows, used], dtype=np.int32
  )
  found = costs.measure(
      pair.target.decoder,
      pair.target.params,
      pair.draft,
      pair.draft.prepare(pair.draft_params),
      None if config.decoder_only else inputs,
      text,
      Method(
          jnp.full(rows, args.temperature, jnp.float32),
          jnp.int32(args.topk),
          jnp.float32(args.topp),
      ),
      gammas=[gamma for gamma in gammas if gamma] or [1],
      prompt_len=prompt_len,
      verification=args.verification,
  )
  step = 1e3 * found.step_seconds
  at = [found.gammas.index(gamma) for gamma in gammas]
  encode = found.encode_seconds
  return {
      'encode': 1e3 * encode['target'],
      'encode_draft': 1e3 * (encode['pair'] - encode['target']),
      'step': step,
      'gammas': list(gammas),
      'draft': [step * found.d[i] for i in at],
      'verify': [step * found.v[i] for i in at],
  }
