# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""How long the parts of a decode take, measured on the spot.

Rounds run inside one compiled loop, where no clock can be read, so each part is
compiled and timed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import statistics
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.benchmarks import pieces
from t5x_specdec.cli.setup import Setup
from t5x_specdec.drafts import Chain
from t5x_specdec.sampling import Method

_REPEATS = 3


class Shape(NamedTuple):
  """What is decoded.

  Attributes:
    batch: inputs together.
    rows: decodes of them together, a multiple of the batch.
    input_len: tokens of an input, padding included.
    output_len: tokens of a text, a decoder-only model's prompt not included.
  """

  batch: int
  rows: int
  input_len: int
  output_len: int


class Parts:
  """Times the parts of one setup at one shape; all results are in seconds.

  Drafts are drawn greedily. Of a chain the second source is timed: what a round
  costs where lookup has nothing, which is the dearer one.
  """

  def __init__(self, setup: Setup, shape: Shape, largest_gamma: int):
    config = setup.target.decoder.config
    rng = np.random.default_rng(0)
    first = shape.input_len if config.decoder_only else 1
    self._width = first + shape.output_len + largest_gamma + 2
    self._text = rng.integers(
        2, config.vocab_size, [shape.rows, self._width], dtype=np.int32
    )
    self._positions = pieces.spread(first, first + shape.output_len)
    self._inputs, self._prompt = None, self._text[:, : first - 1]
    if not config.decoder_only:
      self._inputs = rng.integers(
          2,
          config.vocab_size,
          [shape.batch, shape.input_len],
          dtype=np.int32,
      )
    self._target = setup.target
    self._draft, params = setup.draft, setup.draft_params
    if isinstance(self._draft, Chain) and self._draft.then is not None:
      self._draft, params = self._draft.then, params['then']
    self._draft_params = self._draft.prepare(params)

  def encode(self) -> float:
    """What the target does before the first round."""
    return _seconds(lambda: jax.block_until_ready(self._state()))

  def encode_draft(self) -> float:
    """What the draft does before the first round."""
    return _seconds(lambda: jax.block_until_ready(self._draft_state()))

  def verify(self, gamma: int) -> float:
    """One call of the target on gamma + 1 tokens."""
    run = pieces.blocks(
        self._target.decoder,
        self._target.params,
        self._state(),
        self._text,
        self._positions,
        gamma + 1,
    )
    return _seconds(run) / len(self._positions)

  def draft(self, gamma: int) -> float:
    """The whole draft phase of one round; 0 at gamma 0."""
    if not gamma:
      return 0.0
    run = pieces.proposals(
        self._draft,
        self._draft_params,
        self._draft_state(),
        self._text,
        self._positions,
        Method(jnp.zeros(len(self._text)), jnp.int32(0), jnp.float32(0)),
        gamma,
    )
    return _seconds(run) / len(self._positions)

  def milliseconds(self, gammas: Sequence[int]) -> dict[str, object]:
    """Every part, for a run at these gammas.

    Args:
      gammas: those of the run's policy.

    Returns:
      encode, encode_draft and step (the target on one token), in ms; gammas,
      and for each of them draft and verify, in ms.
    """
    return {
        'encode': 1e3 * self.encode(),
        'encode_draft': 1e3 * self.encode_draft(),
        'step': 1e3 * self.verify(0),
        'gammas': list(gammas),
        'draft': [1e3 * self.draft(gamma) for gamma in gammas],
        'verify': [1e3 * self.verify(gamma) for gamma in gammas],
    }

  def _state(self):
    return pieces.encode(
        self._target.params,
        self._inputs,
        self._prompt,
        decoder=self._target.decoder,
        rows=len(self._text),
        max_len=self._width,
    )

  def _draft_state(self):
    return pieces.encode_draft(
        self._draft_params,
        self._inputs,
        self._prompt,
        draft=self._draft,
        max_len=self._width,
    )


def _seconds(run: Callable[[], object]) -> float:
  """Median time of a call, after one that compiles."""
  run()
  seconds = []
  for _ in range(_REPEATS):
    start = time.perf_counter()
    run()
    seconds.append(time.perf_counter() - start)
  return statistics.median(seconds)
