# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Decoding of fresh random models equals stock T5X's, run here and now."""

import dataclasses
import functools

from golden import make_golden
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import sampling
from t5x_specdec import T5
from t5x_specdec import T5Config

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

BATCH, INPUT_LEN, PROMPT_LEN, TEXT_LEN, GAMMA = 6, 7, 5, 18, 3

# Other shapes than the golden models'.
MODELS = {
    't5_1_0': T5Config(
        vocab_size=29,
        emb_dim=12,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=2,
        head_dim=8,
        mlp_dim=20,
        logits_via_embedding=True,
    ),
    't5_1_1': T5Config(
        vocab_size=31,
        emb_dim=20,
        num_heads=3,
        num_encoder_layers=2,
        num_decoder_layers=2,
        head_dim=4,
        mlp_dim=16,
        mlp_activations=('gelu', 'linear'),
    ),
    'decoder_only': T5Config(
        vocab_size=33,
        emb_dim=12,
        num_heads=3,
        num_encoder_layers=0,
        num_decoder_layers=2,
        head_dim=6,
        mlp_dim=16,
    ),
}


@pytest.fixture(autouse=True)
def quick_but_for_one(request):
  """Compiling takes most of the time; one kind of model has XLA's best."""
  with helpers.quick_compilation('t5_1_1' not in request.node.name):
    yield


@dataclasses.dataclass
class Batch:
  """What both decoders are given."""

  inputs: np.ndarray | None
  prompts: np.ndarray
  steps: np.ndarray

  @classmethod
  def random(cls, config, seed, holes=False):
    rng = np.random.default_rng(seed)
    vocab = config.vocab_size
    inputs = None
    if not config.decoder_only:
      inputs = helpers.random_inputs(rng, BATCH, INPUT_LEN, vocab)
    prompts = helpers.random_prompts(rng, BATCH, PROMPT_LEN, vocab, holes)
    steps = rng.integers(1, TEXT_LEN + 1, BATCH, dtype=np.int32)
    return cls(inputs, prompts, steps)

  def decoded(self, tokens, eos_id):
    """The batch with texts int32[batch, length] that it became."""
    return helpers.Case(
        max_decode_len=TEXT_LEN,
        eos_id=eos_id,
        inputs=self.inputs,
        prompts=self.prompts,
        max_decode_steps=self.steps,
        tokens=tokens,
        scores=np.zeros([BATCH], np.float32),
    )


def run_stock(config, params, batch, eos_id, tidy=True, **method):
  """Tokens int32[batch, num_decodes, length] and scores of stock T5X.

  With `tidy`, tokens of a prompt that lie beyond the end of their row are
  zeros: see `test_prompt_beyond_the_end_of_its_row` and the test after it.
  """
  method = {'temperature': 0.0, 'topk': 1, 'rescale_log_probs': False} | method
  tokens, scores = helpers.stock(config).decode(
      params,
      batch.inputs,
      batch.prompts,
      TEXT_LEN,
      eos_id=eos_id,
      max_decode_steps=batch.steps,
      **method,
  )
  if tidy:
    texts = tokens.swapaxes(0, 1)
    within = [batch.decoded(text, eos_id).within for text in texts]
    tokens = np.where(np.stack(within, axis=1), tokens, 0)
  return tokens, scores


def run_ours(config, params, batch, eos_id, draft=None, **method):
  """The package's result: with drafts if there are parameters of a draft."""
  method = {
      'prompts': batch.prompts,
      'max_decode_len': TEXT_LEN,
      'max_decode_steps': batch.steps,
      'eos_id': eos_id,
      'temperature': 0.0,
      'rescale_log_probs': False,
  } | method
  decoder = T5(config)
  if draft is None:
    return t5x_specdec.autoregressive_decode(
        decoder, params, batch.inputs, **method
    )
  return t5x_specdec.speculative_decode(
      decoder, decoder, params, draft, batch.inputs, gamma=GAMMA, **method
  )


def check(result, expected, what=''):
  """Holds a result against stock's tokens and scores."""
  tokens, scores = expected
  np.testing.assert_array_equal(result.tokens, tokens, str(what))
  np.testing.assert_allclose(
      result.scores, scores, rtol=0, atol=1e-4, err_msg=str(what)
  )


def a_common_id(tokens, config) -> int:
  """An id that many rows hold: as EOS it ends them early."""
  counts = [
      np.sum(np.any(tokens[..., :-1] == i, axis=-1))
      for i in range(1, config.vocab_size)
  ]
  return 1 + int(np.argmax(counts))


def first_difference(ours, stocks):
  """Row and position of each row's first difference."""
  different = ours != stocks
  rows = np.flatnonzero(different.any(axis=1))
  return [(int(row), int(np.argmax(different[row]))) for row in rows]


def stock_logits(config, params, batch, tokens):
  """Stock logits for each token of texts, float32[rows, length, vocab]."""
  shifted = np.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
  return np.asarray(
      helpers.stock(config).cached_logits(params, batch.inputs, shifted)
  )


@pytest.mark.parametrize('name', helpers.CONFIGS)
def test_golden_files_are_what_stock_makes_today(name):
  golden = helpers.Golden.load(name)
  for key, case in golden.cases.items():
    tokens, scores = make_golden.decode_with_stock(golden, case)
    np.testing.assert_array_equal(tokens, case.tokens, key)
    np.testing.assert_allclose(
        scores, case.scores, rtol=0, atol=1e-4, err_msg=key
    )
    if case.rescaled is not None:
      tokens, scores = make_golden.decode_with_stock(golden, case, rescale=True)
      np.testing.assert_array_equal(tokens, case.tokens, key)
      np.testing.assert_array_equal(scores, case.rescaled, key)
  blocks = golden.blocks
  width = blocks.logits.shape[1]
  today = make_golden.logits_with_stock(golden, blocks, width)
  np.testing.assert_allclose(today.logits, blocks.logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize('name', MODELS)
def test_greedy(name):
  config = MODELS[name]
  rows = ended = zeros = accepted = rejected = 0
  for seed in range(10):
    params = helpers.random_params(config, seed)
    similar = helpers.perturbed(params, seed, 0.15)
    eos_id = helpers.NO_EOS
    for holes in (False, True):
      for i in range(3):
        batch = Batch.random(config, 100 * seed + i, holes)
        expected = run_stock(config, params, batch, eos_id)
        what = name, seed, holes, i
        check(run_ours(config, params, batch, eos_id), expected, what)
        result = run_ours(config, params, batch, eos_id, similar)
        check(result, expected, what)
        accepted += np.sum(result.stats.accepted)
        rejected += np.sum(result.stats.judged) - np.sum(result.stats.accepted)
        rows += BATCH
        zeros += np.sum(
            (expected[0][..., :-1] == 0) & (expected[0][..., 1:] != 0)
        )
        ended += np.sum(np.any(expected[0] == eos_id, axis=-1))
        eos_id = a_common_id(expected[0], config)
  assert rows == 360
  assert ended > 40
  assert zeros > 40
  assert min(accepted, rejected) > 300


def test_defaults_are_stocks():
  # Temperature 1 and topk 1.
  config = MODELS['t5_1_1']
  stock = helpers.stock(config)
  params = helpers.random_params(config, 3)
  batch = Batch.random(config, 3)
  batch.prompts[:] = 0
  expected = stock.decode(params, batch.inputs, None, TEXT_LEN, eos_id=1)
  result = t5x_specdec.autoregressive_decode(
      T5(config), params, batch.inputs, max_decode_len=TEXT_LEN
  )
  check(result, expected)


def test_sampling_the_best_token_only():
  config = MODELS['t5_1_1']
  params = helpers.random_params(config, 4)
  similar = helpers.perturbed(params, 4, 0.1)
  eos_id = 7
  temperatures = [
      1.0,
      0.3,
      np.array([0.0, 1.0, 1e-4, 0.5, 2.0, 0.0], np.float32),
  ]
  for temperature in temperatures:
    for seed in range(3):
      batch = Batch.random(config, 40 + seed)
      method = {'temperature': temperature, 'topk': 1}
      expected = run_stock(config, params, batch, eos_id, **method)
      check(run_ours(config, params, batch, eos_id, **method), expected)
      result = run_ours(config, params, batch, eos_id, similar, **method)
      check(result, expected, (temperature, seed))


@pytest.mark.parametrize('rescale', [False, True])
def test_several_decodes(rescale):
  config = MODELS['t5_1_1']
  params = helpers.random_params(config, 5)
  similar = helpers.perturbed(params, 5, 0.1)
  batch = Batch.random(config, 50)
  # Stock has no limit per row together with several decodes.
  batch.steps = np.int32(11)
  common = {'num_decodes': 3, 'rescale_log_probs': rescale}
  best = run_stock(config, params, batch, helpers.NO_EOS, **common)
  eos_id = a_common_id(best[0], config)

  # Decodes that must be equal: greedy, and the best token alone.
  for method in ({'temperature': 0.0}, {'temperature': 1.0, 'topk': 1}):
    expected = run_stock(config, params, batch, eos_id, **method, **common)
    assert expected[0].shape == (BATCH, 3, TEXT_LEN)
    result = run_ours(
        config, params, batch, eos_id, similar, **method, **common
    )
    check(result, expected, method)

  # Sampled ones: in order of rising score, each of them the text's own by
  # stock's logits and stock's filters.
  for method in (
      {'temperature': 1.0, 'topk': 0},
      {'temperature': 0.7, 'topk': 4},
      {'temperature': 1.5, 'topk': 0, 'topp': 0.8},
  ):
    result = run_ours(
        config, params, batch, eos_id, similar, **method, **common
    )
    scores = np.asarray(result.scores)
    assert np.all(np.diff(scores, axis=1) >= 0)
    assert len(np.unique(scores)) > BATCH
    texts = np.asarray(result.tokens)
    for i in range(3):
      logits = stock_logits(config, params, batch, texts[:, i])
      log_law = jnp.log(stock_law(logits, **method)) if rescale else logits
      each = np.take_along_axis(
          np.asarray(jax.nn.log_softmax(log_law)), texts[:, i, :, None], axis=-1
      )[..., 0]
      generated = batch.decoded(texts[:, i], eos_id).generated
      expected = np.sum(np.where(generated, each, 0.0), axis=1)
      np.testing.assert_allclose(scores[:, i], expected, rtol=0, atol=1e-4)
      if not rescale:
        check_by_score_batch(
            config, params, batch, texts[:, i], generated, scores[:, i]
        )


def check_by_score_batch(config, params, batch, texts, weights, scores):
  """Holds scores against `score_batch`, which masks targets that are 0."""
  stock = helpers.stock(config)
  expected = stock.model.score_batch(
      params,
      {
          'encoder_input_tokens': batch.inputs,
          'decoder_input_tokens': np.pad(texts, ((0, 0), (1, 0)))[:, :-1],
          'decoder_target_tokens': texts,
          'decoder_loss_weights': weights.astype(np.float32),
      },
  )
  fair = ~np.any(weights & (texts == 0), axis=1)
  assert np.any(fair)
  np.testing.assert_allclose(
      scores[fair], np.asarray(expected)[fair], rtol=0, atol=1e-4
  )


def test_id_0_is_an_ordinary_token():
  config = MODELS['t5_1_1']
  params = helpers.random_params(config, 12)
  # Id 0 is best where it is good at all.
  params['decoder']['logits_dense']['kernel'][:, 0] *= 2
  similar = helpers.perturbed(params, 12, 0.1)
  eos_id = 9
  inside = 0
  for seed in range(4):
    batch = Batch.random(config, 60 + seed, holes=seed % 2 == 1)
    batch.steps[:] = TEXT_LEN
    expected = run_stock(config, params, batch, eos_id)
    for draft in (None, params, similar):
      check(run_ours(config, params, batch, eos_id, draft), expected, seed)
    text = expected[0][:, 0]
    inside += np.sum((text[:, :-1] == 0) & (text[:, 1:] != 0))
  assert inside > 40


def test_eos_in_the_prompt_does_not_count():
  config = MODELS['t5_1_0']
  params = helpers.random_params(config, 7)
  similar = helpers.perturbed(params, 7, 0.1)
  batch = Batch.random(config, 70)
  batch.prompts[:] = 0
  batch.steps[:] = TEXT_LEN
  text = run_stock(config, params, batch, helpers.NO_EOS)[0]
  eos_id = a_common_id(text[..., 6:], config)
  batch.prompts[:] = [
      [eos_id, 0, 0, 0, 0],
      [5, eos_id, 0, 0, 0],
      [eos_id] * 5,
      [5, 6, eos_id, 7, 0],
      [5, 0, eos_id, 0, 0],
      [0, 0, 0, 0, 0],
  ]
  expected = run_stock(config, params, batch, eos_id)
  text = expected[0][:, 0]
  assert np.all(np.any(text[:, 3:] != 0, axis=1))
  assert np.sum(np.any(text[:, 5:] == eos_id, axis=1)) >= 4
  for draft in (None, params, similar):
    check(run_ours(config, params, batch, eos_id, draft), expected)


@pytest.mark.parametrize('name', ['t5_1_0', 't5_1_1'])
def test_padding_anywhere_in_the_inputs(name):
  config = MODELS[name]
  params = helpers.random_params(config, 8)
  similar = helpers.perturbed(params, 8, 0.1)
  batch = Batch.random(config, 80)
  batch.inputs[0] = 0
  batch.inputs[1, :3] = 0
  batch.inputs[2, ::2] = 0
  batch.inputs[3, :-1] = 0
  expected = run_stock(config, params, batch, 5)
  for draft in (None, params, similar):
    check(run_ours(config, params, batch, 5, draft), expected)
  tokens = expected[0][:, 0]
  shifted = np.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
  ours = jax.jit(T5(config).logits)(params, batch.inputs, shifted)
  theirs = stock_logits(config, params, batch, tokens)
  np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


def test_prompts_that_nearly_fill_the_text():
  config = MODELS['t5_1_1']
  params = helpers.random_params(config, 9)
  similar = helpers.perturbed(params, 9, 0.1)
  rng = np.random.default_rng(9)
  batch = Batch.random(config, 90)
  batch.prompts = rng.integers(
      1, config.vocab_size, [BATCH, TEXT_LEN - 1], dtype=np.int32
  )
  for row in range(BATCH):
    batch.prompts[row, TEXT_LEN - 1 - row :] = 0
  expected = run_stock(config, params, batch, 5)
  check(run_ours(config, params, batch, 5, similar), expected)


def test_prompt_beyond_the_end_of_its_row():
  """Where stock depends on who shares the batch, ours does not.

  A row ends at a generated EOS while tokens of its prompt, behind a hole, are
  still to come. Stock overwrites these with zeros as long as another row keeps
  the loop going and leaves the rest standing behind the EOS.
  """
  config = MODELS['t5_1_1']
  params = helpers.random_params(config, 10)
  batch = Batch.random(config, 110)
  batch.prompts[:] = 0
  batch.steps[:] = TEXT_LEN
  eos_id = int(run_stock(config, params, batch, helpers.NO_EOS)[0][0, 0, 0])
  batch.inputs[:] = batch.inputs[0]
  batch.prompts[:] = [0, 0, 4, 6, 0]
  stocks, scores = run_stock(config, params, batch, eos_id, tidy=False)
  ours = run_ours(config, params, batch, eos_id)
  np.testing.assert_allclose(ours.scores, scores, rtol=0, atol=1e-4)
  assert stocks[0, 0].tolist() == [eos_id, 0, 4, 6] + [0] * (TEXT_LEN - 4)
  assert np.asarray(ours.tokens)[0, 0].tolist() == (
      [eos_id] + [0] * (TEXT_LEN - 1)
  )
  # With a row that goes on, stock says so too.
  batch.prompts[1:] = [8, 9, 3, 0, 0]
  stocks, scores = run_stock(config, params, batch, eos_id, tidy=False)
  assert not np.any(stocks[0, 0, 1:4])
  check(run_ours(config, params, batch, eos_id), (stocks, scores))


def test_prompt_beyond_a_limit():
  """`max_decode_steps` that ends a row before the last of its prompt.

  Limits count the prompt's tokens, not its holes. Stock leaves what lies beyond
  the limit standing, but for the one slot that follows it.
  """
  config = MODELS['t5_1_1']
  params = helpers.random_params(config, 11)
  batch = Batch.random(config, 111)
  batch.prompts[:] = [0, 0, 0, 4, 6]
  batch.steps[:] = 1
  eos_id = helpers.NO_EOS
  stocks, scores = run_stock(config, params, batch, eos_id, tidy=False)
  ours = run_ours(config, params, batch, eos_id)
  np.testing.assert_allclose(ours.scores, scores, rtol=0, atol=1e-4)
  limit = 3
  tokens = np.asarray(ours.tokens)
  np.testing.assert_array_equal(tokens[..., :limit], stocks[..., :limit])
  assert not np.any(tokens[..., limit:])
  np.testing.assert_array_equal(
      stocks[:, 0, limit : limit + 2], [[4, 6]] * BATCH
  )


@pytest.mark.parametrize('name', ['t5_1_0', 't5_1_1', 'decoder_only'])
def test_bfloat16(name, record_property):
  exact = MODELS[name]
  config = dataclasses.replace(
      exact, dtype='bfloat16', float32_attention_logits=name == 't5_1_0'
  )
  our_logits = jax.jit(T5(config).logits)
  rows = differing = 0
  worst_margin = 0.0
  for seed in range(4):
    params = helpers.random_params(config, seed)
    similar = helpers.perturbed(params, seed, 0.15)
    for i in range(3):
      batch = Batch.random(config, 200 + 10 * seed + i)
      batch.steps[:] = TEXT_LEN
      stocks, _ = run_stock(config, params, batch, 5)
      text = stocks[:, 0]
      theirs = stock_logits(config, params, batch, text)
      shifted = np.pad(text, ((0, 0), (1, 0)))[:, :-1]
      ours = np.asarray(our_logits(params, batch.inputs, shifted))
      truth = stock_logits(exact, params, batch, text)
      assert ours.dtype == theirs.dtype == np.float32
      # As close to stock as stock is to the float32 model.
      rounding = np.sqrt(np.mean(np.square(theirs - truth)))
      assert 0 < rounding < 0.1 * np.std(truth)
      assert np.sqrt(np.mean(np.square(ours - theirs))) < rounding
      for draft in (params, similar):
        result = run_ours(config, params, batch, 5, draft)
        tokens = np.asarray(result.tokens)[:, 0]
        rows += BATCH
        for row, t in first_difference(tokens, text):
          # A close call of stock's own, between the two tokens chosen.
          at = theirs[row, t]
          margin = at[text[row, t]] - at[tokens[row, t]]
          differing += 1
          worst_margin = max(worst_margin, float(margin))
          assert 0 <= margin < 3 * rounding, (seed, i, row, t, margin)
  record_property('rows', rows)
  record_property('differing', differing)
  record_property('worst_margin', worst_margin)
  print(f'{name}: {differing} of {rows} rows differ, margin {worst_margin:.4f}')
  assert differing < 0.2 * rows


@functools.partial(jax.jit, static_argnames=('topk', 'topp'))
def stock_law(logits, temperature, topk=0, topp=0.0):
  """The law that `temperature_sample` draws from, by T5X's own filters."""
  # pylint: disable-next=g-import-not-at-top
  from t5x import binary_search
  from t5x import decoding

  temperature = jnp.asarray(temperature)
  rows = (-1,) + (1,) * (logits.ndim - 1)
  least = decoding.MIN_TEMPERATURE
  scaled = logits / jnp.maximum(temperature.reshape(rows), least)
  if topk:
    scaled = binary_search.topk_mask(scaled, topk, decoding.NEG_INF)
  if topp:
    scaled = binary_search.topp_mask(scaled, topp, decoding.NEG_INF)
  best = jax.nn.one_hot(jnp.argmax(logits, -1), logits.shape[-1])
  greedy = (temperature <= least).reshape(rows)
  return jnp.where(greedy, best, jax.nn.softmax(scaled))


def our_law(logits, temperature, topk=0, topp=0.0):
  rows = logits.shape[0]
  return jax.jit(sampling.law)(
      logits,
      sampling.Method(
          jnp.broadcast_to(jnp.float32(temperature), [rows]),
          jnp.int32(topk),
          jnp.float32(topp),
      ),
  )


_TEMPERATURES = np.array([0.0, 1e-4, 1.1e-4, 1e-2, 0.5, 1.0, 2.0], np.float32)


@pytest.mark.parametrize(
    'method',
    [
        {},
        *[{'topk': k} for k in (1, 2, 5, 39, 40, 41, 1000)],
        *[{'topp': p} for p in (1e-6, 0.1, 0.5, 0.9, 0.999, 1.0)],
    ],
    ids=str,
)
@pytest.mark.parametrize('ties', [False, True])
def test_law_of_a_draw(method, ties):
  rng = np.random.default_rng(12)
  logits = rng.normal(0, 3, [7, 50, 40]).astype(np.float32)
  if ties:
    # Many equal logits, at the cutoff too; and rows of one value.
    logits = np.round(logits / 2) * 2 + np.float32(0.5)
    logits[:, 0] = 1.5
  for temperature in (1.0, 0.3, _TEMPERATURES):
    ours = np.asarray(our_law(logits, temperature, **method))
    theirs = np.asarray(stock_law(logits, temperature, **method))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    # At topp 1.0 it is rounding that decides about tokens of next to no mass.
    either = np.where((ours > 0) != (theirs > 0), ours + theirs, 0.0)
    most = 5e-7 if method.get('topp') == 1.0 else 0.0
    assert np.max(np.sum(either, axis=-1)) <= most


def test_law_takes_both_zeros_for_equal():
  logits = np.array([[0.0, -0.0, -1.0]], np.float32)
  theirs = np.asarray(stock_law(logits, 1.0, topk=1))
  np.testing.assert_array_equal(theirs, [[0.5, 0.5, 0.0]])
  np.testing.assert_array_equal(our_law(logits, 1.0, topk=1), theirs)


def test_traced_topp_of_zero_is_no_cutoff():
  """As T5X documents it; its own code then masks every logit."""
  # pylint: disable-next=g-import-not-at-top
  from t5x import binary_search

  logits = np.array([[1.0, 3.0, -2.0]], np.float32)
  assert np.all(binary_search.topp_mask(logits, 0.0, -1e7) == -1e7)
  np.testing.assert_allclose(
      our_law(logits, 1.0, topp=0.0), jax.nn.softmax(logits), atol=1e-6
  )


@pytest.mark.parametrize(
    'arguments',
    [
        {'topk': 2, 'topp': 0.5},
        {'max_decode_steps': TEXT_LEN + 1},
    ],
    ids=str,
)
def test_refused_by_both(arguments):
  # pylint: disable-next=g-import-not-at-top
  from t5x import decoding

  config = MODELS['t5_1_1']
  params = helpers.random_params(config, 0)
  batch = Batch.random(config, 0)
  with pytest.raises(ValueError):
    decoding.temperature_sample(
        jnp.zeros([BATCH, TEXT_LEN], jnp.int32),
        {},
        lambda state: (jnp.zeros([BATCH, config.vocab_size]), state.cache),
        eos_id=1,
        **arguments,
    )
  with pytest.raises(ValueError):
    t5x_specdec.autoregressive_decode(
        T5(config), params, batch.inputs, max_decode_len=TEXT_LEN, **arguments
    )
