# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Formulas of the paper. Array-valued: arguments broadcast, NumPy or JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

Array = Any


def expected_tokens(alpha: Array, gamma: Array) -> Array:
  """Equation 1: expected tokens per target call.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.

  Returns:
    (1 - alpha^(gamma + 1)) / (1 - alpha), and gamma + 1 at alpha = 1.
  """
  certain = alpha == 1
  beta = jnp.where(certain, 0.5, alpha)
  tokens = (1 - beta ** (gamma + 1)) / (1 - beta)
  return jnp.where(certain, gamma + 1.0, tokens)


def walltime_improvement(alpha: Array, gamma: Array, c: Array) -> Array:
  """Theorem 3.8: expected speed-up against decoding with the target alone.

  Args:
    alpha: acceptance rate in [0, 1].
    gamma: drafts per round, >= 0.
    c: time of one draft step over time of one target step.

  Returns:
    (1 - alpha^(gamma + 1)) / ((1 - alpha) (gamma c + 1)).
  """
  return expected_tokens(alpha, gamma) / (gamma * c + 1)
