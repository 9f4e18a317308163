# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompt lookup: what it proposes, and what a round without a match is.

That the law stays the target's is tested in `drafts_policies_test`.
"""

import dataclasses

from helpers import some_slow
import jax.numpy as jnp
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec.drafts import PromptLookup
from t5x_specdec.sampling import Method
from t5x_specdec.testing import toys

METHOD = Method(jnp.zeros([1]), jnp.int32(0), jnp.float32(0))


def propose(draft, words, texts, gamma, padding=2):
  """What is drafted after texts of any length; lists of int."""
  width = max(map(len, texts)) + 1 + padding
  tokens = np.full([len(texts), width], 9)  # stale ids past each position
  tokens[:, 0] = 0
  for row, text in zip(tokens, texts):
    row[1 : 1 + len(text)] = text
  positions = jnp.asarray([len(text) for text in texts])
  inputs = None if words is None else jnp.asarray(words)
  prompt = jnp.zeros([len(texts), 0], jnp.int32)
  state = draft.init({}, inputs, prompt, width)
  room = jnp.full_like(positions, gamma)
  proposal, _ = draft.propose(
      {}, state, jnp.asarray(tokens), positions, METHOD, gamma, room, None
  )
  assert proposal.q is None
  return [
      row[:length].tolist()
      for row, length in zip(
          np.asarray(proposal.tokens), np.asarray(proposal.lengths)
      )
  ]


def slow(longest, words, text, gamma):
  """The same by the definition, over Python lists."""
  segments = [[w if w > 0 else None for w in words], list(text)]
  best = (0, -1, [])
  place = 0
  for segment in segments:
    for end in range(len(segment) - 1):
      place += 1
      match = 0
      while (
          match < min(longest, len(text), end + 1)
          and segment[end - match] == text[-1 - match]
      ):
        match += 1
      going = []
      for token in segment[end + 1 : end + 1 + gamma]:
        if token is None:
          break
        going.append(token)
      if match and going and (match, place) > best[:2]:
        best = (match, place, going)
  return best[2]


@pytest.mark.parametrize('longest', some_slow([3], [1, 2, 3]))
def test_equals_the_definition(longest):
  rng = np.random.default_rng(longest)
  for trial in range(30):
    words = rng.integers(1, 4, [4, 7])
    words[np.arange(7) >= rng.integers(1, 8, [4, 1])] = 0
    texts = [rng.integers(0, 4, rng.integers(0, 9)) for _ in range(4)]
    gamma = int(rng.integers(1, 6))
    found = propose(PromptLookup(longest), words, texts, gamma)
    expected = [slow(longest, w, t, gamma) for w, t in zip(words, texts)]
    assert found == expected, (trial, words, texts, gamma)


def test_longest_then_last():
  words = [[5, 6, 7, 8, 3, 6, 4, 2]]
  draft = PromptLookup(2)
  # 6 alone was last followed by 4; after 5, by 7.
  assert propose(draft, words, [[9, 6]], 3) == [[4, 2]]
  assert propose(draft, words, [[5, 6]], 3) == [[7, 8, 3]]
  # The text itself comes after the input.
  assert propose(draft, words, [[6, 9, 6]], 3) == [[9, 6]]


def test_nothing_to_go_by():
  draft = PromptLookup(3)
  assert propose(draft, [[5, 6, 0, 0]], [[]], 2) == [[]]
  assert propose(draft, [[5, 6, 0, 0]], [[7]], 2) == [[]]
  # What the input ends with was followed by nothing.
  assert propose(draft, [[5, 6, 0, 0]], [[6]], 2) == [[]]
  # A decoder-only text has itself alone.
  assert propose(draft, None, [[4, 5, 4]], 2) == [[5, 4]]
  with pytest.raises(ValueError, match='longest must be >= 1, got 0'):
    PromptLookup(0)


@dataclasses.dataclass(frozen=True)
class WidthDecoder(toys.ScriptDecoder):
  """Says 3 in a block of one token, and 4 in a wider one."""

  def decode_block(self, params, state, tokens, positions):
    """See `BlockDecoder.decode_block`."""
    word = 3 if tokens.shape[1] == 1 else 4
    logits, state = super().decode_block(params, state, tokens, positions)
    return jnp.zeros_like(logits).at[..., word].set(1.0), state


def decode(decoder, script, inputs, **options):
  """Greedy, drafted for by lookup."""
  return t5x_specdec.speculative_decode(
      decoder,
      PromptLookup(3),
      {'script': np.asarray(script)},
      {},
      np.asarray(inputs),
      temperature=0.0,
      **options,
  )


def test_a_round_without_drafts_is_a_plain_step():
  result = decode(WidthDecoder(9), [[2]], [[7]], gamma=2, max_decode_len=6)
  # Said twice, 3 may come again, which it does not; then 4 is new, and after
  # the third 3 it comes once more, and the block's own 4 after it.
  np.testing.assert_array_equal(result.tokens[0, 0], [3, 3, 4, 3, 4, 4])
  np.testing.assert_array_equal(result.stats.drafted[0, 0], 2)
  np.testing.assert_array_equal(result.stats.accepted[0, 0], 1)


def test_one_row_that_drafts_is_enough_for_a_block():
  result = decode(
      WidthDecoder(9),
      [[2]],
      [[7], [7]],
      gamma=2,
      max_decode_len=4,
      prompts=np.array([[5, 5], [5, 6]]),
  )
  # In the first row 5 was followed by 5, so both were scored in a block.
  np.testing.assert_array_equal(result.tokens[:, 0, 2], [4, 4])


def test_copying_takes_few_calls():
  words = np.random.default_rng(0).permutation(np.arange(2, 42))
  script = np.concatenate([words[:30], [1]])
  result = decode(
      toys.ScriptDecoder(42),
      [script],
      [np.concatenate([[0], words])],
      gamma=4,
      max_decode_len=31,
  )
  np.testing.assert_array_equal(result.tokens[0, 0], script)
  # One step for the first word, then 5 tokens a call; after the last block
  # the input goes on but EOS does not.
  assert result.stats.rounds[0, 0] == 1 + 30 // 5
  assert result.stats.emitted[0, 0] == 31
