# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures what `planner` needs to know of a pair, in this process.

What drafts yield is counted while a sample of texts is decoded, for each gamma
and by both rules of verification: so it is right also where acceptances within
a text hang together, or texts end.
"""

from __future__ import annotations

from collections.abc import Callable
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import t5x_specdec
from t5x_specdec import parameters
from t5x_specdec import preparation
from t5x_specdec import resampling
from t5x_specdec import sampling
from t5x_specdec.benchmarks import costs
from t5x_specdec.benchmarks import machine
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks.workloads import Workload
from t5x_specdec.calibration import Calibration
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config
from t5x_specdec.resampling import Estimate
from t5x_specdec.sampling import Method
from t5x_specdec.stats import Stats
from t5x_specdec.vocabulary import EOS_ID

GAMMAS = (1, 2, 3, 4, 5, 6, 7, 8)


class Pair(NamedTuple):
  """A target and what drafts for it, on the device and prepared.

  Attributes:
    target: the target's network.
    target_params: its parameters.
    draft: where drafts come from.
    draft_params: its parameters.
    configs: shapes of the models by 'target' and, where it has one, 'draft'.
  """

  target: T5
  target_params: PyTree
  draft: Draft
  draft_params: PyTree
  configs: dict[str, T5Config]


def pair(workload: Workload) -> Pair:
  """The pair of a workload, as `pair.read_model` prepares models."""
  planted = workload.expected is not None
  leaves = workload.weights()
  if planted:
    leaves = itertools.chain(workload.random_weights(), leaves)
  flat: dict[str, dict[parameters.Path, Any]] = {}
  for model, path, leaf in leaves:
    flat.setdefault(model, {})[tuple(path)] = jnp.asarray(leaf)
  built = {}
  for name, config in workload.configs.items():
    built[name] = (
        T5(config),
        # Held by nobody else, so that what is laid out is not there twice.
        preparation.ready(parameters.unflatten(flat.pop(name)), config),
    )
  draft, draft_params = kinds.make(
      workload.kind,
      workload.target.vocab_size,
      model=built.get('draft'),
      table=None if workload.table is None else ngram.load(workload.table),
  )
  if 'draft' not in built:
    draft_params = draft.prepare(draft_params)
  target, target_params = built['target']
  return Pair(target, target_params, draft, draft_params, workload.configs)


def calibrate(
    pair: Pair,
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
    names: tuple[str, str] = ('target', 'draft'),
    tell: Callable[[str], None] = lambda text: None,
) -> Calibration:
  """Measures costs and acceptance of a pair.

  Args:
    pair: with encoders, if it has a draft model.
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
    names: of target and draft, for people.
    tell: called with what is done next.

  Returns:
    The calibration.

  Raises:
    ValueError: for a decoder-only pair, gammas that do not rise from 1 or do
      not fit `output_len`, or alpha for several rows.
  """
  _check(pair, inputs, output_len, gammas, alpha, repeats)
  method = {'temperature': temperature, 'topk': topk, 'topp': topp}
  tell('decoding with the target alone')
  alone = jax.device_get(
      t5x_specdec.autoregressive_decode(
          pair.target,
          pair.target_params,
          inputs[0],
          max_decode_len=output_len,
          rng=jax.random.key(seed),
          **method,
      )
  )
  text, text_len = alone.tokens[:, 0], float(alone.stats.emitted.max())
  found = costs.measure(
      *pair[:4],
      inputs[0],
      text[:, : int(np.max(np.sum(text != 0, axis=1)))],
      Method(
          temperature=jnp.full(len(inputs[0]), temperature, jnp.float32),
          topk=jnp.int32(topk),
          topp=jnp.float32(topp),
      ),
      gammas=gammas,
      verification=verification,
      repeats=repeats,
      tell=tell,
  )
  rate, tokens = Estimate(alpha) if alpha is not None else None, {}
  if rate is None:
    rate, tokens, text_len = _sample(
        pair, inputs, output_len, gammas, method, seed, tell
    )
  configs = pair.configs
  operations = {
      name: shapes.step_bytes(config) / jnp.dtype(config.dtype).itemsize
      for name, config in configs.items()
  }
  return Calibration(
      target=names[0],
      draft=names[1],
      gammas=found.gammas,
      d=found.d,
      v=found.v,
      alpha=rate,
      tokens=tokens,
      c=found.c,
      # A product of a row and a matrix takes two operations per parameter;
      # drafts without a model take none to speak of.
      c_hat=operations.get('draft', 0.0) / operations['target'],
      step_ms=1e3 * found.step_seconds,
      encode_ms={
          name: 1e3 * seconds for name, seconds in found.encode_seconds.items()
      },
      text_len=text_len,
      settings=method
      | {
          'batch_size': int(inputs.shape[1]),
          'input_len': int(inputs.shape[2]),
          'output_len': output_len,
          'dtype': pair.target.config.dtype,
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
          name: sum(leaf.nbytes for leaf in jax.tree.leaves(params))
          for name, params in (
              ('target', pair.target_params),
              ('draft', pair.draft_params),
          )
      },
      machine=machine.describe()
      | {'device': jax.devices()[0].device_kind, 'jax': jax.__version__},
  )


def _check(pair, inputs, output_len, gammas, alpha, repeats) -> None:
  """Raises ValueError, naming the argument and its value."""
  for name, config in pair.configs.items():
    if config.decoder_only:
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


def _sample(
    pair: Pair,
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
            pair.target,
            pair.draft,
            pair.target_params,
            pair.draft_params,
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
      tokens[rule].append(resampling.ratio(longest, slowest))
      if rule == 'token':
        overlap, judged = (
            np.concatenate([getattr(c, name)[:, 0] for c in counters])
            for name in ('overlap', 'judged')
        )
        # Lookup may have found nothing in any of the texts.
        alpha = Estimate(0.0)
        if judged.any():
          alpha = resampling.ratio(overlap, judged)
        text_len = float(longest.mean())
  if greedy:
    tokens['block'] = tokens['token']  # the two are one
  assert alpha is not None
  return alpha, tokens, text_len
