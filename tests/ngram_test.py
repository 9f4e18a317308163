# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counted n-grams: their law by hand; see also `drafts_policies_test`."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec.drafts import ngram
from t5x_specdec.sampling import Method


def texts(seed=0, vocab=7, number=40):
  rng = np.random.default_rng(seed)
  return [
      [*(rng.zipf(1.5, rng.integers(0, 9)) % (vocab - 2) + 2), 1]
      for _ in range(number)
  ]


def slow_law(corpus, order, context, vocab):
  """Witten and Bell's law by its definition, over Python lists."""
  follows = collections.defaultdict(collections.Counter)
  for text in corpus:
    padded = [0, *map(int, text)]
    for i in range(1, len(padded)):
      for n in range(order):
        if i - n >= 0:
          follows[tuple(padded[i - n : i])][padded[i]] += 1
  law = np.zeros(vocab)
  for token, number in follows[()].items():
    law[token] = number
  law /= law.sum()
  for n in range(1, order):
    counter = follows.get(tuple(context[len(context) - n :]))
    if counter and len(context) >= n:
      kinds = len(counter)
      law = law * kinds
      for token, number in counter.items():
        law[token] += number
      law /= sum(counter.values()) + kinds
  return law


@pytest.mark.parametrize('order', [1, 2, 3, 4])
def test_law_equals_the_definition(order):
  corpus = texts()
  draft, params = ngram.count(corpus, 7, order)
  draft.check(params)
  prepared = draft.prepare(params)
  rng = np.random.default_rng(1)
  contexts = rng.integers(0, 7, [64, order - 1])
  contexts[:20] = np.where(
      np.arange(order - 1) < rng.integers(0, order, [20, 1]), -1, contexts[:20]
  )
  found = draft.law(prepared, jnp.asarray(contexts))
  for context, law in zip(contexts.tolist(), np.asarray(found)):
    want = slow_law(corpus, order, context, 7)
    np.testing.assert_allclose(law, want, atol=1e-6, err_msg=str(context))


def test_table_by_hand():
  draft, params = ngram.count([[5, 6, 1], [5, 5, 1]], 8, 2)
  assert draft == ngram.Ngram(8, 2, unigrams=4, fanout=3)
  # Tokens 0 1 5 6, then 0-5, 5-1, 5-5, 5-6, 6-1.
  np.testing.assert_array_equal(params['tokens'], [0, 1, 5, 6, 5, 1, 5, 6, 1])
  np.testing.assert_array_equal(params['counts'], [0, 2, 3, 1, 2, 1, 1, 1, 1])
  np.testing.assert_array_equal(params['starts'][:4], [4, 0, 5, 8])
  np.testing.assert_array_equal(params['ends'][:4], [5, 0, 8, 9])


@pytest.mark.parametrize('order', [1, 2, 4])
def test_drafts_go_on_from_the_text_and_from_each_other(order):
  """q is the law after the very tokens before it; a wrong one costs alpha."""
  corpus = texts(3)
  draft, params = ngram.count(corpus, 7, order)
  said = [[], [4], [2, 2, 5], [3, 4, 5, 6, 2]]
  tokens = np.full([4, 9], 6)  # stale past each position
  tokens[:, 0] = 0
  for row, text in zip(tokens, said):
    row[1 : 1 + len(text)] = text
  method = Method(jnp.ones([4]), jnp.int32(0), jnp.float32(0))
  keys = jax.random.split(jax.random.key(0), (4, 3))
  positions = jnp.asarray([len(text) for text in said])
  proposal, _ = draft.propose(
      draft.prepare(params),
      (),
      jnp.asarray(tokens),
      positions,
      method,
      3,
      jnp.full([4], 3),
      keys,
  )
  np.testing.assert_array_equal(proposal.lengths, 3)
  for row, text in enumerate(said):
    for i in range(3):
      before = [0, *text, *np.asarray(proposal.tokens[row, :i]).tolist()]
      want = slow_law(corpus, order, before, 7)
      np.testing.assert_allclose(proposal.q[row, i], want, atol=1e-6)


def test_saved_and_read(tmp_path):
  draft, params = ngram.count(texts(), 7, 3)
  ngram.save(tmp_path / 'table.npz', ngram.Table(draft, params, 'abc'))
  again, arrays, fingerprint = ngram.load(tmp_path / 'table.npz')
  assert (again, fingerprint) == (draft, 'abc')
  for name, leaf in params.items():
    np.testing.assert_array_equal(arrays[name], leaf)
  certain = ngram.load(tmp_path / 'table.npz', argmax=True).draft
  assert certain == dataclasses.replace(draft, argmax=True)


def test_argmax_is_certain_of_the_likeliest_token_at_any_temperature():
  corpus = texts()
  draft, table = ngram.count(corpus, 7, 2)
  draft = dataclasses.replace(draft, argmax=True)
  tokens = jnp.asarray([[0, said] + [0] * 6 for said in range(1, 7)])
  proposal, _ = draft.propose(
      draft.prepare(table),
      (),
      tokens,
      jnp.ones([6], jnp.int32),
      Method(jnp.full([6], 9.0), jnp.int32(0), jnp.float32(0)),
      3,
      jnp.full([6], 3),
      jax.random.split(jax.random.key(0), (6, 3)),
  )
  assert proposal.q is None
  for row, said in enumerate(range(1, 7)):
    before = [0, said]
    for token in np.asarray(proposal.tokens[row]).tolist():
      law = slow_law(corpus, 2, before, 7)
      assert law[token] == max(law)
      before.append(token)


def test_what_is_no_table_is_refused(tmp_path):
  path = tmp_path / 'table.npz'
  with pytest.raises(FileNotFoundError):
    ngram.load(path)
  draft, params = ngram.count(texts(), 7, 2)
  ngram.save(path, ngram.Table(draft, params, 'abc'))
  whole = path.read_bytes()
  for content in (b'', b'text', whole[: len(whole) // 2]):
    path.write_bytes(content)
    with pytest.raises(ValueError, match='table.npz is not an n-gram table'):
      ngram.load(path)
  for place in range(0, len(whole), 7):
    flipped = bytearray(whole)
    flipped[place] ^= 16
    path.write_bytes(flipped)
    try:
      again = ngram.load(path)
    except ValueError as error:
      assert 'table.npz is not an n-gram table' in str(error)
    else:  # in a part of the archive that says nothing
      assert (again.draft, again.fingerprint) == (draft, 'abc')
      for name, leaf in params.items():
        np.testing.assert_array_equal(again.params[name], leaf)
  np.savez(path, tokens=np.array([object()], dtype=object))
  with pytest.raises(ValueError, match='is not an n-gram table'):
    ngram.load(path)
  arrays = {**params, 'fingerprint': np.asarray('abc')}
  entries = len(params['tokens'])
  good = dataclasses.astuple(draft)[:4]
  for shape in (
      (7, 2),
      (*good, 5),
      (7, 0, *good[2:]),
      (7, 99, *good[2:]),
      (7, 2, -5, good[3]),
      (7, 2, good[2], 10**9),
      (2, *good[1:]),
      ('a', 'b', 'c', 'd'),
      7,
  ):
    np.savez(path, shape=np.asarray(shape), **arrays)
    with pytest.raises(ValueError, match='is not an n-gram table'):
      ngram.load(path)
  for name, leaf in (
      ('starts', params['starts'] + 10**8),
      ('ends', params['ends'] + entries),
      ('counts', -params['counts']),
      ('tokens', params['tokens'].astype(np.float32)),
  ):
    np.savez(path, shape=np.asarray(good), **{**arrays, name: leaf})
    with pytest.raises(ValueError, match='is not an n-gram table'):
      ngram.load(path)
  np.savez(path, shape=np.asarray(good), more=params['tokens'], **arrays)
  with pytest.raises(ValueError, match="arrays .*'more'"):
    ngram.load(path)
  np.save(tmp_path / 'table.npy', params['tokens'])
  with pytest.raises(ValueError, match='table.npy is not an n-gram table'):
    ngram.load(tmp_path / 'table.npy')
  np.savez(path, tokens=np.zeros(3))
  with pytest.raises(ValueError, match='is not an n-gram table'):
    ngram.load(path)


def test_arrays_of_a_table_are_of_one_length():
  draft, params = ngram.count(texts(), 7, 2)
  for change in ({'counts': params['counts'][:-1]}, {'ends': None}):
    with pytest.raises(ValueError, match='not an n-gram table, shapes'):
      draft.check(params | change)


def test_ids_are_integers():
  with pytest.raises(TypeError):
    ngram.count([[2.7, 1]], 5, 1)


@pytest.mark.parametrize(
    'corpus, vocab, order, message',
    [
        ([[2, 1]], 5, 0, r'order must be in \[1, 4\], got 0'),
        ([[2, 1]], 5, 5, r'order must be in \[1, 4\], got 5'),
        ([[9, 1]], 5, 2, r'ids must be in \[1, 4\], got some in \[1, 9\]'),
        ([[2, 0, 1]], 5, 2, r'must be in \[1, 4\], got some in \[0, 2\]'),
        ([], 5, 2, 'no text to count'),
        ([[]], 5, 2, 'no text to count'),
    ],
)
def test_what_cannot_be_counted_is_refused(corpus, vocab, order, message):
  with pytest.raises(ValueError, match=message):
    ngram.count(corpus, vocab, order)
