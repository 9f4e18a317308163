# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Planted pairs do what their successor tables say, to the round."""

import jax
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import parameters
from t5x_specdec import T5
from t5x_specdec import T5Config
from t5x_specdec.testing import planted

TARGET = T5Config(
    vocab_size=512,
    emb_dim=128,
    num_heads=4,
    num_encoder_layers=1,
    num_decoder_layers=2,
    head_dim=32,
    mlp_dim=64,
    mlp_activations=('gelu', 'linear'),
)
DRAFT = T5Config(
    vocab_size=512,
    emb_dim=128,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    head_dim=16,
    mlp_dim=32,
    mlp_activations=('gelu', 'linear'),
)
LENGTH = 120


@pytest.mark.slow
def test_rounds_and_accepted_counts_at_alpha_three_quarters():
  gamma = 4
  pair = planted.planted_pair(TARGET, DRAFT, alpha=0.75, seed=3)
  starts = np.random.default_rng(0).integers(2, 512, 6)
  result = t5x_specdec.speculative_decode(
      T5(TARGET),
      T5(DRAFT),
      pair.target_params,
      pair.draft_params,
      np.full([6, 5], 7),
      prompts=starts[:, None],
      gamma=gamma,
      max_decode_len=LENGTH + 1,
      temperature=0.0,
  )
  for row, start in enumerate(starts):
    text = [start, *pair.text(start, LENGTH)]
    np.testing.assert_array_equal(result.tokens[row, 0], text)
    accepted = pair.rounds(start, LENGTH, gamma)
    assert result.stats.rounds[row, 0] == len(accepted)
    assert result.stats.accepted[row, 0] == sum(accepted)
    np.testing.assert_array_equal(
        result.stats.histogram[row, 0],
        np.bincount(accepted, minlength=gamma + 1),
    )
  # The planted rate itself: right tokens among those the texts visited.
  visited = result.tokens[:, 0, :-1]
  right = pair.successor[visited] == pair.draft_successor[visited]
  assert abs(right.mean() - 0.75) < 0.05


def test_the_two_tables_differ_on_exactly_the_planted_fraction():
  pair = planted.planted_pair(TARGET, DRAFT, alpha=0.75)
  ids = np.delete(np.arange(512), 1)
  differ = pair.successor[ids] != pair.draft_successor[ids]
  assert differ.sum() == round(0.25 * (len(ids) - 1))
  for table in (pair.successor, pair.draft_successor):
    np.testing.assert_array_equal(np.sort(table[ids]), ids)
  # One cycle through all ids but EOS: no text repeats before it has to.
  assert len(set(pair.text(0, len(ids)))) == len(ids)


@pytest.mark.slow
def test_without_a_prompt_the_text_follows_the_start_token():
  pair = planted.planted_pair(TARGET, DRAFT, alpha=0.75, seed=3)
  result = t5x_specdec.autoregressive_decode(
      T5(TARGET), pair.target_params, np.full([1, 5], 7), max_decode_len=40
  )
  np.testing.assert_array_equal(result.tokens[0, 0], pair.text(0, 40))
  assert len(set(pair.text(0, 40))) == 40


def test_leaves_are_random_at_the_scale_of_the_initializers(monkeypatch):
  # A block shorter than most leaves: they are read around it several times.
  monkeypatch.setattr(planted._Normals, '_LENGTH', 4099)
  expected = parameters.init_params(TARGET, jax.random.key(0))
  leaves = dict(planted.random_leaves(TARGET, seed=1, dtype='float32'))
  flat = parameters.flatten(expected)
  assert leaves.keys() == flat.keys()
  for path, leaf in leaves.items():
    assert leaf.shape == flat[path].shape
    if path[-1] == 'rel_embedding':
      continue
    np.testing.assert_allclose(
        np.sqrt(np.mean(leaf**2)), np.sqrt(np.mean(flat[path] ** 2)), rtol=0.1
    )
  embedding = leaves['token_embedder', 'embedding']
  rows = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
  assert np.max(np.abs(rows @ rows.T - np.eye(len(rows)))) < 0.6
  again = dict(planted.random_leaves(TARGET, seed=1, dtype='float32'))
  other = dict(planted.random_leaves(TARGET, seed=2, dtype='float32'))
  path = ('decoder', 'layers_0', 'mlp', 'wo', 'kernel')
  np.testing.assert_array_equal(leaves[path], again[path])
  assert np.mean(leaves[path] == other[path]) < 0.01


@pytest.mark.parametrize(
    'change, message',
    [
        ({'alpha': 1.5}, r'alpha must be in \[0, 1\], got 1.5'),
        (
            {'draft': T5Config(vocab_size=100)},
            r'target \(512\) and draft \(100',
        ),
        (
            {'target': T5Config(vocab_size=512, logits_via_embedding=True)},
            'logits_via_embedding=False',
        ),
    ],
)
def test_bad_arguments(change, message):
  arguments = {'target': TARGET, 'draft': DRAFT, 'alpha': 0.5} | change
  with pytest.raises(ValueError, match=message):
    planted.planted_pair(
        arguments['target'], arguments['draft'], alpha=arguments['alpha']
    )
