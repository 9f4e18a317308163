# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Planted pairs do what their successor tables say, to the round."""

import numpy as np
import pytest

import t5x_specdec
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
  ids = np.arange(2, 512)
  differ = pair.successor[ids] != pair.draft_successor[ids]
  assert differ.sum() == round(0.25 * len(ids))
  for table in (pair.successor, pair.draft_successor):
    np.testing.assert_array_equal(np.sort(table[ids]), ids)
  # One cycle through all ids: no text repeats before it has to.
  assert len(set(pair.text(2, len(ids)))) == len(ids)


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
