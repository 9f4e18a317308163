# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Drafts by the name of their kind, and what makes no draft."""

import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec.drafts import Chain
from t5x_specdec.drafts import chain
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.drafts import ngram
from t5x_specdec.drafts import PromptLookup
from t5x_specdec.drafts import Proposal
from t5x_specdec.testing import toys

DECODER = toys.ScriptDecoder(9)
SCRIPT = {'script': np.full([1, 2], 3)}
TEXTS = [[2, 3, 4, 1], [2, 3, 5, 1]]
TRIGRAMS = ngram.Table(*ngram.count(TEXTS, 7, 3), 'abc')


def test_each_kind_is_made_of_what_it_needs():
  model, table = (DECODER, SCRIPT), TRIGRAMS
  assert kinds.make('lookup', 9) == (PromptLookup(), {})
  assert kinds.make('model', 9, model=model) == (ModelDraft(DECODER), SCRIPT)
  draft, params = kinds.make('chain', 9, model=model)
  assert draft == Chain(PromptLookup(), ModelDraft(DECODER))
  assert params == {'first': {}, 'then': SCRIPT}
  for kind, order in (('unigram', 1), ('bigram', 2), ('ngram', 3)):
    draft, params = kinds.make(kind, 9, table=table)
    counted, expected = ngram.count(TEXTS, 9, order)
    assert draft == counted
    for name, leaf in expected.items():
      np.testing.assert_array_equal(params[name], leaf)


@pytest.mark.parametrize('kind', ['model', 'chain', 'bigram', 'dragon'])
def test_a_kind_without_what_it_needs_is_refused(kind):
  with pytest.raises(ValueError, match=f'without a model or.*: {kind!r}'):
    kinds.make(kind, 9)


def test_tables_are_of_one_vocabulary():
  same: Any = types.SimpleNamespace(path='a.model', fingerprint='abc')
  kinds.check_same_vocabulary(TRIGRAMS, 'counts.npz', same)
  other: Any = types.SimpleNamespace(path='b.model', fingerprint='def')
  with pytest.raises(
      ValueError, match=r'counts\.npz are of one .* abc.*b\.model has def'
  ):
    kinds.check_same_vocabulary(TRIGRAMS, 'counts.npz', other)


def test_what_a_chain_knows_of_its_drafts():
  lookup, model = PromptLookup(), ModelDraft(DECODER)
  both = Chain(lookup, model)
  assert both.vocab_size == Chain(model, lookup).vocab_size == 9
  assert Chain(lookup, lookup).vocab_size is None
  assert Chain(lookup, lookup).may_abstain and not both.may_abstain
  both.check({'first': {}, 'then': SCRIPT})


@pytest.mark.parametrize('soft', [['first'], ['then'], ['first', 'then']])
def test_rows_of_a_chain_keep_their_laws(soft):
  """A draft that is certain has one where the other has one, too."""
  tokens = {'first': jnp.array([[1, 2], [3, 0]]),
            'then': jnp.array([[0, 1], [2, 3]])}
  lengths = {'first': jnp.array([2, 0]), 'then': jnp.array([1, 2])}
  laws = {name: np.eye(4)[ids] for name, ids in tokens.items()}
  for seed, name in enumerate(soft):
    laws[name] = np.random.default_rng(seed).dirichlet(np.ones(4), [2, 2])
  made = {
      name: Proposal(
          tokens[name],
          lengths[name],
          jnp.asarray(laws[name]) if name in soft else None,
      )
      for name in tokens
  }
  found = chain._select(jnp.array([True, False]), made['first'], made['then'])
  np.testing.assert_array_equal(found.tokens, [[1, 2], [2, 3]])
  np.testing.assert_array_equal(found.lengths, [2, 2])
  np.testing.assert_allclose(found.q[0], laws['first'][0], rtol=1e-6)
  np.testing.assert_allclose(found.q[1], laws['then'][1], rtol=1e-6)


def test_what_makes_no_chain_is_refused():
  lookup, model = PromptLookup(), ModelDraft(DECODER)
  with pytest.raises(ValueError, match='needs a second draft'):
    Chain(lookup).check({'first': {}, 'then': {}})
  for params, names in (
      (SCRIPT, r"\['script'\]"),
      ({'first': {}}, r"\['first'\]"),
      ([{}, SCRIPT], "<class 'list'>"),
  ):
    with pytest.raises(ValueError, match=f'parameters of a chain.*got {names}'):
      Chain(lookup, model).check(params)
  small = ModelDraft(toys.ScriptDecoder(5))
  with pytest.raises(ValueError, match='got vocab_size 5 and 9'):
    Chain(small, model).check({'first': SCRIPT, 'then': SCRIPT})
