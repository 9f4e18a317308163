# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Bad arguments are refused here: by name, with their value, before compiling.

Values are checked where they are known. Under `jit` (the T5X model) arrays are
tracers and only their shapes are.
"""

from __future__ import annotations

import numbers
from typing import Any

import jax
from jax import core
import jax.numpy as jnp
import numpy as np

from t5x_specdec import acceptance
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import Draft
from t5x_specdec.parameters import PyTree


def _known(name: str, x: Any) -> np.ndarray | None:
  """The value of x on the host, None where it is traced or elsewhere."""
  if isinstance(x, core.Tracer):
    return None
  if isinstance(x, jax.Array) and not x.is_fully_addressable:
    return None
  try:
    return np.asarray(x)
  except (TypeError, ValueError):  # random keys, lists of unequal length
    raise ValueError(f'{name} must be an array of numbers, got {x!r}') from None


def _shape(name: str, x: Any) -> tuple[int, ...]:
  """The shape of x, known or not."""
  known = _known(name, x)
  return np.shape(x) if known is None else known.shape


def _is_real(x: np.ndarray) -> bool:
  return jnp.issubdtype(x.dtype, jnp.floating) or _is_integer(x)


def _is_integer(x: np.ndarray) -> bool:
  return np.issubdtype(x.dtype, np.integer)


def _check_integer(name: str, value: Any, least: int) -> None:
  integral = isinstance(value, numbers.Integral) and not isinstance(value, bool)
  if not integral or value < least:
    raise ValueError(f'{name} must be an integer >= {least}, got {value!r}')


def _check_ids(name: str, ids: Any, vocab_size: int) -> None:
  """Checks shape and dtype of int[batch, length] ids and, if known, values."""
  shape = _shape(name, ids)
  if len(shape) != 2:
    raise ValueError(f'{name} must be int32[batch, length], got shape {shape}')
  if shape[0] == 0:
    raise ValueError(f'{name} must not be an empty batch, got shape {shape}')
  dtype = ids.dtype if hasattr(ids, 'dtype') else np.asarray(ids).dtype
  if not jnp.issubdtype(dtype, jnp.integer):
    raise ValueError(f'{name} must be integers, got dtype {dtype}')
  known = _known(name, ids)
  if known is None or not known.size:
    return
  for worst in (known.min(), known.max()):
    if not 0 <= worst < vocab_size:
      raise ValueError(
          f'{name} must hold ids in [0, {vocab_size}), the vocabulary of the '
          f'target; got {worst}'
      )


def check_draft(
    target: BlockDecoder,
    draft: Draft,
    draft_params: PyTree,
) -> None:
  """Checks that the draft can serve the target.

  Args:
    target: the target model.
    draft: the source of drafts.
    draft_params: its parameters.

  Raises:
    ValueError: vocabularies of different size, or parameters that do not fit
      the draft (names the path).
  """
  if draft.has_encoder and target.has_encoder is False:
    raise ValueError(
        'the draft has an encoder and needs inputs, but the target is '
        f'decoder-only and decoded without: {draft}'
    )
  size = draft.vocab_size
  if size is not None and size != target.vocab_size:
    raise ValueError(
        'target and draft must share one vocabulary: vocab_size of the target '
        f'is {target.vocab_size}, of the draft {size}'
    )
  draft.check(draft_params)


def check_verification(verification: Any) -> None:
  """Raises ValueError for a rule that is not known."""
  if not isinstance(verification, str) or (
      verification not in acceptance.RULES
  ):
    raise ValueError(
        f'verification must be one of {sorted(acceptance.RULES)}, got '
        f'{verification!r}'
    )


def checked_lenience(lenience: Any, verification: str) -> float:
  """The lenience as a number; raises ValueError, also for block verification.

  That no token is emitted with more than 1 / l times its probability is proven
  for drafts that are judged one by one only.

  Args:
    lenience: in (0, 1], and not so small that float32 loses it.
    verification: a key of `acceptance.RULES`.
  """
  real = isinstance(lenience, numbers.Real) and not isinstance(lenience, bool)
  value = float(lenience) if real else float('nan')  # pyright: ignore
  # Further down l q would be 0 in float32, and alpha no number.
  least = float(np.finfo(np.float32).eps)
  if not least <= value <= 1:
    raise ValueError(
        f'lenience must be a number in (0, 1], {least:.1e} or more, got '
        f'{lenience!r}: 1 is exact, less is lossy'
    )
  if value < 1 and verification != 'token':
    raise ValueError(
        f'lenience={lenience!r} needs verification=\'token\', got '
        f'{verification!r}: for blocks no bound on the error is known'
    )
  return value


def check_flags(**flags: Any) -> None:
  """Raises ValueError for a flag that is not a bool, by its name."""
  for name, flag in flags.items():
    if not isinstance(flag, bool | np.bool_):
      raise ValueError(f'{name} must be True or False, got {flag!r}')


def check_text(
    target: BlockDecoder, inputs: Any, prompts: Any, max_decode_len: int
) -> int:
  """Checks encoder inputs and prompts.

  Args:
    target: the target model.
    inputs: int[batch, S] or None.
    prompts: int[batch, P] or None.
    max_decode_len: length of the text.

  Returns:
    The batch size.

  Raises:
    ValueError: naming the argument and its value.
  """
  _check_integer('max_decode_len', max_decode_len, 1)
  text = prompts if inputs is None else inputs
  if text is None:
    raise ValueError('inputs and prompts are both None: one must give a batch')
  if target.has_encoder is False and inputs is not None:
    raise ValueError(
        'a decoder-only target takes no inputs: give the text as prompts; got '
        f'inputs of shape {np.shape(inputs)}'
    )
  if target.has_encoder and inputs is None:
    raise ValueError('the target has an encoder and needs inputs, got None')
  if inputs is not None:
    _check_ids('inputs', inputs, target.vocab_size)
    if np.shape(inputs)[1] == 0:
      raise ValueError(
          'inputs must have at least one column, got shape '
          f'{np.shape(inputs)}'
      )
  if prompts is not None:
    _check_ids('prompts', prompts, target.vocab_size)
    if np.shape(prompts)[1] > max_decode_len:
      raise ValueError(
          f'prompts of length {np.shape(prompts)[1]} do not fit '
          f'max_decode_len={max_decode_len}'
      )
    if inputs is not None and np.shape(prompts)[0] != np.shape(inputs)[0]:
      raise ValueError(
          f'prompts {np.shape(prompts)} and inputs {np.shape(inputs)} must '
          'have the same batch'
      )
  return np.shape(text)[0]


def check_eos(eos_id: Any) -> None:
  """Checks what ends a row; raises ValueError."""
  known = _known('eos_id', eos_id)
  if _shape('eos_id', eos_id) or (
      known is not None and not _is_integer(known)
  ):
    raise ValueError(f'eos_id must be one integer, got {eos_id!r}')
  if known is not None and not -(2**31) <= known < 2**31:
    raise ValueError(f'eos_id must be in [-2^31, 2^31), got {eos_id!r}')
  if known is not None and known == 0:
    raise ValueError('eos_id must not be 0, which is what follows EOS; got 0')


def check_lengths(
    max_decode_len: int, max_decode_steps: Any, num_decodes: int, batch: int
) -> None:
  """Checks how much is to be decoded; raises ValueError."""
  _check_integer('num_decodes', num_decodes, 1)
  if max_decode_steps is None:
    return
  shape = _shape('max_decode_steps', max_decode_steps)
  if shape not in ((), (batch,)):
    raise ValueError(
        f'max_decode_steps must be a scalar or int[{batch}], one per input; '
        f'got shape {shape}'
    )
  steps = _known('max_decode_steps', max_decode_steps)
  if steps is None:
    return
  if not _is_integer(steps) or steps.min() < 1:
    raise ValueError(
        f'max_decode_steps must be integers >= 1, got {max_decode_steps!r}'
    )
  if steps.max() > max_decode_len:
    raise ValueError(
        f'max_decode_steps={max_decode_steps!r} is more than '
        f'max_decode_len={max_decode_len}: cannot decode more steps than the '
        'sequence length'
    )


def check_method(temperature: Any, topk: Any, topp: Any, batch: int) -> None:
  """Checks the sampling method; raises ValueError as T5X does and more."""
  shape = _shape('temperature', temperature)
  if shape not in ((), (batch,)):
    raise ValueError(
        f'temperature must be a scalar or float[{batch}], one per input; got '
        f'shape {shape}'
    )
  known = _known('temperature', temperature)
  if known is not None and not (_is_real(known) and np.all(known >= 0)):
    raise ValueError(f'temperature must be >= 0, got {temperature!r}')
  topk, topp = _known('topk', topk), _known('topp', topp)
  if topk is not None:
    if not _is_integer(topk) or topk.ndim or not 0 <= topk < 2**31:
      raise ValueError(f'topk must be an integer >= 0, got {topk}')
  if topp is not None and (
      topp.ndim or not _is_real(topp) or not 0 <= topp <= 1
  ):
    raise ValueError(f'topp must be a number in [0, 1], got {topp}')
  if topk and topp:
    raise ValueError(
        'At most one of `topp` or `topk` may be non-zero, got '
        f'topk={topk} and topp={topp}'
    )


def check_keys(rng: Any, row_keys: Any, batch: int) -> None:
  """Checks the random keys; raises ValueError."""
  if rng is not None and row_keys is not None:
    raise ValueError('give rng or row_keys, not both')
  for name, keys, rows in (('rng', rng, ()), ('row_keys', row_keys, (batch,))):
    if keys is None:
      continue
    dtype = getattr(keys, 'dtype', None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    raw = dtype == np.uint32 and keys.shape[-1:] in ((2,), (4,))
    shape = keys.shape if typed else keys.shape[:-1] if raw else None
    if shape != rows:
      raise ValueError(
          f'{name} must be key{list(rows)} from jax.random, typed or raw; got '
          f'{keys!r}'
      )
