# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What holds for every draft under every policy: add yours to the lists.

The joint law of whole outputs, greedy texts, progress, statistics, and lengths.
Gamma follows a whole batch, so samples of a law come from batches of two rows:
in a large one gamma would be nearly constant and no policy could do harm.
"""

import dataclasses
import functools

from helpers import some_slow
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec.drafts import Chain
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.drafts import ngram
from t5x_specdec.drafts import NoDraft
from t5x_specdec.drafts import PromptLookup
from t5x_specdec.gamma import Adaptive
from t5x_specdec.gamma import Fixed
from t5x_specdec.testing import toys

BATCHES = 6_000
LENGTH = 5
WORDS = (0, 2, 3, 2, 4, 3, 0)
TARGET, DRAFT = laws.toy_tables(8)
DECODER = toys.TableDecoder(laws.VOCAB)
# A text to count n-grams of that has a little of everything.
CORPUS = [[2, 3, 4, 1], [4, 2, 2, 3, 1], [3, 3, 2, 4, 4, 1], [1], [2, 4, 1]]
MODEL = (ModelDraft(DECODER), {'table': DRAFT})
LOOKUP = (PromptLookup(2), {})


def chain(first, then):
  return Chain(first[0], then[0]), {'first': first[1], 'then': then[1]}


NGRAM = ngram.count(CORPUS, laws.VOCAB, 2)
# A draft and its parameters.
DRAFTS = {
    'model': MODEL,
    'ngram': NGRAM,
    'ngram_argmax': (dataclasses.replace(NGRAM[0], argmax=True), NGRAM[1]),
    'one_hot': (laws.OneHotDraft(), {}),
    'lookup': LOOKUP,
    'chain': chain(LOOKUP, MODEL),
    'none': (NoDraft(), {}),
}


@dataclasses.dataclass(frozen=True)
class Contrary:
  """Drafts little after a success and much after a failure."""

  gammas = (1, 3)

  def init(self):
    return jnp.int32(1)

  def choose(self, state):
    return state

  def update(self, state, counters):
    return jnp.where(jnp.sum(counters.accepted) > 0, 0, 1)


POLICIES = {
    'fixed_1': Fixed(1),
    'fixed_3': Fixed(3),
    'adaptive': Adaptive(gammas=(0, 2), c=0.4, change=0.3),
    'contrary': Contrary(),
}
# Both rules for every draft and for every policy, one number for every draft.
CASES = [
    (draft, policy, ('token', 'block')[(i // 2 + j) % 2])
    for i, draft in enumerate(DRAFTS)
    for j, policy in enumerate(POLICIES)
    if j != i % 2
]
# Greedy texts are compared one by one, below.
METHODS = ('plain', 'cold_topk', 'topp')
# One draft that is a model, one that counts and one that copies every day.
DAILY = [
    ('model', 'fixed_3', 'block'),
    ('ngram_argmax', 'adaptive', 'block'),
    ('lookup', 'adaptive', 'token'),
]
each_case = pytest.mark.parametrize(
    'draft, policy, rule', some_slow(DAILY, CASES)
)


@functools.partial(jax.jit, static_argnames=('draft', 'policy', 'rule'))
def _sample(params, keys, temperature, topk, topp, *, draft, policy, rule):
  inputs = jnp.tile(jnp.asarray(WORDS, jnp.int32), (keys.shape[1], 1))

  def decode(row_keys):
    return t5x_specdec.speculative_decode(
        DECODER,
        draft,
        {'table': TARGET},
        params,
        inputs,
        max_decode_len=LENGTH,
        gamma=policy,
        row_keys=row_keys,
        temperature=temperature,
        topk=topk,
        topp=topp,
        verification=rule,
    )

  return jax.vmap(decode)(keys)


def sample(draft, policy, rule, name):
  """Decodes of pairs of rows: tokens int[samples, length], and statistics."""
  draft, params = DRAFTS[draft]
  method = {'topp': 0.0} | laws.METHODS[name]
  keys = jax.random.split(jax.random.key(3), [BATCHES, 2])
  result = _sample(
      params,
      keys,
      jnp.float32(method['temperature']),
      jnp.int32(method['topk']),
      jnp.float32(method['topp']),
      draft=draft,
      policy=POLICIES.get(policy, policy),
      rule=rule,
  )
  tokens = np.asarray(result.tokens)
  stats = jax.tree.map(np.asarray, result.stats)
  return tokens.reshape(-1, LENGTH), stats


@functools.cache
def exact(name):
  law = toys.exact_law(TARGET[0], **laws.METHODS[name])
  return toys.enumerate_outputs(law, LENGTH)


def check_statistics(stats, policy):
  """What counters of any decode without a prompt have to do with each other."""
  gammas = np.arange(stats.histogram.shape[-1])
  assert stats.histogram.shape[-1] == max(policy.gammas) + 1
  for bins in (stats.histogram, stats.rounds_by_gamma):
    np.testing.assert_array_equal(bins.sum(-1), stats.rounds)
  np.testing.assert_array_equal(stats.histogram @ gammas, stats.accepted)
  ran = stats.rounds_by_gamma.sum(tuple(range(stats.rounds.ndim)))
  assert set(np.flatnonzero(ran)) <= set(policy.gammas)
  # A round is a token of the target's own, unless the text ends with a draft.
  own = stats.emitted - stats.accepted
  assert np.all((own == stats.rounds) | (own == stats.rounds - 1))
  assert np.all(stats.emitted >= stats.rounds)
  assert np.all(stats.accepted <= stats.judged)
  assert np.all(stats.judged <= stats.drafted)
  assert np.all(stats.drafted <= stats.rounds_by_gamma @ gammas)
  rejected = stats.judged - stats.accepted
  assert np.all(rejected <= stats.rounds)
  assert np.all(stats.overlap <= stats.judged + 1e-3)
  assert not stats.nonfinite.any()


@each_case
def test_joint_law_and_statistics(draft, policy, rule):
  for name in METHODS:
    outputs, stats = sample(draft, policy, rule, name)
    p_value, distance = laws.p_value(outputs, exact(name))
    assert p_value > laws.FALSE_ALARM, (name, p_value, distance)
    check_statistics(stats, POLICIES[policy])
    ended = np.where(outputs == 1, np.arange(LENGTH), LENGTH - 1).min(1) + 1
    np.testing.assert_array_equal(stats.emitted.ravel(), ended)


def scripts():
  """Greedy texts with EOS at every place, and a draft that errs now and then.

  Returns:
    The target's script and the draft's, int[rows, length].
  """
  rng = np.random.default_rng(0)
  length = 14
  target = rng.integers(2, 17, [length, length])
  target[np.arange(length), np.arange(length)] = 1
  draft = np.where(rng.random(target.shape) < 0.25, 5, target)
  return target, draft


SCRIPT_DRAFTS = {
    'model': (ModelDraft(toys.ScriptDecoder(17)), {'script': scripts()[1]}),
    'ngram': ngram.count([row.tolist() for row in scripts()[0]], 17, 2),
    'one_hot': (laws.OneHotDraft(17), {}),
    'lookup': LOOKUP,
}
SCRIPT_DRAFTS['chain'] = chain(LOOKUP, SCRIPT_DRAFTS['model'])


@pytest.mark.parametrize(
    'policy', some_slow(['adaptive'], ['adaptive', 'contrary'])
)
@pytest.mark.parametrize('draft', some_slow(['chain'], SCRIPT_DRAFTS))
def test_greedy_texts_lengths_and_progress(draft, policy):
  """EOS at every place; prompts, also with gaps, and lengths of each row."""
  target, _ = scripts()
  rows, length = target.shape
  source, params = SCRIPT_DRAFTS[draft]
  prompts = target[:, :4].copy()
  prompts[np.arange(4) >= np.arange(rows)[:, None] % 5] = 0
  prompts[3::5, 1] = 0
  prompts[prompts == 1] = 0
  steps = np.arange(rows) % length + 1
  steps[::3] = length
  result = t5x_specdec.speculative_decode(
      toys.ScriptDecoder(17),
      source,
      {'script': target},
      params,
      np.arange(rows)[:, None],
      prompts=prompts,
      max_decode_len=length,
      max_decode_steps=steps,
      gamma=POLICIES[policy],
      temperature=0.0,
      trace=True,
  )
  end = np.minimum((prompts != 0).sum(1) + steps, length)
  end = np.minimum(end, np.arange(rows) + 1)
  expected = np.where(np.arange(length) < end[:, None], target, 0)
  np.testing.assert_array_equal(result.tokens[:, 0], expected)
  # Every round wrote something, and they wrote what the prompt did not open
  # with.
  opening = np.cumprod(prompts != 0, axis=1).sum(1)
  started = np.asarray(result.trace.accepted[:, 0]) >= 0
  counts = np.asarray(result.trace.count[:, 0])
  assert np.all(counts[started] >= 1) and not counts[~started].any()
  np.testing.assert_array_equal(counts.sum(1), end - opening)
  np.testing.assert_array_equal(started.sum(1), result.stats.rounds[:, 0])


@dataclasses.dataclass(frozen=True)
class SumDecoder(toys.TableDecoder):
  """Looks up by the sum of all earlier inputs in the place of the one before.

  A slot anywhere in its history that is not filled, or holds what was rejected,
  gives it another law. So does every `errs`th place, if not 0.
  """

  errs: int = 0

  def decode_block(self, params, state, tokens, positions):
    rows = jnp.arange(tokens.shape[0])[:, None]
    slots = positions[:, None] + jnp.arange(tokens.shape[1])
    history = state['history'].at[rows, slots].set(tokens, mode='drop')
    total = jnp.cumsum(history, axis=1)[rows, slots] - history[rows, slots]
    logits = params['table'][
        state['input'][:, None], total % self.vocab_size, history[rows, slots]
    ]
    if self.errs:
      wrong = slots % self.errs == 0
      logits = jnp.where(wrong[..., None], jnp.roll(logits, 1, -1), logits)
    return logits, state | {'history': history}


@dataclasses.dataclass(frozen=True)
class Sometimes:
  """Certain of token 2 in rounds from some positions, else without a draft."""

  vocab_size = None
  has_encoder = None
  may_abstain = True

  def check(self, params):
    pass

  def prepare(self, params):
    return params

  def init(self, params, inputs, prompt, max_len):
    return ()

  def propose(self, p, state, tokens, positions, method, gamma, room, keys):
    drafts = jnp.full([len(positions), gamma], 2)
    lengths = jnp.where(self.at(positions), gamma, 0)
    return t5x_specdec.drafts.Proposal(drafts, lengths, None), state

  @staticmethod
  def at(positions):
    return positions % 19 < 12


@dataclasses.dataclass(frozen=True)
class InTurn:
  """Many plain rounds in a row, then some with drafts."""

  gammas = (0, 1, 3)

  def init(self):
    return jnp.int32(0)

  def choose(self, state):
    return jnp.asarray([0] * 11 + [2, 1, 0, 2, 2])[state % 16]

  def update(self, state, counters):
    return state + 1


@pytest.mark.slow
@pytest.mark.parametrize('temperature', [0.0, 1.0])
@pytest.mark.parametrize('policy', [Fixed(3), InTurn()])
@pytest.mark.parametrize('first', [None, Sometimes()])
def test_a_model_that_sat_out_has_read_all_it_missed(
    first, policy, temperature
):
  """A draft equal to the target but at every 7th place is right elsewhere."""
  decoder = SumDecoder(laws.VOCAB)
  source = (ModelDraft(SumDecoder(laws.VOCAB, errs=7)), {'table': TARGET})
  if first is not None:
    source = chain((first, {}), source)
  prompts = np.array([[0, 0, 0], [2, 3, 4], [4, 0, 3], [3, 2, 0]])
  result = t5x_specdec.speculative_decode(
      decoder,
      source[0],
      {'table': TARGET},
      source[1],
      np.zeros([4, 1], np.int32),
      prompts=prompts,
      max_decode_len=90,
      max_decode_steps=np.array([90, 70, 80, 40]),
      gamma=policy,
      temperature=temperature,
      topk=0,
      eos_id=laws.VOCAB,
      # By blocks a draft can fall for what comes after it.
      verification='token',
      trace=True,
  )
  stood = errors = 0
  for row in range(4):
    for entry in result.trace.rounds((row, 0), result.tokens[row, 0]):
      if first is None or not first.at(entry.position):
        stood += entry.accepted
        if entry.accepted < len(entry.drafted):
          assert (entry.position + entry.accepted) % 7 == 0, (row, entry)
          errors += 1
  assert stood > 20 and errors > 5


@pytest.mark.slow
def test_a_constant_policy_is_a_number():
  """The same samples, and at 0 those of plain decoding."""
  options = {'temperature': 1.0, 'topk': 0, 'max_decode_len': LENGTH}
  inputs = np.zeros([64, 1], np.int32)
  params = ({'table': TARGET}, {'table': DRAFT})
  decode = functools.partial(
      t5x_specdec.speculative_decode,
      DECODER,
      DECODER,
      *params,
      inputs,
      **options,
  )
  numbered, fixed = decode(gamma=3), decode(gamma=Fixed(3))
  jax.tree.map(np.testing.assert_array_equal, numbered, fixed)
  plain = t5x_specdec.autoregressive_decode(
      DECODER, params[0], inputs, **options
  )
  jax.tree.map(np.testing.assert_array_equal, decode(gamma=Fixed(0)), plain)
