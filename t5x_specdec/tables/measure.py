# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""How well drafts agree with a target along texts that the target says.

Corollary 3.6 over the target's samples, as the paper's Tables 3 and 5 have it:
the target generates, and then target and draft each tell their law of every
token, given the text before it. Decoding by speculation, whose texts follow the
same law, gives them cheaper, and the share of drafts that really stood, which
alpha is to be held against.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec import decoding
from t5x_specdec import pair as pairs
from t5x_specdec import resampling
from t5x_specdec import sampling
from t5x_specdec import theory
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.drafts import ngram
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.resampling import Estimate
from t5x_specdec.tables import paper
from t5x_specdec.vocabulary import EOS_ID

DRAFTS = ('unigram', 'bigram', 'model')
LENGTH = 64  # the most tokens of a text, EOS included
_ROWS = 16
_GAMMA = 5
# A greedy text of nothing but the start token is the same each time.
_OPENING = 4


@dataclasses.dataclass(frozen=True)
class Folder:
  """A pair, n-grams and held-out texts, as `scripts` lay them out.

  Attributes:
    pair: target, draft and vocabulary.
    table: unigrams and bigrams.
    texts: held-out; an encoder's inputs, or texts to go on with.
  """

  pair: pairs.Pair
  table: ngram.Table
  texts: list[str]


@dataclasses.dataclass(frozen=True)
class Agreement:
  """Of a target with its drafts at one temperature; intervals are 95%.

  Texts are resampled whole, since tokens of a text are not independent.

  Attributes:
    tokens: generated, over which alphas are means.
    alphas: by draft, at each of `paper.LENIENCES`.
    judged_alpha: of the model, over the drafts that speculation judged.
    accepted: likewise, the share of them that stood.
  """

  tokens: int
  alphas: dict[str, list[Estimate]]
  judged_alpha: Estimate
  accepted: Estimate


def read(folder: pathlib.Path) -> Folder:
  """Reads target/, draft/, vocabulary.model, bigrams.npz and test.tsv.

  Args:
    folder: that holds them; in test.tsv what stands before a tab counts.

  Returns:
    What they are.

  Raises:
    FileNotFoundError: one is missing.
    ValueError: they do not fit together.
  """
  pair = pairs.read_pair(
      folder / 'target', folder / 'draft', folder / 'vocabulary.model'
  )
  table = ngram.load(folder / 'bigrams.npz')
  kinds.check_same_vocabulary(
      table, str(folder / 'bigrams.npz'), pair.vocabulary
  )
  lines = (folder / 'test.tsv').read_text(encoding='utf-8').splitlines()
  texts = [line.split('\t')[0] for line in lines]
  fit = [t for t in texts if len(pair.vocabulary.encode(t)) < LENGTH]
  return Folder(pair, table, fit)


def agreement(folder: Folder, temperature: float, tokens: int) -> Agreement:
  """Measures all drafts along texts of a target.

  An encoder gets the held-out texts. A target without one starts from nothing
  at temperatures above 0, and at 0, where that is always the same text, from
  the first words of the held-out ones, which are not counted.

  Args:
    folder: the pair.
    temperature: 0 is greedy; above, no token is cut off.
    tokens: at least so many are generated.

  Returns:
    The alphas, and what speculation by the paper's rule accepted.
  """
  target, draft = folder.pair.target, folder.pair.draft
  drafts: dict[str, Any] = {'model': draft.decoder}
  params = {'model': draft.params}
  for kind in ('unigram', 'bigram'):
    source, counts = kinds.make(
        kind, target.decoder.vocab_size, table=folder.table
    )
    drafts[kind], params[kind] = source, source.prepare(counts)
  method = sampling.Method(
      jnp.full([_ROWS], temperature, jnp.float32), jnp.int32(0), jnp.float32(0)
  )
  overlaps, stats, count = [], [], 0
  while count < tokens:
    batch = len(stats)
    inputs, prompts = _batch(folder, batch, temperature)
    result = decoding.speculative_decode(
        target.decoder,
        ModelDraft(draft.decoder),
        target.params,
        draft.params,
        inputs,
        prompts=prompts,
        max_decode_len=LENGTH,
        gamma=_GAMMA,
        temperature=temperature,
        topk=0,
        rng=jax.random.key(batch),
        verification='token',
    )
    stats.append(jax.tree.map(lambda x: np.asarray(x)[:, 0], result.stats))
    starts = np.count_nonzero(prompts, axis=1)
    overlaps.append(
        _overlaps(
            target.decoder,
            tuple((kind, drafts[kind]) for kind in DRAFTS),
            target.params,
            params,
            inputs,
            result.tokens[:, 0],
            (starts, starts + stats[-1].emitted),
            method,
        )
    )
    count += int(stats[-1].emitted.sum())
  counted = jax.tree.map(lambda *parts: np.concatenate(parts), *stats)
  summed = jax.tree.map(lambda *parts: np.concatenate(parts), *overlaps)
  return Agreement(
      count,
      {
          kind: [
              resampling.ratio(column, counted.emitted)
              for column in np.asarray(summed[kind], np.float64).T
          ]
          for kind in DRAFTS
      },
      resampling.ratio(counted.overlap, counted.judged),
      resampling.ratio(counted.accepted, counted.judged),
  )


def _batch(
    folder: Folder, batch: int, temperature: float
) -> tuple[np.ndarray | None, np.ndarray]:
  """Inputs, if any, and prompts int32[_ROWS, _OPENING] of a batch."""
  has_encoder = folder.pair.target.decoder.has_encoder
  prompts = np.zeros([_ROWS, _OPENING], np.int32)
  inputs = np.zeros([_ROWS, LENGTH], np.int32)
  for row in range(_ROWS):
    # All over again, with other keys, where the texts are used up.
    text = folder.texts[(batch * _ROWS + row) % len(folder.texts)]
    ids = folder.pair.vocabulary.encode(text)
    inputs[row, : len(ids) + 1] = [*ids, EOS_ID]
    if not has_encoder and temperature <= sampling.MIN_TEMPERATURE:
      opening = ids[:_OPENING]
      prompts[row, : len(opening)] = opening
  return inputs if has_encoder else None, prompts


@functools.partial(jax.jit, static_argnums=(0, 1))
def _overlaps(
    target: T5,
    drafts: tuple[tuple[str, T5 | ngram.Ngram], ...],
    target_params: PyTree,
    params: Mapping[str, PyTree],
    inputs: jax.Array | None,
    text: jax.Array,
    ends: tuple[jax.Array, jax.Array],
    method: sampling.Method,
) -> dict[str, jax.Array]:
  """Sums of min(p / l, q) along each text.

  Args:
    target: the target.
    drafts: what to hold against it, by name.
    target_params: prepared.
    params: of the drafts, by name, prepared.
    inputs: int32[rows, S] or None.
    text: int32[rows, L].
    ends: int32[rows] each, where what counts of it starts, and where it ends.
    method: one temperature for all rows.

  Returns:
    By draft float32[rows, leniences].
  """
  before = jnp.pad(text[:, :-1], ((0, 0), (1, 0)))
  start, end = (place[:, None] for place in ends)
  position = jnp.arange(text.shape[1])
  counts = (position >= start) & (position < end)
  logits = target.logits(target_params, inputs, before)
  result = {}
  for name, draft in drafts:
    if isinstance(draft, T5):
      theirs = draft.logits(params[name], inputs, before)
    else:
      theirs = _ngram_logits(draft, params[name], before)
    chances = _chances(logits, theirs, method)
    result[name] = jnp.sum(jnp.where(counts[..., None], chances, 0), axis=1)
  return result


def _ngram_logits(
    draft: ngram.Ngram, params: PyTree, before: jax.Array
) -> jax.Array:
  """float32[rows, L, vocab] of n-grams after each token of int32[rows, L]."""
  rows, length = before.shape
  width = draft.order - 1
  # Of what stands `back` tokens before the last; -1 before the start.
  context = [
      jnp.pad(before, ((0, 0), (back, 0)), constant_values=-1)[:, :length]
      for back in range(width - 1, -1, -1)
  ]
  context = jnp.array(context, jnp.int32).reshape(width, rows * length)
  law = draft.law(params, context.T)
  return jnp.log(law).reshape(rows, length, -1)


def _chances(
    logits: jax.Array, theirs: jax.Array, method: sampling.Method
) -> jax.Array:
  """Chance that a draft stands at each position (Corollary 3.6, A.5).

  At temperature 0, where a lenient target takes what is nearly best, 1 where
  p(x) >= l max(p) of the likeliest draft x.

  Args:
    logits: float32[rows, L, vocab] of the target.
    theirs: of the draft.
    method: one temperature for all rows.

  Returns:
    float32[rows, L, leniences].
  """
  leniences = np.array(paper.LENIENCES, np.float32)

  def greedy():
    likeliest = jnp.argmax(theirs, axis=-1)[..., None]
    found = jnp.take_along_axis(logits, likeliest, axis=-1)
    best = jnp.max(logits, axis=-1, keepdims=True)
    return (found >= best + np.log(leniences)).astype(jnp.float32)

  def sampled():
    p, q = sampling.law(logits, method), sampling.law(theirs, method)
    return jnp.stack(
        [theory.acceptance_rate(p, q, lenience) for lenience in leniences],
        axis=-1,
    )

  return jax.lax.cond(jnp.all(method.greedy), greedy, sampled)
