# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A row's text depends on its key and its input, and on nothing around it.

At a fixed gamma, in float32. What may differ is in docs/trust.md.
"""

import json
import os
import subprocess
import sys

import helpers
import jax
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import T5
from t5x_specdec.gamma import Adaptive

_CONFIG = helpers.CONFIGS['t5_1_1']
_ROWS = 8
_SETTINGS = {
    'greedy': {'temperature': 0.0, 'topk': 0},
    'sampled': {'temperature': 1.0, 'topk': 0},
    'filtered': {'temperature': 0.8, 'topk': 5},
}


def decode(rows, setting, place=None, gamma: int | Adaptive = 3):
  """Decodes some of eight rows, each under its own key.

  Args:
    rows: int[n], which.
    setting: a key of `_SETTINGS`.
    place: puts arrays of [n, ...] onto devices, None leaves them to JAX.
    gamma: a number or a policy.

  Returns:
    int32[n, 10].
  """
  inputs = np.random.default_rng(1).integers(2, _CONFIG.vocab_size, [_ROWS, 5])
  keys = jax.random.split(jax.random.key(5), _ROWS)
  place = place or (lambda x: x)
  result = t5x_specdec.speculative_decode(
      T5(_CONFIG),
      T5(_CONFIG),
      helpers.random_params(_CONFIG, 1),
      helpers.perturbed(helpers.random_params(_CONFIG, 1), 2, 0.4),
      place(np.asarray(inputs[rows], np.int32)),
      max_decode_len=10,
      gamma=gamma,
      row_keys=place(keys[rows]),
      **_SETTINGS[setting],
  )
  return np.asarray(result.tokens[:, 0])


def texts_on_devices() -> dict[str, dict[str, list[list[int]]]]:
  """Every setting on the first device, and over all eight."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ['data'])
  assert mesh.size == 8, jax.devices()
  spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))

  def place(x):
    placed = jax.device_put(x, spread)
    assert len(placed.sharding.device_set) == 8
    return placed

  rows = np.arange(_ROWS)
  return {
      setting: {
          'one': decode(rows, setting).tolist(),
          'eight': decode(rows, setting, place=place).tolist(),
      }
      for setting in _SETTINGS
  }


@pytest.mark.slow
def test_batch_composition_and_order():
  everything = np.arange(_ROWS)
  for setting in _SETTINGS:
    texts = decode(everything, setting)
    assert len(np.unique(texts, axis=0)) > 1
    order = np.array([6, 1, 7, 0, 3, 2, 5, 4])
    np.testing.assert_array_equal(decode(order, setting), texts[order])
    for some in ([4, 2, 7], [0, 0, 0], [1, 1, 5]):
      np.testing.assert_array_equal(
          decode(np.array(some), setting), texts[some]
      )


@pytest.mark.slow
def test_process_restart_and_eight_devices():
  """A new process gives the same texts, on one device and over eight."""
  flags = os.environ.get('XLA_FLAGS', '')
  environment = os.environ | {
      'XLA_FLAGS': f'{flags} --xla_force_host_platform_device_count=8',
      'JAX_PLATFORMS': 'cpu',
      'PYTHONPATH': os.pathsep.join(path for path in sys.path if path),
  }
  done = subprocess.run(
      [sys.executable, __file__],
      env=environment,
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  for setting in _SETTINGS:
    texts = decode(np.arange(_ROWS), setting).tolist()
    assert found[setting]['one'] == texts
    assert found[setting]['eight'] == texts


@pytest.mark.slow
def test_an_adaptive_gamma_repeats_itself_and_keeps_greedy_texts():
  """In one batch it is deterministic; at temperature 0 it shows nowhere."""
  policy = Adaptive(gammas=(1, 4), c=0.1)
  rows = np.arange(_ROWS)
  together = decode(rows, 'sampled', gamma=policy)
  again = decode(rows, 'sampled', gamma=policy)
  greedy = decode(rows, 'greedy', gamma=policy)
  fixed = decode(rows, 'greedy')
  np.testing.assert_array_equal(together, again)
  np.testing.assert_array_equal(greedy, fixed)


if __name__ == '__main__':
  with helpers.quick_compilation():
    print(json.dumps(texts_on_devices()))
