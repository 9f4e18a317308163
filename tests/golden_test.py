# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Greedy output equals stock T5X's, as it stands in `golden/*.npz`.

Hundreds of random inputs with and without prompts, with early EOS, length
limits and id 0 as an ordinary token. Each distinct shape and gamma costs a
compilation, so one gamma goes with one batch size, and what differs between
rows (prompts, limits) or between calls (EOS, draft) is traced. Compiling takes
nearly all the time, so most tests ask XLA for less of it.
"""

from collections.abc import Iterator
import dataclasses
import functools

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import T5

# Noise at which a draft agrees with its target about every other token.
_NOISE = {'t5_1_0': 0.2, 't5_1_1': 0.12, 'decoder_only': 0.12}


def _marked(daily, optimized, rows):
  """One is not slow, and one is compiled as users compile it."""
  return [
      pytest.param(
          *marked.values,
          marks=[*marked.marks, *[pytest.mark.optimized] * (row == optimized)],
      )
      for row, marked in zip(rows, helpers.some_slow([daily], rows))
  ]


@functools.cache
def load(name: str) -> helpers.Golden:
  return helpers.Golden.load(name)


def parts(case: helpers.Case, batch: int) -> Iterator[helpers.Case]:
  """The case in batches, all of one size: the last takes rows again."""
  for start in range(0, len(case), batch):
    yield case.take(np.arange(start, start + batch) % len(case))


def check(result, case: helpers.Case, what: object, rescaled=False):
  """Holds a result against stock T5X's; `what` names it in messages."""
  tokens = np.asarray(result.tokens)[:, 0]
  wrong = np.flatnonzero(np.any(tokens != case.tokens, axis=1))
  assert not len(wrong), (
      f'{what}: row {wrong[0]} with prompt {case.prompts[wrong[0]]} and'
      f' max_decode_steps {case.steps[wrong[0]]} is {tokens[wrong[0]]}, from'
      f' stock T5X {case.tokens[wrong[0]]}'
  )
  np.testing.assert_allclose(
      np.asarray(result.scores)[:, 0],
      case.rescaled if rescaled else case.scores,
      rtol=0,
      atol=1e-4,
      err_msg=str(what),
  )
  emitted = np.asarray(result.stats.emitted)[:, 0]
  np.testing.assert_array_equal(emitted, case.generated.sum(axis=1), str(what))


def arguments(case: helpers.Case, **changes):
  return {
      'prompts': case.prompts,
      'max_decode_len': case.max_decode_len,
      'max_decode_steps': case.max_decode_steps,
      'eos_id': case.eos_id,
      'temperature': 0.0,
      'rescale_log_probs': False,
  } | changes


def speculate(golden, draft_config, draft_params, case, gamma, **changes):
  return t5x_specdec.speculative_decode(
      T5(golden.config),
      T5(draft_config),
      golden.params,
      draft_params,
      case.inputs,
      gamma=gamma,
      **arguments(case, **changes),
  )


def decode_alone(golden, case, **changes):
  return t5x_specdec.autoregressive_decode(
      T5(golden.config),
      golden.params,
      case.inputs,
      **arguments(case, **changes),
  )


def test_golden_holds_what_it_is_for():
  rows = zeros = early = in_prompt = limited = cut = 0
  for name in helpers.CONFIGS:
    golden = load(name)
    assert golden.config == helpers.CONFIGS[name]
    assert golden.seed == helpers.SEEDS[name]
    for case in golden.cases.values():
      generated = case.generated
      eos = generated & (case.tokens == case.eos_id)
      ended = np.cumsum(eos, axis=1) > 0
      rows += len(case)
      zeros += np.sum(generated & (case.tokens == 0))
      early += np.sum(eos[:, :-1])
      in_prompt += np.sum(np.any(case.prompts == case.eos_id, axis=1))
      limited += np.sum(case.steps < case.max_decode_len)
      # A row that ended before its last forced token.
      cut += np.sum(np.any(case.forced & ended, axis=1))
  assert rows >= 600
  assert zeros >= 300
  assert early >= 200
  assert in_prompt >= 20
  assert limited >= 100
  assert cut >= 5


@pytest.mark.parametrize(
    'name', _marked('t5_1_0', 't5_1_1', helpers.CONFIGS)
)
def test_autoregressive(name):
  golden = load(name)
  for key in ('main', 'holes'):
    for part in parts(golden.cases[key], 8):
      check(decode_alone(golden, part), part, (name, key))


@pytest.mark.slow
def test_one_limit_for_all_rows():
  golden = load('t5_1_1')
  for part in parts(golden.cases['scalar'], 8):
    assert part.max_decode_steps.ndim == 0
    check(decode_alone(golden, part), part, 'scalar')


@pytest.mark.slow
def test_no_limit_and_no_prompts():
  golden = load('t5_1_0')
  case = golden.cases['main']
  rows = np.flatnonzero(
      ~case.prompts.any(axis=1) & (case.steps == case.max_decode_len)
  )
  part = case.take(rows[:6])
  assert len(part) == 6
  result = decode_alone(golden, part, prompts=None, max_decode_steps=None)
  check(result, part, 'neither')


# Every gamma and every batch size up to 8, with T5 1.0 and 1.1 in turn.
_GRID = [
    *[('t5_1_0', gamma, 9 - gamma) for gamma in range(1, 9, 2)],
    *[('t5_1_1', gamma, gamma - 1) for gamma in range(2, 9, 2)],
    ('decoder_only', 2, 7),
    ('decoder_only', 5, 4),
]


@pytest.mark.parametrize(
    ('name', 'gamma', 'batch'),
    _marked(('decoder_only', 2, 7), ('t5_1_1', 4, 3), _GRID),
)
def test_speculative(name, gamma, batch):
  golden = load(name)
  drafts = {
      'target': golden.params,
      'similar': helpers.perturbed(golden.params, 1, _NOISE[name]),
      'other': helpers.random_params(golden.config, golden.seed + 1),
  }
  totals = {draft: np.zeros(2, int) for draft in drafts}
  for key in ('main', 'holes'):
    for part in parts(golden.cases[key], batch):
      for draft, params in drafts.items():
        result = speculate(golden, golden.config, params, part, gamma)
        check(result, part, (name, gamma, batch, key, draft))
        stats = result.stats
        totals[draft] += np.sum(stats.accepted), np.sum(stats.judged)
  agreement = {draft: a / b for draft, (a, b) in totals.items()}
  # No hole in the draft's cache, no slot misplaced: it agrees with itself.
  assert agreement['target'] == 1, agreement
  assert 0.3 < agreement['similar'] < 0.8, agreement
  assert 0 < agreement['other'] < 0.3, agreement


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'length', 'gamma'),
    [('t5_1_0', 1, 5), ('t5_1_1', 2, 8), ('t5_1_0', 3, 4)],
)
def test_texts_shorter_than_gamma(name, length, gamma):
  golden = load(name)
  draft = helpers.perturbed(golden.params, 1, 0.1)
  for part in parts(golden.cases[f'short{length}'], 12):
    result = speculate(golden, golden.config, draft, part, gamma)
    check(result, part, (name, length))
    # One token of each round is the target's own.
    room = np.asarray(result.stats.rounds) * (length - 1)
    assert np.all(result.stats.drafted <= room)
    result = speculate(golden, golden.config, golden.params, part, gamma)
    check(result, part, (name, length))
    assert np.max(result.stats.rounds) <= 1


@pytest.mark.slow
def test_draft_of_another_shape():
  golden = load('t5_1_1')
  config = dataclasses.replace(
      golden.config,
      emb_dim=8,
      num_heads=2,
      num_encoder_layers=1,
      num_decoder_layers=1,
      head_dim=6,
      mlp_dim=10,
      mlp_activations=('relu',),
      logits_via_embedding=True,
  )
  accepted = []
  for seed in (0, 1):
    params = helpers.random_params(config, seed)
    total = 0
    for part in parts(golden.cases['main'], 8):
      result = speculate(golden, config, params, part, 3)
      check(result, part, seed)
      total += np.sum(result.stats.accepted)
    accepted.append(int(total))
  # The draft's own encoder and weights do matter.
  assert min(accepted) > 0
  assert accepted[0] != accepted[1]


@pytest.mark.slow
def test_rescaled_scores():
  golden = load('t5_1_1')
  draft = helpers.perturbed(golden.params, 1, 0.1)
  for part in list(parts(golden.cases['main'], 8))[:4]:
    result = speculate(
        golden, golden.config, draft, part, 3, rescale_log_probs=True
    )
    check(result, part, 'rescaled', rescaled=True)


@pytest.mark.parametrize(
    'name', helpers.some_slow(['decoder_only'], helpers.CONFIGS)
)
def test_logits_at_far_offsets(name):
  golden = load(name)
  blocks = golden.blocks
  rows, length = blocks.tokens.shape
  width = blocks.logits.shape[1]
  decoder = T5(golden.config)
  params = decoder.prepare(jax.tree.map(jnp.asarray, golden.params))
  score = jax.jit(decoder.decode_block)
  state = decoder.init(params, blocks.inputs, rows, length)
  assert blocks.offsets.tolist() == [0, 1, 31, 127, 130]

  # The whole text as one block from position 0: teacher forcing.
  logits, state = score(
      params, state, jnp.asarray(blocks.tokens), jnp.zeros([rows], jnp.int32)
  )
  at = blocks.offsets[:, None] + np.arange(width)
  taken = np.take_along_axis(np.asarray(logits), at[..., None], axis=1)
  np.testing.assert_allclose(taken, blocks.logits, rtol=0, atol=1e-4)

  # One block per row at its own offset; what lies beyond it in the cache does
  # not matter and is overwritten.
  beyond = np.arange(length) >= blocks.offsets[:, None]
  poison = lambda x: jnp.where(beyond[:, None, :, None], 1e4, x)  # noqa: E731
  state = state.replace(
      keys=jax.tree.map(poison, state.keys),
      values=jax.tree.map(poison, state.values),
  )
  block = np.take_along_axis(blocks.tokens, at, axis=1)
  offsets = jnp.asarray(blocks.offsets)
  for _ in range(2):
    rejected = jnp.asarray((block + 5) % golden.config.vocab_size)
    _, state = score(params, state, rejected, offsets)
    logits, state = score(params, state, jnp.asarray(block), offsets)
    np.testing.assert_allclose(logits, blocks.logits, rtol=0, atol=1e-4)
  for k in range(width):
    one = jnp.asarray(block[:, k : k + 1])
    logits, state = score(params, state, one, offsets + k)
    np.testing.assert_allclose(
        logits[:, 0], blocks.logits[:, k], rtol=0, atol=1e-4
    )
