# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures what `planner` needs to know of a pair, in this process.

Costs come from `pieces`, repeats of all of them interleaved; all are over one
step of plain decoding, sampling included. What drafts yield is counted while a
sample of texts is decoded, for each gamma and by both rules of verification: so
it is right also where acceptances within a text hang together, or texts end.
"""

from __future__ import annotations

from collections.abc import Callable
import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import t5x_specdec
from t5x_specdec import parameters
from t5x_specdec import planner
from t5x_specdec import sampling
from t5x_specdec.benchmarks import machine
from t5x_specdec.benchmarks import pieces
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks.workloads import Workload
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.network import T5
from t5x_specdec.pair import Model
from t5x_specdec.planner import Calibration
from t5x_specdec.planner import Estimate
from t5x_specdec.sampling import Method
from t5x_specdec.stats import Stats
from t5x_specdec.vocabulary import EOS_ID

GAMMAS = (1, 2, 3, 4, 5, 6, 7, 8)


def models(workload: Workload) -> tuple[Model, Model]:
  """Target and draft of a workload on the device, prepared for decoding."""
  planted = workload.expected is not None
  leaves = workload.weights()
  if planted:
    leaves = itertools.chain(workload.random_weights(), leaves)
  flat: dict[str, dict[parameters.Path, Any]] = {'target': {}, 'draft': {}}
  for model, path, leaf in leaves:
    flat[model][tuple(path)] = jnp.asarray(leaf)
  built = []
  for name, config in workload.configs.items():
    decoder = T5(config)
    params = jax.jit(decoder.prepare)(parameters.unflatten(flat.pop(name)))
    built.append(Model(decoder, params, name, 0))
  return built[0], built[1]


def calibrate(
    target: Model,
    draft: Model,
    inputs: np.ndarray,
    *,
    output_len: int,
    gammas: tuple[int, ...] = GAMMAS,
    temperature: float = 0.0,
    topk: int = 0,
    topp: float = 0.0,
    alpha: float | None = None,
    repeats: int = 5,
    seed: int = 0,
    verification: str = 'block',
    names: tuple[str, str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Calibration:
  """Measures costs and acceptance of a pair.

  Args:
    target: with an encoder; as `pair.read_pair` has it.
    draft: likewise.
    inputs: int32[batches, batch, S], 0 at padding.
    output_len: most tokens of a text.
    gammas: drafts per round, >= 1, rising; 0 is added.
    temperature: of the sampling method; 0 for greedy.
    topk: 0 for no cutoff.
    topp: 0 for no cutoff.
    alpha: where it is known, acceptances being independent; no sample is
      decoded then. Only for batches of one row.
    repeats: of each cost.
    seed: of the samples.
    verification: rule whose costs are measured.
    names: of target and draft, for people; default their paths.
    tell: called with what is done next.

  Returns:
    The calibration.

  Raises:
    ValueError: for a decoder-only pair, gammas that do not rise from 1 or do
      not fit `output_len`, or alpha for several rows.
  """
  _check(target, draft, inputs, output_len, gammas, alpha, repeats)
  method = {'temperature': temperature, 'topk': topk, 'topp': topp}
  tell('decoding with the target alone')
  alone = jax.device_get(
      t5x_specdec.autoregressive_decode(
          target.decoder,
          target.params,
          inputs[0],
          max_decode_len=output_len,
          rng=jax.random.key(seed),
          **method,
      )
  )
  text_len = float(alone.stats.emitted.max())
  costs = _costs(
      target,
      draft,
      inputs[0],
      alone.tokens[:, 0],
      output_len,
      gammas,
      Method(
          temperature=jnp.full(len(inputs[0]), temperature, jnp.float32),
          topk=jnp.int32(topk),
          topp=jnp.float32(topp),
      ),
      verification,
      repeats,
      tell,
  )
  found, tokens = Estimate(alpha) if alpha is not None else None, {}
  if found is None:
    found, tokens, text_len = _sample(
        target, draft, inputs, output_len, gammas, method, seed, tell
    )
  configs = {'target': target.decoder.config, 'draft': draft.decoder.config}
  step = costs['judge', 0]
  steps = {
      name: shapes.step_bytes(config) / jnp.dtype(config.dtype).itemsize
      for name, config in configs.items()
  }
  return Calibration(
      target=names[0] if names else target.path,
      draft=names[1] if names else draft.path,
      gammas=[0, *gammas],
      d=[0.0, *(costs['draft', gamma] / step for gamma in gammas)],
      v=[1.0, *(costs['judge', gamma] / step for gamma in gammas)],
      alpha=found,
      tokens=tokens,
      c=costs['draft_step', 0] / step,
      # A product of a row and a matrix takes two operations per parameter.
      c_hat=steps['draft'] / steps['target'],
      step_ms=1e3 * step,
      encode_ms={
          'target': 1e3 * costs['encode', 0],
          'pair': 1e3 * (costs['encode', 0] + costs['encode_draft', 0]),
      },
      text_len=text_len,
      settings=method
      | {
          'batch_size': int(inputs.shape[1]),
          'input_len': int(inputs.shape[2]),
          'output_len': output_len,
          'dtype': target.decoder.config.dtype,
          'texts': 0 if alpha is not None else int(np.prod(inputs.shape[:2])),
          'verification': verification,
          'repeats': repeats,
          'seed': seed,
      },
      parameters={
          name: shapes.parameter_count(config)
          for name, config in configs.items()
      },
      memory_bytes={
          name: shapes.parameter_bytes(config)
          for name, config in configs.items()
      },
      machine=machine.describe()
      | {'device': jax.devices()[0].device_kind, 'jax': jax.__version__},
  )


def _check(target, draft, inputs, output_len, gammas, alpha, repeats) -> None:
  """Raises ValueError, naming the argument and its value."""
  for name, model in (('target', target), ('draft', draft)):
    if model.decoder.config.decoder_only:
      raise ValueError(f'the {name} is decoder-only: not calibrated')
  if np.ndim(inputs) != 3 or not np.size(inputs):
    raise ValueError(
        f'inputs must be int32[batches, batch, S], got {np.shape(inputs)}'
    )
  if list(gammas) != sorted(set(gammas)) or not gammas or gammas[0] < 1:
    raise ValueError(f'gammas must rise, from 1 or more, got {gammas}')
  if gammas[-1] >= output_len:
    raise ValueError(
        f'gammas must be under output_len={output_len}, got {gammas[-1]}'
    )
  if alpha is not None and inputs.shape[1] > 1:
    raise ValueError(
        f'alpha is given, but how long {inputs.shape[1]} rows of a batch wait '
        'for each other only a sample tells: use a batch of 1'
    )
  if repeats < 1:
    raise ValueError(f'repeats must be >= 1, got {repeats}')


def _costs(
    target: Model,
    draft: Model,
    inputs: np.ndarray,
    tokens: np.ndarray,
    output_len: int,
    gammas: tuple[int, ...],
    method: Method,
    verification: str,
    repeats: int,
    tell: Callable[[str], None],
) -> dict[tuple[str, int], float]:
  """Medians in seconds per step, by the kind of step and gamma.

  Args:
    target: the target.
    draft: the draft.
    inputs: int32[batch, S].
    tokens: int32[batch, output_len], texts of these inputs.
    output_len: length of the texts.
    gammas: to measure.
    method: temperature, top-k, top-p.
    verification: a key of `acceptance.RULES`.
    repeats: of everything.
    tell: called with what is done next.
  """
  rows, width = len(inputs), output_len + gammas[-1] + 2
  empty = np.zeros([rows, 0], np.int32)
  model = ModelDraft(draft.decoder)
  used = int(np.max(np.sum(tokens != 0, axis=1)))
  text = np.pad(tokens[:, :used], ((0, 0), (1, width - used - 1)))
  positions = pieces.spread(0, max(used - 1, 1))

  def encode():
    return pieces.encode(
        target.params,
        inputs,
        empty,
        decoder=target.decoder,
        rows=rows,
        max_len=width,
    )

  def encode_draft():
    return pieces.encode_draft(
        draft.params, inputs, empty, draft=model, max_len=width
    )

  whole: dict[tuple[str, int], Callable[[], Any]] = {
      ('encode', 0): lambda: jax.block_until_ready(encode()),
      ('encode_draft', 0): lambda: jax.block_until_ready(encode_draft()),
  }
  steps: dict[tuple[str, int], Callable[[], Any]] = {
      ('draft_step', 0): pieces.blocks(
          draft.decoder, draft.params, encode_draft().cache, text, positions, 1
      )
  }
  for gamma in (0, *gammas):
    steps['judge', gamma] = pieces.judgements(
        target.decoder,
        target.params,
        encode(),
        text,
        positions,
        method,
        gamma,
        verification,
    )
    if gamma:
      steps['draft', gamma] = pieces.proposals(
          model,
          draft.params,
          encode_draft(),
          text,
          positions,
          method,
          gamma,
      )
  seconds: dict[tuple[str, int], list[float]] = {}
  for repeat in range(repeats + 1):
    tell(f'repeat {repeat} of {repeats}' if repeat else 'compiling')
    for case, function in (whole | steps).items():
      start = time.perf_counter()
      function()
      if repeat:  # the first compiles
        count = len(positions) if case in steps else 1
        passed = (time.perf_counter() - start) / count
        seconds.setdefault(case, []).append(passed)
  return {case: float(np.median(times)) for case, times in seconds.items()}


def _sample(
    target: Model,
    draft: Model,
    inputs: np.ndarray,
    output_len: int,
    gammas: tuple[int, ...],
    method: dict[str, Any],
    seed: int,
    tell: Callable[[str], None],
) -> tuple[Estimate, dict[str, list[Estimate]], float]:
  """Alpha, tokens per call by rule and gamma, and the mean text's length.

  Rows of a batch wait for the slowest: tokens per call are the steps that the
  longest text would take alone, over the rounds of the slowest row.
  """
  greedy = method['temperature'] <= sampling.MIN_TEMPERATURE
  tokens: dict[str, list[Estimate]] = {}
  alpha, text_len = None, 0.0
  for rule in ('token',) if greedy else ('token', 'block'):
    tokens[rule] = [Estimate(1.0)]
    for gamma in gammas:
      tell(f'decoding a sample at gamma {gamma}, by {rule}s')
      counters: list[Stats] = []
      for i, batch in enumerate(inputs):
        result = t5x_specdec.speculative_decode(
            target.decoder,
            draft.decoder,
            target.params,
            draft.params,
            batch,
            max_decode_len=output_len,
            gamma=gamma,
            eos_id=EOS_ID,
            rng=jax.random.fold_in(jax.random.key(seed), i),
            verification=rule,
            **method,
        )
        counters.append(jax.device_get(result.stats))
      longest = np.array([c.emitted.max() for c in counters])
      slowest = np.array([c.rounds.max() for c in counters])
      tokens[rule].append(planner.ratio_estimate(longest, slowest))
      if rule == 'token':
        alpha = planner.ratio_estimate(
            np.concatenate([c.overlap[:, 0] for c in counters]),
            np.concatenate([c.judged[:, 0] for c in counters]),
        )
        text_len = float(longest.mean())
  if greedy:
    tokens['block'] = tokens['token']  # the two are one
  assert alpha is not None
  return alpha, tokens, text_len
