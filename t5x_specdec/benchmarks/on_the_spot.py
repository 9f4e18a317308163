# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A calibration made in passing, for `--gamma adaptive` and `auto`."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from t5x_specdec import planner
from t5x_specdec.benchmarks import costs
from t5x_specdec.calibration import Calibration
from t5x_specdec.drafts import Draft
from t5x_specdec.gamma import Policy
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.resampling import Estimate
from t5x_specdec.sampling import Method

# Few, since the loop is compiled anew for each of them.
GAMMAS = (1, 2, 3, 5, 7)
# Drafts per round where alpha is measured.
SAMPLE_GAMMA = 3
# Tokens of the input and of the text that costs are measured on.
_LENGTH = 64


def policy(
    word: str,
    calibration: str | None,
    sample: Callable[[], float | None],
    target: T5,
    target_params: PyTree,
    draft: Draft,
    draft_params: PyTree,
    *,
    rows: int,
    verification: str,
) -> Policy:
  """What a word for gamma stands for, by a calibration's file or without.

  Args:
    word: see `planner.policy`.
    calibration: from `t5x-specdec calibrate`; None measures costs here and now.
    sample: alpha of some texts at `SAMPLE_GAMMA`, None where nothing was
      drafted; called only where the word goes by it and no file is given.
    target: the target.
    target_params: prepared for decoding.
    draft: where drafts come from.
    draft_params: its parameters.
    rows: decoded together.
    verification: a key of `acceptance.RULES`.

  Returns:
    The policy.
  """
  found = calibration or calibrate(
      target,
      target_params,
      draft,
      draft_params,
      rows=rows,
      alpha=(sample() or 0.0) if word == 'auto' else 0.0,
      verification=verification,
  )
  return planner.policy(word, found, verification)


def calibrate(
    target: T5,
    target_params: PyTree,
    draft: Draft,
    draft_params: PyTree,
    *,
    rows: int,
    alpha: float,
    verification: str = 'block',
) -> Calibration:
  """Costs on random texts, greedily, in a few seconds.

  Args:
    target: the target.
    target_params: prepared for decoding.
    draft: where drafts come from.
    draft_params: its parameters.
    rows: decoded together.
    alpha: acceptance rate, as far as it is known.
    verification: a key of `acceptance.RULES`.

  Returns:
    What `planner.policy` needs, and no more.
  """
  config = target.config
  rng = np.random.default_rng(0)
  text = rng.integers(2, config.vocab_size, [rows, _LENGTH], dtype=np.int32)
  found = costs.measure(
      target,
      target_params,
      draft,
      draft.prepare(draft_params),
      None if config.decoder_only else text,
      text,
      Method(jnp.zeros(rows), jnp.int32(0), jnp.float32(0)),
      gammas=GAMMAS,
      verification=verification,
  )
  return Calibration(
      target='target',
      draft='draft',
      gammas=found.gammas,
      d=found.d,
      v=found.v,
      alpha=Estimate(alpha),
      c=found.c,
  )
