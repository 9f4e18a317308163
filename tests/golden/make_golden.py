# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes this folder's npz files with stock T5X: `python make_golden.py`.

Parameters come from a NumPy seed, so the files hold only the seed, the config,
what went in and what stock T5X made of it. Rows whose greedy choice is a close
call at any step are left out: the texts must not depend on how a machine
rounds.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import numpy as np

if __name__ == '__main__':
  _TESTS = pathlib.Path(__file__).resolve().parents[1]
  sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]

import helpers

INPUT_LEN = 9
PROMPT_LEN = 5
TEXT_LEN = 24
BATCH = 96
# Least difference between the two largest logits of every step; rounding moves
# logits by 2e-5 at most.
MARGIN = 1e-3


def decode_with_stock(
    golden: helpers.Golden, case: helpers.Case, rescale: bool = False
) -> tuple[np.ndarray, np.ndarray]:
  """What stock T5X decodes today.

  Args:
    golden: the model.
    case: what to decode; its outputs are not looked at.
    rescale: `rescale_log_probs`.

  Returns:
    int32[rows, max_decode_len] tokens and float32[rows] scores.
  """
  stock = helpers.stock(golden.config)
  tokens, scores = [], []
  for start in range(0, len(case), BATCH):
    # One batch size for all, and so one compilation for many.
    rows = np.arange(start, start + BATCH) % len(case)
    part = case.take(rows)
    outputs = stock.decode(
        golden.params,
        part.inputs,
        part.prompts,
        part.max_decode_len,
        eos_id=part.eos_id,
        temperature=0.0,
        topk=1,
        max_decode_steps=part.max_decode_steps,
        rescale_log_probs=rescale,
    )
    tokens.append(outputs[0][:, 0])
    scores.append(outputs[1][:, 0])
  count = len(case)
  return np.concatenate(tokens)[:count], np.concatenate(scores)[:count]


def logits_with_stock(
    golden: helpers.Golden, blocks: helpers.Blocks, width: int
) -> helpers.Blocks:
  """The same blocks with the logits that stock T5X computes today."""
  logits = np.asarray(
      helpers.stock(golden.config).cached_logits(
          golden.params, blocks.inputs, blocks.tokens
      )
  )
  at = blocks.offsets[:, None] + np.arange(width)
  taken = np.take_along_axis(logits, at[..., None], axis=1)
  return dataclasses.replace(blocks, logits=taken)


def margins(golden: helpers.Golden, case: helpers.Case) -> np.ndarray:
  """Least difference of the top two logits at any generated token, per row."""
  shifted = np.zeros([len(case), TEXT_LEN], np.int32)
  shifted[:, 1 : case.max_decode_len] = case.tokens[:, :-1]
  logits = np.asarray(
      helpers.stock(golden.config).cached_logits(
          golden.params, case.inputs, shifted
      )
  )[:, : case.max_decode_len]
  top = np.sort(logits, axis=-1)
  margin = np.where(case.generated, top[..., -1] - top[..., -2], np.inf)
  return margin.min(axis=1)


def make_case(
    golden: helpers.Golden,
    rng: np.random.Generator,
    rows: int,
    max_decode_len: int,
    steps: str,
    holes: bool = False,
) -> helpers.Case:
  """Draws a batch, lets stock T5X decode it and keeps `rows` clear rows.

  Args:
    golden: the model.
    rng: source of everything random.
    rows: to keep.
    max_decode_len: length of the text.
    steps: 'free' for no limit but the length, 'ragged' for limits in some
      rows, 'scalar' for one limit in all.
    holes: whether prompts have free slots inside.

  Returns:
    The case; EOS is the id that ends closest to half of its rows early.
  """
  config = golden.config
  drawn = 2 * BATCH
  inputs = None
  if not config.decoder_only:
    inputs = helpers.random_inputs(rng, drawn, INPUT_LEN, config.vocab_size)
  prompts = helpers.random_prompts(
      rng, drawn, min(PROMPT_LEN, max_decode_len - 1), config.vocab_size, holes
  )
  free = np.full([drawn], max_decode_len, np.int32)
  if steps == 'ragged':
    some = rng.random(drawn) < 0.4
    short = rng.integers(1, min(9, max_decode_len + 1), drawn, dtype=np.int32)
    max_decode_steps = np.where(some, short, free)
  else:
    max_decode_steps = free if steps == 'free' else np.int32(7)
  case = helpers.Case(
      max_decode_len=max_decode_len,
      eos_id=helpers.NO_EOS,
      inputs=inputs,
      prompts=prompts,
      max_decode_steps=np.asarray(max_decode_steps),
      tokens=np.zeros([drawn, max_decode_len], np.int32),
      scores=np.zeros([drawn], np.float32),
  )

  def decoded(case):
    tokens, scores = decode_with_stock(golden, case)
    return dataclasses.replace(case, tokens=tokens, scores=scores)

  case = decoded(case)
  before_last = case.generated
  before_last[:, -1] &= max_decode_len == 1
  share = [
      np.mean(np.any((case.tokens == token) & before_last, axis=1))
      for token in range(1, config.vocab_size)
  ]
  eos_id = 1 + int(np.argmin(np.abs(np.array(share) - 0.5)))
  case = decoded(dataclasses.replace(case, eos_id=eos_id))
  clear = np.flatnonzero(margins(golden, case) > MARGIN)[:rows]
  if len(clear) < rows:
    raise RuntimeError(f'only {len(clear)} of {drawn} rows are clear')
  return case.take(clear)


def make_golden(name: str) -> helpers.Golden:
  """Everything that stock T5X makes of one of `helpers.CONFIGS`."""
  config, seed = helpers.CONFIGS[name], helpers.SEEDS[name]
  rng = np.random.default_rng(seed)
  tokens = rng.integers(0, config.vocab_size, [5, 140], dtype=np.int32)
  tokens[:, 0] = 0
  blocks = helpers.Blocks(
      inputs=None
      if config.decoder_only
      else helpers.random_inputs(rng, 5, INPUT_LEN, config.vocab_size),
      tokens=tokens,
      offsets=np.array([0, 1, 31, 127, 130], np.int32),
      logits=np.zeros([0]),
  )
  golden = helpers.Golden(config, seed, {}, blocks)
  cases = {
      'main': make_case(golden, rng, 96, TEXT_LEN, 'ragged'),
      'holes': make_case(golden, rng, 32, TEXT_LEN, 'free', holes=True),
      'scalar': make_case(golden, rng, 16, TEXT_LEN, 'scalar'),
  }
  _, rescaled = decode_with_stock(golden, cases['main'], rescale=True)
  cases['main'] = dataclasses.replace(cases['main'], rescaled=rescaled)
  for length in (1, 2, 3):
    cases[f'short{length}'] = make_case(golden, rng, 24, length, 'ragged')
  blocks = logits_with_stock(golden, blocks, width=6)
  return helpers.Golden(config, seed, cases, blocks)


def main():
  for name in helpers.CONFIGS:
    golden = make_golden(name)
    path = helpers.GOLDEN / f'{name}.npz'
    golden.save(path)
    rows = {name: len(case) for name, case in golden.cases.items()}
    print(f'{path} {path.stat().st_size} bytes, rows: {rows}')


if __name__ == '__main__':
  main()
