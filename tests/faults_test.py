# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Known faults, each as a kind: properties over gammas, rows, places, dtypes.

The list, and which test is for what, is in docs/trust.md.
"""

import dataclasses
import functools

import helpers
from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from scipy import stats

import t5x_specdec
from t5x_specdec import acceptance
from t5x_specdec import parameters
from t5x_specdec import sampling
from t5x_specdec import T5
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import Chain
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.drafts import ngram
from t5x_specdec.drafts import PromptLookup
from t5x_specdec.testing import toys

VOCAB, ROWS, LENGTH, PROMPT = 17, 4, 9, 5

seeds = st.integers(0, 2**31)
# Examples are the same in every run, so a failure is a change's.
examples = functools.partial(
    settings,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def by_hand(table, word, prompt, steps, eos_id):
  """What a target of a table says: tokens and score, in plain Python.

  Args:
    table: float[inputs, vocab, vocab, vocab], as of `toys.TableDecoder`.
    word: first id of the encoder's input.
    prompt: forced ids, 0 where free.
    steps: most tokens to generate.
    eos_id: ends the text where it is generated.

  Returns:
    int[LENGTH] tokens, and the number and log-probability of those generated.
  """
  limit = min(np.count_nonzero(prompt) + steps, LENGTH)
  text, count, score = [0], 0, 0.0
  for t in range(limit):
    logits = np.float64(table[word, (0, *text)[-2], text[-1]])
    forced = t < len(prompt) and prompt[t] != 0
    token = int(prompt[t]) if forced else int(np.argmax(logits))
    text.append(token)
    if not forced:
      count += 1
      score += logits[token] - np.log(np.sum(np.exp(logits)))
      if token == eos_id:
        break
  return np.pad(text[1:], (0, LENGTH + 1 - len(text))), count, score


def decode(tables, prompts, gamma, **options):
  """Decodes ROWS rows of two tables; one compilation per gamma.

  Each rule of verification has its own gamma, 2 or 5.
  """
  decoder = toys.TableDecoder(VOCAB)
  return t5x_specdec.speculative_decode(
      decoder,
      decoder,
      {'table': tables[0]},
      {'table': tables[1]},
      np.arange(ROWS)[:, None],
      prompts=prompts,
      max_decode_len=LENGTH,
      gamma=gamma,
      rescale_log_probs=False,
      verification={2: 'token', 5: 'block'}[gamma],
      trace=True,
      **({'max_decode_steps': np.full(ROWS, LENGTH)} | options),
  )


gammas = st.sampled_from([2, 5])


@examples(max_examples=50)
@given(
    seed=seeds,
    gamma=gammas,
    eos_id=st.integers(1, VOCAB - 1),
    agreement=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    mixed=st.booleans(),
)
def test_greedy_texts_are_the_targets_own(
    seed, gamma, eos_id, agreement, mixed
):
  """Ties, prompts with holes, lengths, EOS, zeros; greedy rows among others."""
  rng = np.random.default_rng(seed)
  # Few different logits: nearly every place has a tie for the best.
  target = rng.integers(0, 4, [ROWS, VOCAB, VOCAB, VOCAB]).astype(np.float32)
  noise = rng.integers(0, 4, target.shape).astype(np.float32)
  agrees = rng.random(target.shape[:-1]) < agreement
  draft = np.where(agrees[..., None], target, noise)
  prompts = helpers.random_prompts(rng, ROWS, PROMPT, VOCAB, holes=True)
  steps = rng.integers(1, LENGTH + 1, ROWS)
  temperature = np.zeros(ROWS, np.float32)
  temperature[-1] = mixed
  result = decode(
      (target, draft),
      prompts,
      gamma,
      max_decode_steps=steps,
      eos_id=eos_id,
      rng=jax.random.key(seed),
      temperature=temperature,
      topk=0,
  )
  for row in range(ROWS - mixed):
    tokens, count, score = by_hand(
        target, row, prompts[row], steps[row], eos_id
    )
    np.testing.assert_array_equal(result.tokens[row, 0], tokens)
    assert result.stats.emitted[row, 0] == count
    np.testing.assert_allclose(result.scores[row, 0], score, atol=1e-4)


@pytest.mark.parametrize('rescale', [True, False])
def test_scores_are_those_of_the_law_that_is_named(rescale):
  """That of the draws, or the model's own; several decodes, rising."""
  table = laws.toy_tables(3)[0]
  decodes = 4
  result = t5x_specdec.autoregressive_decode(
      toys.TableDecoder(laws.VOCAB),
      {'table': table},
      np.zeros([8, 1], np.int32),
      max_decode_len=6,
      eos_id=laws.VOCAB,
      rng=jax.random.key(0),
      temperature=1.7,
      topk=3,
      num_decodes=decodes,
      rescale_log_probs=rescale,
  )
  law = toys.exact_law(table[0], *((1.7, 3) if rescale else (1.0,)))
  text = np.pad(result.tokens, ((0, 0), (0, 0), (2, 0)))
  chosen = law[text[..., :-2], text[..., 1:-1], text[..., 2:]]
  np.testing.assert_allclose(
      result.scores, np.log(chosen).sum(-1), atol=1e-4
  )
  assert np.all(np.diff(result.scores, axis=1) >= 0)
  # Noise of their own: equal texts of so many are a matter of chance.
  different = [len({tuple(text) for text in row}) for row in text.tolist()]
  assert np.mean(different) > 0.8 * decodes


def test_every_word_of_a_key_counts():
  """Keys of T5X's hardware generator have four; any may be the only one."""
  words = np.tile(np.uint32([1, 2, 3, 4]), [5, 1])
  words[1:] += np.eye(4, dtype=np.uint32)
  keys = jax.random.wrap_key_data(jnp.asarray(words), impl='unsafe_rbg')
  typed = np.asarray(jax.random.key_data(sampling.typed(keys)))
  assert len({tuple(key) for key in typed}) == len(words)


def test_a_batch_of_one_row_stands_where_it_is_told():
  """Its cache is written by a call of its own."""
  config = helpers.CONFIGS['decoder_only']
  decoder = T5(config)
  params = decoder.prepare(helpers.random_params(config, 35))
  tokens = np.random.default_rng(0).integers(1, config.vocab_size, [1, 9])
  whole = jax.jit(decoder.logits)(params, None, jnp.asarray(tokens))
  state = decoder.init(params, None, 1, 12)
  score = jax.jit(decoder.decode_block)
  for start in (0, 3, 6):
    block = jnp.asarray(tokens[:, start : start + 3])
    logits, state = score(params, state, block, jnp.array([start]))
    np.testing.assert_allclose(logits, whole[:, start : start + 3], atol=1e-4)


@functools.partial(jax.jit, static_argnames='rule')
def judge(p, q, drafts, lengths, keys, *, rule):
  judgement = acceptance.RULES[rule](p, q, drafts, lengths, keys)
  return judgement.conclude(sampling.fold_rows(keys, 1))


@pytest.mark.parametrize('rule', acceptance.RULES)
@examples(max_examples=25)
@given(seed=seeds)
def test_a_rows_verdict_is_its_own(rule, seed):
  """Rejecting and accepting rows in one batch, each with its own support."""
  rng = np.random.default_rng(seed)
  rows, gamma, vocab = 6, 4, 24
  support = np.arange(vocab) // 4 == np.arange(rows)[:, None, None]
  p = rng.gamma(0.5, size=[rows, gamma + 1, vocab]) * support
  q = rng.gamma(0.5, size=[rows, gamma, vocab]) * support
  # Every other row drafts what its target cannot say, at a random place.
  q[::2, rng.integers(gamma)] = rng.gamma(0.5, size=vocab) * ~support[::2, 0]
  p, q = (np.float32(x / x.sum(-1, keepdims=True)) for x in (p, q))
  cdf = np.cumsum(q, axis=-1) / np.sum(q, axis=-1, keepdims=True)
  drafts = np.argmax(cdf > rng.random([rows, gamma, 1]), axis=-1)
  lengths = rng.integers(0, gamma + 1, rows)
  keys = sampling.row_keys(jax.random.key(seed), rows)
  arguments = (p, q, drafts.astype(np.int32), lengths, keys)
  together = judge(*arguments, rule=rule)
  assert np.all(together.accepted <= lengths)
  own = np.take_along_axis(
      support[:, 0], np.asarray(together.next_token)[:, None], axis=1
  )
  assert np.all(own)
  order = rng.permutation(rows)
  permuted = judge(*(x[order] for x in arguments), rule=rule)
  for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(permuted)):
    np.testing.assert_array_equal(ours[order], theirs)
  row = int(rng.integers(rows))
  alone = judge(*(x[row : row + 1] for x in arguments), rule=rule)
  for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone)):
    np.testing.assert_array_equal(ours[row], theirs[0])


@pytest.mark.parametrize(
    'dtype', helpers.some_slow(['float32'], ['float32', 'bfloat16'])
)
@pytest.mark.parametrize('topk', helpers.some_slow([5], [0, 5]))
def test_a_target_that_drafts_for_itself(dtype, topk):
  """p is q up to rounding: all but all is accepted, nothing odd comes out."""
  config = dataclasses.replace(helpers.CONFIGS['t5_1_1'], dtype=dtype)
  params = helpers.random_params(config, 91)
  inputs = helpers.random_inputs(
      np.random.default_rng(0), 64, 6, config.vocab_size
  )
  result = t5x_specdec.speculative_decode(
      T5(config),
      T5(config),
      params,
      params,
      inputs,
      max_decode_len=10,
      eos_id=helpers.NO_EOS,
      gamma=3,
      rng=jax.random.key(1),
      topk=topk,
  )
  summary = result.stats.summary()
  assert summary['nonfinite'] == 0
  assert np.all(np.isfinite(result.scores))
  assert np.all((result.tokens >= 0) & (result.tokens < config.vocab_size))
  lost = {'float32': 1e-4, 'bfloat16': 0.05}[dtype]
  assert summary['alpha'] > 1 - lost
  # Of rejections there may be as many as 1 - alpha promises.
  judged = summary['judged']
  rejected = judged - summary['accepted']
  assert rejected <= judged * lost + 5 * np.sqrt(judged * lost)


def test_proposals_come_with_the_law_they_were_drawn_from():
  """A draft with bfloat16 logits: q is float32 and the law of its tokens."""
  rows, gamma = 20_000, 3
  rng = np.random.default_rng(5)
  table = rng.normal(0, 2, [1, VOCAB, VOCAB, VOCAB])
  table = jnp.asarray(table, jnp.bfloat16)
  draft = ModelDraft(toys.TableDecoder(VOCAB))
  method = sampling.Method(
      temperature=jnp.full([rows], 0.7), topk=jnp.int32(4), topp=jnp.float32(0)
  )
  keys = jax.random.split(jax.random.key(0), [rows, gamma])
  state = draft.init(
      {'table': table},
      jnp.zeros([rows, 1], jnp.int32),
      jnp.zeros([rows, 0], jnp.int32),
      gamma + 3,
  )
  start = jnp.zeros([rows], jnp.int32)
  proposal, _ = jax.jit(
      lambda: draft.propose(
          {'table': table},
          state,
          jnp.zeros([rows, gamma + 3], jnp.int32),
          start,
          method,
          gamma,
          start + gamma,
          keys,
      )
  )()
  assert proposal.q is not None and proposal.q.dtype == jnp.float32
  text = np.pad(np.asarray(proposal.tokens), ((0, 0), (2, 0)))
  laws = toys.exact_law(np.asarray(table, np.float64)[0], 0.7, topk=4)
  for i in range(gamma):
    want = laws[text[:, i], text[:, i + 1]]
    np.testing.assert_allclose(proposal.q[:, i], want, atol=1e-6)
    # Counts by id, summed over contexts, against the laws summed over them.
    found = np.bincount(text[:, i + 2], minlength=VOCAB)
    expected = want.sum(0)
    likely = expected > 5
    assert stats.chisquare(
        found[likely], expected[likely] * found.sum() / expected.sum()
    ).pvalue > 1e-6
    assert np.all(np.take_along_axis(want, text[:, i + 2, None], axis=1) > 0)


@dataclasses.dataclass(frozen=True)
class Narrow:
  """A script whose logits are NaN for a block that its cache has no room for.

  Attributes:
    of: follows the script.
  """

  of: toys.ScriptDecoder

  has_encoder = None

  @property
  def vocab_size(self):
    return self.of.vocab_size

  def check(self, params, model):
    self.of.check(params, model)

  def prepare(self, params):
    return params

  def init(self, params, inputs, rows, max_len):
    return self.of.init(params, inputs, rows, max_len), jnp.zeros([max_len])

  def decode_block(self, params, state, tokens, positions):
    logits, script = self.of.decode_block(params, state[0], tokens, positions)
    fits = positions + tokens.shape[1] <= len(state[1])
    return jnp.where(fits[:, None, None], logits, jnp.nan), (script, state[1])


@pytest.mark.parametrize(
    'length, gamma, chained', [(9, 11, False), (9, 4, True)]
)
def test_every_block_fits_its_cache(length, gamma, chained):
  """At every length, row by row, whatever is accepted."""
  rng = np.random.default_rng(0)
  target = rng.integers(2, 17, [12, length])
  draft = np.where(rng.random(target.shape) < 0.2, 1, target)
  model = Narrow(toys.ScriptDecoder(17))
  source = Chain(PromptLookup(1), ModelDraft(model)) if chained else model
  scripts = {'script': draft}
  result = t5x_specdec.speculative_decode(
      model,
      source,
      {'script': target},
      {'first': {}, 'then': scripts} if chained else scripts,
      np.arange(12)[:, None],
      max_decode_len=length,
      gamma=gamma,
      temperature=1.0,
      topk=1,
  )
  np.testing.assert_array_equal(result.tokens[:, 0], target)
  # A NaN in the target would be counted, one in the draft would cost rounds.
  assert not np.any(result.stats.nonfinite)
  if not chained:
    assert np.sum(result.stats.accepted) == sum(
        accepted_by_hand(*pair, gamma) for pair in zip(target, draft)
    )


def accepted_by_hand(target, draft, gamma):
  """Drafts that stand in a whole decode of two scripts."""
  total = t = 0
  while t < len(target):
    room = min(gamma, len(target) - t - 1)
    same = target[t : t + room] == draft[t : t + room]
    accepted = int(np.sum(np.cumprod(same)))
    total += accepted
    t += accepted + 1
  return total


@pytest.mark.parametrize('option', ['logit_callback_fn', 'alpha'])
def test_options_that_edit_logits_are_refused(option):
  decoder = toys.ScriptDecoder(VOCAB)
  params = {'script': np.full([1, 2], 3)}
  with pytest.raises(TypeError, match=option):
    t5x_specdec.speculative_decode(
        decoder,
        decoder,
        params,
        params,
        np.zeros([1, 1], int),
        max_decode_len=2,
        **{option: None},
    )


@pytest.mark.slow
def test_a_drafts_encoder_decides_what_it_drafts():
  """And not what comes out: a draft that differs in its encoder alone."""
  config = helpers.CONFIGS['t5_1_1']
  params = helpers.random_params(config, 91)
  others = helpers.random_params(config, 92)
  inputs = helpers.random_inputs(
      np.random.default_rng(2), 64, 6, config.vocab_size
  )

  def draft_by(draft_params):
    return t5x_specdec.speculative_decode(
        T5(config),
        T5(config),
        params,
        draft_params,
        inputs,
        max_decode_len=10,
        eos_id=helpers.NO_EOS,
        gamma=3,
        temperature=0.0,
    )

  same = draft_by(params)
  changed = draft_by(params | {'encoder': others['encoder']})
  np.testing.assert_array_equal(changed.tokens, same.tokens)
  assert np.all(same.stats.accepted == same.stats.drafted)
  rate = np.sum(changed.stats.accepted) / np.sum(changed.stats.drafted)
  assert 0 < rate < 0.95


def test_every_text_starts_with_zero():
  """Target and draft say 2 after a start token 0, and 3 after any other."""
  table = np.zeros([ROWS, VOCAB, VOCAB, VOCAB], np.float32)
  table[..., 3] = 5
  table[:, 0, 0, 3], table[:, 0, 0, 2] = 0, 5
  result = decode(
      (table, table), np.zeros([ROWS, PROMPT], int), 2, temperature=0.0
  )
  assert result.trace is not None
  np.testing.assert_array_equal(result.tokens[:, 0, :4], [[2, 3, 3, 3]] * ROWS)
  np.testing.assert_array_equal(
      result.trace.drafted[:, 0, 0], [[2, 3]] * ROWS
  )


def of_size(kind, size) -> tuple[BlockDecoder, dict]:
  """A target that scores `size` ids, and its parameters."""
  if kind == 'T5':
    config = dataclasses.replace(helpers.CONFIGS['t5_1_1'], vocab_size=size)
    shapes = parameters.param_shapes(config)
    return T5(config), parameters.unflatten(
        {path: np.zeros(shape, np.float32) for path, shape in shapes.items()}
    )
  return toys.ScriptDecoder(size), {'script': np.full([1, 2], 3)}


@pytest.mark.parametrize('sizes', [(32, 33), (33, 32), (5, 32128)])
@pytest.mark.parametrize('target', ['T5', 'script'])
@pytest.mark.parametrize('draft', ['T5', 'script', 'ngram', 'chain'])
def test_vocabularies_of_any_two_sizes(sizes, target, draft):
  model, params = of_size(target, sizes[0])
  if draft == 'ngram':
    source, draft_params = ngram.count([[2, 1]], sizes[1], 1)
  else:
    source, draft_params = of_size('T5' if draft == 'T5' else '', sizes[1])
  if draft == 'chain':
    source = Chain(PromptLookup(), ModelDraft(source))
    draft_params = {'first': {}, 'then': draft_params}
  message = f'target is {sizes[0]}, of the draft {sizes[1]}'
  with pytest.raises(ValueError, match=message):
    t5x_specdec.speculative_decode(
        model,
        source,
        params,
        draft_params,
        np.ones([1, 1], int),
        max_decode_len=2,
    )


@pytest.mark.slow
@examples(max_examples=40)
@given(
    seed=seeds,
    gamma=gammas,
    temperature=st.sampled_from([0.0, 1e-6, 0.3, 1.0, 1e3]),
    topk=st.sampled_from([0, 1, 3]),
    bad=st.sampled_from([None, np.nan, np.inf, -np.inf]),
)
def test_ids_are_in_the_vocabulary(seed, gamma, temperature, topk, bad):
  """Those of the text and those drafted, whatever the logits are."""
  rng = np.random.default_rng(seed)
  tables = rng.normal(0, 3, [2, ROWS, VOCAB, VOCAB, VOCAB]).astype(np.float32)
  if bad is not None:
    tables[rng.random(tables.shape) < 0.02] = bad
    tables[rng.random(tables.shape[:-1]) < 0.05] = bad
  result = decode(
      tables,
      np.zeros([ROWS, PROMPT], int),
      gamma,
      rng=jax.random.key(seed),
      temperature=temperature,
      topk=topk,
  )
  tokens = np.asarray(result.tokens)
  assert tokens.min() >= 0 and tokens.max() < VOCAB
  assert result.trace is not None
  drafted = np.asarray(result.trace.drafted)
  made = np.sum(drafted >= 0, axis=(1, 2, 3))
  np.testing.assert_array_equal(made, result.stats.drafted[:, 0])
  assert drafted.min() >= -1 and drafted.max() < VOCAB
  if bad is None:
    assert not np.any(result.stats.nonfinite)


@pytest.mark.slow
def test_memory_grows_linearly_in_gamma():
  """Of a compiled decode at T5's vocabulary; the caches are not doubled."""
  rows, vocab = 16, 32128
  config = dataclasses.replace(
      helpers.CONFIGS['t5_1_1'], vocab_size=vocab, emb_dim=8, head_dim=64
  )

  def temporaries(gamma, length):
    compiled = helpers.compile_decode(
        config,
        config,
        batch=rows,
        input_len=8,
        text_len=length,
        gamma=gamma,
    )
    return compiled.memory_analysis().temp_size_in_bytes

  few, many = temporaries(2, 8), temporaries(8, 8)
  law = 4 * rows * vocab
  assert many - few < 6 * 7 * law
  # Keys and values of a target and a draft of two layers each, once.
  slot = 4 * rows * config.num_heads * config.head_dim * 2 * 2 * 2
  assert temporaries(2, 4096) - few < 1.5 * 4096 * slot
