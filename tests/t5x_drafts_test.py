# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""T5X models whose draft has no parameters, and what mode 'predict' counts."""

import functools
import hashlib
import logging

import helpers
import jax
import numpy as np
import pytest
import t5x_models as cases

from t5x_specdec.drafts import Chain
from t5x_specdec.drafts import ngram
from t5x_specdec.drafts import PromptLookup
from t5x_specdec.gamma import Adaptive

pytestmark = pytest.mark.t5x


@pytest.fixture(autouse=True)
def quick_compilation():
  with helpers.quick_compilation():
    yield


@functools.cache
def lookup_model(name):
  return cases.ours_of(
      name, gamma=2, draft_module=None, draft=PromptLookup(2)
  )


@pytest.mark.parametrize('name', ['t5_1_1', 'decoder_only'])
def test_lookup_needs_no_parameters_and_predicts_as_stock(name):
  case, batch = cases.pair(name), cases.batch_of(name)
  want, _ = cases.predict(case.stock, case.params, batch)
  tokens, aux = cases.predict(
      lookup_model(name), case.params, batch, jit=True
  )
  np.testing.assert_array_equal(tokens, want)
  assert np.asarray(aux['speculation']['drafted']).sum() > 0


@pytest.mark.parametrize('name', ['t5_1_1', 'decoder_only'])
def test_lookup_before_a_model_under_a_policy_predicts_as_stock(name):
  case, batch = cases.pair(name), cases.batch_of(name)
  want, _ = cases.predict(case.stock, case.params, batch)
  model = cases.ours_of(
      name,
      gamma=Adaptive(gammas=(0, 1, 3), c=0.1),
      draft=Chain(PromptLookup(2)),
  )
  tokens, aux = cases.predict(model, case.pair_params, batch, jit=True)
  np.testing.assert_array_equal(tokens, want)
  counters = jax.tree.map(np.asarray, aux['speculation'])
  assert counters['accepted'].sum() > 0
  assert counters['rounds_by_gamma'].shape == (len(want), 4)
  np.testing.assert_array_equal(
      counters['rounds_by_gamma'].sum(-1), counters['rounds']
  )


def test_a_bad_gamma_is_refused_by_the_models_name():
  with pytest.raises(ValueError, match='Model.gamma: gamma must be .* got 0'):
    cases.ours_of('t5_1_1', gamma=0)


def test_one_draft_it_is():
  with pytest.raises(ValueError, match='no draft: bind either models.Spec'):
    cases.ours_of('t5_1_1', draft_module=None)
  with pytest.raises(ValueError, match='two drafts: bind either models.Spec'):
    cases.ours_of('t5_1_1', draft=PromptLookup())
  with pytest.raises(ValueError, match='needs a second draft'):
    cases.ours_of(
        't5_1_1', draft_module=None, draft=Chain(PromptLookup())
    )


def test_predict_batch_sends_its_counters_to_the_log(caplog, monkeypatch):
  from t5x import infer

  from t5x_specdec import inference

  case, batch = cases.pair('t5_1_1'), cases.batch_of('t5_1_1')
  _, aux = case.ours.predict_batch_with_aux(case.pair_params, batch)
  totals = inference.summary(aux)
  assert totals is not None and totals['rounds'] > 0
  predict = jax.jit(case.ours.predict_batch)
  inference._take_waiting()
  for _ in range(2):
    predict(case.pair_params, batch)
  monkeypatch.setattr(infer, 'write_inferences_to_file', lambda *args: None)
  with caplog.at_level(logging.INFO):
    inference.write_inferences_to_file('chunk', ([], {}), None, 'predict')
    inference.write_inferences_to_file('chunk', ([], {}), None, 'predict')
  (message,) = [record.getMessage() for record in caplog.records]
  assert message == (
      f'chunk: alpha {totals["alpha"]:.3f}, '
      f'{totals["tokens_per_target_call"]:.3f} tokens per target call over '
      f'{2 * totals["rounds"]} calls'
  )


def test_counters_of_a_chunk_are_those_of_its_lines():
  from t5x_specdec import inference

  inference._take_waiting()
  inference.keep({'rounds': np.array([2, 3]), 'histogram': np.ones([2, 4])})
  inference.keep({'rounds': np.array([4]), 'histogram': np.ones([1, 4])})
  taken = inference._take_waiting()
  assert taken['rounds'] == 9
  np.testing.assert_array_equal(taken['histogram'], [3, 3, 3, 3])
  assert inference._take_waiting() == {}


def test_counted_ngrams_predict_as_stock_and_know_their_vocabulary(tmp_path):
  import sentencepiece
  import seqio

  words = {}
  for name, letters in (('abc', 'abcdefgh'), ('xyz', 'stuvwxyz')):
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([' '.join(letters)] * 5),
        model_prefix=str(tmp_path / name),
        vocab_size=12,
        hard_vocab_limit=False,
        model_type='char',
        minloglevel=2,
    )
    path = str(tmp_path / f'{name}.model')
    words[name] = seqio.SentencePieceVocabulary(path, extra_ids=0)
  content = (tmp_path / 'abc.model').read_bytes()
  case, batch = cases.pair('t5_1_1'), cases.batch_of('t5_1_1')
  want, _ = cases.predict(case.stock, case.params, batch)
  texts = [[t for t in row if t] for row in np.asarray(want).tolist()]
  # The model has other rows than were counted with, as T5's have more.
  draft, params = ngram.count(filter(None, texts), 40, 2)
  path = tmp_path / 'table.npz'
  digest = hashlib.sha256(content).hexdigest()
  ngram.save(path, ngram.Table(draft, params, digest))

  def model(name):
    vocabulary = words[name]
    return cases.ours_of(
        't5_1_1',
        gamma=2,
        draft_module=None,
        draft=ngram.load(path),
        input_vocabulary=vocabulary,
        output_vocabulary=vocabulary,
    )

  options = {'temperature': 0.0, 'eos_id': cases.EOS}
  tokens, aux = cases.predict(
      model('abc'), case.params, batch, jit=True, decoder_params=options
  )
  np.testing.assert_array_equal(tokens, want)
  assert np.asarray(aux['speculation']['accepted']).sum() > 0
  with pytest.raises(ValueError, match='must share one vocab.*xyz.model'):
    model('xyz')
  with pytest.raises(ValueError, match='n-grams are of one SentencePiece'):
    cases.ours_of('t5_1_1', draft_module=None, draft=ngram.load(path))
