# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles name the phases of a decode: encode, draft, verify, accept."""

import re

import helpers
import jax
import numpy as np
import pytest

import t5x_specdec

PHASES = ['encode', 'draft', 'verify', 'accept']


CONFIG = helpers.CONFIGS['t5_1_1']


def decode(target, draft):
  return t5x_specdec.speculative_decode(
      t5x_specdec.T5(CONFIG),
      t5x_specdec.T5(CONFIG),
      target,
      draft,
      np.array([[3, 1]]),
      gamma=2,
      max_decode_len=6,
      temperature=1.0,
      topk=0,
  ).tokens


@pytest.mark.slow
def test_compiled_operations_and_profiles_name_their_phase(tmp_path):
  pair = [helpers.random_params(CONFIG, seed) for seed in (1, 2)]
  compiled = jax.jit(decode).lower(*pair).compile()
  names = re.findall(r'op_name="([^"]*)"', compiled.as_text())
  within = {phase: [] for phase in PHASES}
  for name in names:
    for part in name.split('/'):
      if part in within:
        within[part].append(name)
  for phase in PHASES:
    assert within[phase], f'no operation is named after {phase}'
    in_loop = ['while' in name for name in within[phase]]
    # Encoding comes before the loop, all else is a part of every round.
    assert not any(in_loop) if phase == 'encode' else all(in_loop)
  # No operation is of two phases.
  assert len(set().union(*within.values())) == sum(
      len(set(found)) for found in within.values()
  )
  # What a profiler stores of the run has the same names.
  with jax.profiler.trace(tmp_path):
    jax.block_until_ready(compiled(*pair))
  [profile] = tmp_path.rglob('*.xplane.pb')
  content = profile.read_bytes()
  for phase in PHASES:
    assert f'/{phase}/'.encode() in content
