# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The programs that are compared, compiled for shapes alone."""

from __future__ import annotations

import functools
import math
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accelerator.stock import StockT5
from accelerator.work import block_work
from accelerator.work import Work
from t5x_specdec import loop
from t5x_specdec import parameters
from t5x_specdec.drafts import as_draft
from t5x_specdec.drafts import NoDraft
from t5x_specdec.gamma import Fixed
from t5x_specdec.network import T5
from t5x_specdec.parameters import T5Config
from t5x_specdec.sampling import Method


class Cell(NamedTuple):
  """One program.

  Attributes:
    kind: 'stock', 'alone' (ours without drafts) or 'speculative'.
    batch: rows.
    gamma: drafts per round, 0 without.
  """

  kind: str
  batch: int
  gamma: int

  def __str__(self):
    name = f'{self.kind}, {self.batch} rows'
    return f'{name}, gamma {self.gamma}' if self.gamma else name


class Setting(NamedTuple):
  """The models and lengths, in tokens."""

  target: T5Config
  draft: T5Config
  inputs: int
  outputs: int

  def slots(self, gamma: int) -> int:
    """Cache slots, of which attention reads every one in every step."""
    return self.outputs + 1 + gamma + 2


def compile_cell(cell: Cell, setting: Setting, device: Any) -> Any:
  """Compiles one way of decoding, for shapes alone.

  Args:
    cell: what.
    setting: the models and lengths.
    device: for which; it may be only described.

  Returns:
    The compiled `loop.decode`.
  """
  sharding = jax.sharding.SingleDeviceSharding(device)
  shape: Any = functools.partial(jax.ShapeDtypeStruct, sharding=sharding)

  def tree(config):
    leaves = parameters.param_shapes(config).items()
    return parameters.unflatten(
        {path: shape(dims, config.dtype) for path, dims in leaves}
    )

  batch = cell.batch
  keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch))
  speculative = cell.kind == 'speculative'
  return loop.decode.lower(
      tree(setting.target),
      tree(setting.draft) if speculative else {},
      shape([batch, setting.inputs], jnp.int32),
      shape([batch, 1], jnp.int32),
      shape(keys.shape, keys.dtype),
      Method(
          temperature=shape([batch], jnp.float32),
          topk=shape([], jnp.int32),
          topp=shape([], jnp.float32),
      ),
      shape([], jnp.int32),
      shape([], jnp.int32),
      target=(StockT5 if cell.kind == 'stock' else T5)(setting.target),
      draft=as_draft(T5(setting.draft)) if speculative else NoDraft(),
      max_decode_len=setting.outputs + 1,
      policy=Fixed(cell.gamma),
      num_decodes=1,
      rescale_log_probs=True,
      verification='block',
      lenience=1.0,
      trace=False,
  ).compile()


def arguments(cell: Cell, setting: Setting, length: int) -> tuple[Any, ...]:
  """What a cell's program takes after the parameters.

  Args:
    cell: which.
    setting: the models and lengths.
    length: tokens to generate, at most those of the setting.

  Returns:
    Inputs int32[batch, inputs], prompts int32[batch, 1] (every row opens with a
    token of its own), keys, greedy sampling, EOS and length.
  """
  rng = np.random.default_rng(cell.batch)
  vocab = setting.target.vocab_size
  starts = rng.choice(np.arange(2, vocab, dtype=np.int32), cell.batch)
  inputs = rng.integers(2, vocab, [cell.batch, setting.inputs], np.int32)
  return (
      inputs,
      starts[:, None],
      jax.random.split(jax.random.key(0), cell.batch),
      Method(jnp.zeros([cell.batch]), jnp.int32(0), jnp.float32(0)),
      jnp.int32(1),
      jnp.int32(length),
  )


def cell_work(cell: Cell, setting: Setting) -> list[Work]:
  """What one round must do: its draft steps, then the target's block.

  For 'stock' that is what our own step must do too: what T5X does besides
  counts as lost.
  """
  slots = setting.slots(cell.gamma)
  step = block_work(setting.draft, cell.batch, 1, setting.inputs, slots)
  return [step] * cell.gamma + [
      block_work(
          setting.target, cell.batch, cell.gamma + 1, setting.inputs, slots
      )
  ]


def cells_of(text: str) -> dict[int, list[Cell]]:
  """'1:5,8:2' as cells by their rows, after the two without drafts."""
  cells: dict[int, list[Cell]] = {}
  for part in text.split(','):
    if not re.fullmatch(r'[1-9]\d*:[1-9]\d*', part):
      raise ValueError(f'--cells must be ROWS:GAMMA,..., got {text!r}')
    batch, gamma = map(int, part.split(':'))
    alone = [Cell(kind, batch, 0) for kind in ('stock', 'alone')]
    cells.setdefault(batch, alone).append(Cell('speculative', batch, gamma))
  return cells


def xla_counts(program: Any) -> dict[str, float]:
  """What XLA says of a program; of a loop it counts one turn."""
  memory = program.memory_analysis()
  cost = program.cost_analysis() or {}
  return {
      'argument_gib': memory.argument_size_in_bytes / 2**30,
      'temporary_gib': memory.temp_size_in_bytes / 2**30,
      'xla_gigabytes': cost.get('bytes accessed', math.nan) / 1e9,
      'xla_gigaoperations': cost.get('flops', math.nan) / 1e9,
  }
