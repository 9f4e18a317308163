# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What XLA makes of the decoding loop: nothing is copied or computed twice.

These tests read optimized programs for a CPU, compiled for shapes alone. Every
dimension of the models is a number of its own, so that a shape tells what it is
of.
"""

from __future__ import annotations

from collections.abc import Iterator
import functools
import math
from typing import Any

import helpers
import hlo
import pytest

from t5x_specdec import parameters
from t5x_specdec.parameters import T5Config

TARGET = T5Config(
    vocab_size=8009,
    emb_dim=48,
    num_heads=3,
    num_encoder_layers=1,
    num_decoder_layers=2,
    head_dim=20,
    mlp_dim=112,
    mlp_activations=('gelu', 'linear'),
)
DRAFT = T5Config(
    vocab_size=8009,
    emb_dim=34,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    head_dim=14,
    mlp_dim=72,
    mlp_activations=('gelu', 'linear'),
)
INPUTS = 11
TEXT = 41
# What hands an array on without touching it.
_PASSES = {'parameter', 'get-tuple-element', 'tuple', 'while', 'bitcast'}
# What writes a block into a cache, and the fusion that it is done in.
_WRITES = {'dynamic-update-slice', 'scatter', 'fusion'}

# Floats that the loop holds for every logit of a round, but for a gamma of 1,
# where each array of one place is half of them (docs/performance.md).
HELD = 4
HELD_AT_GAMMA_1 = 4.75

# Rows and drafts per round; without drafts, plain decoding.
CASES = [(1, 0), (1, 4), (3, 0), (3, 1)]

# Optimized for real: half a minute for all.
pytestmark = [pytest.mark.slow, pytest.mark.optimized]


@functools.cache
def compiled(batch: int, gamma: int) -> Any:
  """The whole decode, compiled for shapes."""
  return helpers.compile_decode(
      TARGET,
      DRAFT if gamma else None,
      batch=batch,
      input_len=INPUTS,
      text_len=TEXT,
      gamma=gamma,
  )


@functools.cache
def program(batch: int, gamma: int) -> tuple[hlo.Program, hlo.Instruction]:
  """The program, and its loop over rounds."""
  found = hlo.Program(compiled(batch, gamma).as_text())
  loops = [i for i in found.entry if i.opcode == 'while']
  assert loops
  return found, max(loops, key=lambda i: len(i.shapes))


def models(gamma: int) -> tuple[T5Config, ...]:
  return (TARGET, DRAFT) if gamma else (TARGET,)


def slots(gamma: int) -> int:
  return TEXT + gamma + 2


def key(shape: tuple[int, ...]) -> tuple[int, ...]:
  """A shape whatever the order of its axes, without those of size 1."""
  return tuple(sorted(size for size in shape if size != 1))


def cache(config: T5Config, batch: int, gamma: int) -> tuple[int, ...]:
  return key((batch, config.num_heads, slots(gamma), config.head_dim))


def weights(config: T5Config) -> set[tuple[int, ...]]:
  """The matrices of a model."""
  shapes = parameters.param_shapes(config).values()
  return {key(shape) for shape in shapes if math.prod(shape) > 1000}


def with_shape(
    instructions: Iterator[hlo.Instruction], *shapes: tuple[int, ...]
) -> list[hlo.Instruction]:
  """Those whose result, or a part of it, is of one of these shapes."""
  return [i for i in instructions if any(key(s) in shapes for s in i.shapes)]


@pytest.mark.parametrize('batch, gamma', CASES)
def test_loop_only_hands_weights_on_and_multiplies(batch, gamma):
  found, rounds = program(batch, gamma)
  shapes = set.union(*map(weights, models(gamma)))
  touched = with_shape(found.within(rounds), *shapes)
  assert {key(s) for i in touched for s in i.shapes} >= shapes
  assert {i.opcode for i in touched} <= _PASSES


@pytest.mark.parametrize('batch, gamma', CASES)
def test_caches_are_carried_once_and_written_in_place(batch, gamma):
  found, rounds = program(batch, gamma)
  for config in models(gamma):
    shape = cache(config, batch, gamma)
    count = 2 * config.num_decoder_layers
    assert [key(s) for s in rounds.shapes].count(shape) == count
    inside = with_shape(found.within(rounds), shape)
    for instruction in inside:
      if instruction.opcode == 'while':
        assert [key(s) for s in instruction.shapes].count(shape) == count
    # A fusion that yields a cache has written a block into one that it took.
    for instruction in inside:
      if instruction.opcode == 'fusion':
        parts = {i.opcode for i in found.within(instruction)}
        assert parts & (_WRITES - {'fusion'}), instruction.text


@pytest.mark.parametrize('batch, gamma', CASES)
def test_no_cache_is_copied(batch, gamma):
  found, rounds = program(batch, gamma)
  for config in models(gamma):
    inside = with_shape(found.within(rounds), cache(config, batch, gamma))
    others = [i.opcode for i in inside if i.opcode not in _PASSES | _WRITES]
    assert others == []


@pytest.mark.parametrize('batch, gamma', CASES)
def test_no_bias_of_all_positions_by_all_positions(batch, gamma):
  found, _ = program(batch, gamma)
  length = slots(gamma)
  assert any(length in s for i in found.all for s in i.shapes)
  square = [
      i.text for i in found.all if any(s.count(length) > 1 for s in i.shapes)
  ]
  assert square == []


@pytest.mark.parametrize('batch, gamma', CASES)
def test_cross_attention_is_projected_once(batch, gamma):
  found, rounds = program(batch, gamma)
  rest = [i for i in found.entry if i is not rounds]
  outside = [*rest, *(j for i in rest for j in found.within(i))]
  for config in models(gamma):
    size = batch * INPUTS * config.num_heads * config.head_dim

    def projections(instructions, size=size):
      return [
          i
          for i in instructions
          if i.opcode == 'dot' and math.prod(i.shapes[0]) == size
      ]

    assert projections(found.within(rounds)) == []
    # Keys and values of every layer, and the encoder's own.
    assert len(projections(outside)) >= 2 * config.num_decoder_layers


@pytest.mark.parametrize('batch, gamma', [c for c in CASES if c[1]])
def test_temporaries_are_a_few_floats_a_logit_and_every_cache_once(
    batch, gamma
):
  logits = batch * (gamma + 1) * TARGET.vocab_size
  kept = 0
  for config in models(gamma):
    heads = config.num_heads * config.head_dim * config.num_decoder_layers
    kept += 2 * batch * heads * (slots(gamma) + INPUTS)
  held = compiled(batch, gamma).memory_analysis().temp_size_in_bytes
  most = HELD if gamma > 1 else HELD_AT_GAMMA_1
  assert 4 * kept < held <= 4 * (most * logits + kept)


def test_programs_are_read_to_the_bottom():
  text = '''HloModule jit_f, entry_computation_layout={(f32[5,7]{1,0})->f32[]}

%fused (param_0: f32[5,7]) -> f32[7,5] {
  %param_0 = f32[5,7]{1,0} parameter(0)
  ROOT %turned = f32[7,5]{1,0} transpose(%param_0), dimensions={1,0}
}

%body.1 (arg: (f32[5,7], /*index=1*/s32[])) -> (f32[5,7], s32[]) {
  %arg = (f32[5,7]{1,0}, /*index=1*/s32[]) parameter(0)
  %get.1 = f32[5,7]{1,0} get-tuple-element(%arg), index=0
  %copy.1 = f32[5,7]{0,1} copy(%get.1), metadata={op_name="while(x)/copy"}
  %turned = f32[7,5]{1,0} fusion(%copy.1), kind=kLoop, calls=%fused
  ROOT %tuple.1 = (f32[5,7]{1,0}, s32[]) tuple(%copy.1, %turned)
}

ENTRY %main (x: f32[5,7]) -> f32[] {
  %x = f32[5,7]{1,0} parameter(0)
  ROOT %loop = (f32[5,7]{1,0}, s32[]) while(%x), body=%body.1
}
'''
  found = hlo.Program(text)
  assert [i.opcode for i in found.entry] == ['parameter', 'while']
  step = found.entry[1]
  assert step.shapes == ((5, 7), ())
  inside = [(i.opcode, i.shapes[0]) for i in found.within(step)]
  assert sorted(inside) == [
      ('copy', (5, 7)),
      ('fusion', (7, 5)),
      ('get-tuple-element', (5, 7)),
      ('parameter', (5, 7)),
      ('parameter', (5, 7)),
      ('transpose', (7, 5)),
      ('tuple', (5, 7)),
  ]
  assert len(with_shape(found.within(step), key((7, 5)))) == 7
