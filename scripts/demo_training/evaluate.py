# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Quality and speculation of the pair on pages it was not trained on."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from demo_training import batches as batching
from demo_training import bleu
from demo_training import data
from demo_training import objective
from demo_training import sizes
from demo_training import states
from demo_training import vocabulary
from demo_training.translate import by_model
from demo_training.translate import translate
from demo_training.translate import Translations
from t5x_specdec import network
from t5x_specdec.pair import Model
from t5x_specdec.pair import Pair
from t5x_specdec.pair import read_pair
from t5x_specdec.vocabulary import Vocabulary

GAMMAS = (3, 5)
SAMPLES = 2


def load_state(path: pathlib.Path, model: str) -> Model:
  """Reads a model in training, its parameters rounded as an export does.

  Args:
    path: `latest.npz` or `best.npz` of its folder.
    model: 'target' or 'draft'.
  """
  params, step = states.load_params(path)
  params = jax.tree.map(
      lambda x: jnp.asarray(x, jnp.bfloat16).astype(jnp.float32), params
  )
  rows = params['token_embedder']['embedding'].shape[0]
  decoder = network.T5(sizes.config(model, rows))
  return Model(decoder, params, str(path), step)


def compare_drafts(
    work: pathlib.Path, target: str, drafts: list[str]
) -> dict[str, dict[str, float]]:
  """Measures alpha of several drafts on dev, to choose one.

  Args:
    work: folder of the training results.
    target: folder below it of the target's training.
    drafts: folders below it of the drafts' trainings.

  Returns:
    For each draft, its alphas and tokens per target call.
  """
  words = Vocabulary(work / 'vocabulary.model')
  sources = [english for english, _ in data.read_pairs(work / 'dev.tsv')]
  judge = load_state(work / target / 'best.npz', 'target')
  found = {}
  for name in drafts:
    draft = load_state(work / name / 'best.npz', 'draft')
    found[name] = {}
    for temperature in (0.0, 1.0):
      stats = translate(
          sources, words, judge, by_model(draft), temperature=temperature
      ).stats
      for key in ('alpha', 'tokens_per_target_call'):
        found[name][f'{key} at T={temperature:.0f}'] = stats[key]
  return found


def measure(
    work: pathlib.Path, export: pathlib.Path, folders: dict[str, str]
) -> dict[str, Any]:
  """Measures the exported pair on the held-out test set.

  Args:
    work: folder of the training results.
    export: the exported pair.
    folders: folder below `work` of each model's training, by model.

  Returns:
    All the card states, ready for JSON.
  """
  pair = read_pair(
      export / 'target', export / 'draft', export / 'vocabulary.model'
  )
  test = data.read_pairs(export / 'test.tsv')
  sources = [english for english, _ in test]
  greedy = {
      'target': translate(sources, pair.vocabulary, pair.target),
      'draft': translate(sources, pair.vocabulary, pair.draft),
  }
  result: dict[str, Any] = {
      'test_pairs': len(test),
      'samples': SAMPLES,
      'bleu_signature': bleu.signature(),
      'counts': json.loads((work / 'counts.json').read_text()),
      'examples': _examples(test, greedy['target'].texts),
  }
  for name, model in (('target', pair.target), ('draft', pair.draft)):
    result[name] = {
        'parameters': sizes.count(model.decoder.config),
        'multiplications_per_step': sizes.step_cost(model.decoder.config),
        'step': model.step,
        'dev_loss': dev_loss(work, model),
        **_bleu(_statistics([greedy[name]], test)),
        **states.record(work, folders[name]),
    }
  result['T=0'] = _speculation(pair, test, 0.0, [greedy['target']])
  samples = [
      translate(
          sources, pair.vocabulary, pair.target, temperature=1.0, seed=seed
      )
      for seed in range(SAMPLES)
  ]
  result['T=1'] = _speculation(pair, test, 1.0, samples)
  return result


def _speculation(
    pair: Pair,
    test: list[data.Pair],
    temperature: float,
    alone: list[Translations],
) -> dict[str, dict[str, Any]]:
  """Decodes with the draft, as often as `alone`, the target's own decodes."""
  expected = _statistics(alone, test)
  found: dict[str, dict[str, Any]] = {'alone': _bleu(expected)}
  for gamma in GAMMAS:
    decodes = [
        translate(
            [english for english, _ in test],
            pair.vocabulary,
            pair.target,
            by_model(pair.draft),
            gamma=gamma,
            temperature=temperature,
            seed=SAMPLES + i,  # other samples than those of the target alone
        )
        for i in range(len(alone))
    ]
    scored = _statistics(decodes, test)
    same = np.all(alone[0].tokens == decodes[0].tokens, axis=1)
    found[f'gamma={gamma}'] = {
        'identical': int(np.sum(same)),
        'bleu_difference_interval': bleu.interval(scored, expected),
        **_bleu(scored),
        **_ratios([decode.stats for decode in decodes]),
    }
  return found


def _statistics(
    decodes: list[Translations], test: list[data.Pair]
) -> np.ndarray:
  """Each sentence's statistics, added up over the decodes."""
  references = [german for _, german in test]
  return np.sum(
      [bleu.statistics(decode.texts, references) for decode in decodes], axis=0
  )


def _bleu(rows: np.ndarray) -> dict[str, Any]:
  return {'bleu': bleu.score(rows), 'bleu_interval': bleu.interval(rows)}


def _ratios(stats: list[dict[str, Any]]) -> dict[str, float]:
  """The ratios of `Stats.summary` over several decodes."""
  names = ('judged', 'accepted', 'emitted', 'rounds')
  total = {name: sum(part[name] for part in stats) for name in names}
  overlap = sum(part['alpha'] * part['judged'] for part in stats)
  return {
      'alpha': overlap / total['judged'],
      'alpha_empirical': total['accepted'] / total['judged'],
      'tokens_per_target_call': total['emitted'] / total['rounds'],
  }


def dev_loss(work: pathlib.Path, model: Model) -> float:
  """Returns a model's loss on dev, in nats per token."""
  pieces = vocabulary.load(work / 'vocabulary.model')
  pairs = batching.encode(data.read_pairs(work / 'dev.tsv'), pieces)
  dev = batching.Batches(pairs, tokens=512, seed=0)

  @jax.jit
  def loss(params, inputs, targets):
    shifted = objective.shift_right(targets)
    logits = model.decoder.logits(params, inputs, shifted)
    return jnp.stack(objective.cross_entropy(logits, targets))

  sums = np.zeros(2)
  for item in dev.epoch(None):
    batch = dev.build(*item)
    sums += np.asarray(loss(model.params, batch.inputs, batch.targets))
  return float(sums[0] / sums[1])


def _examples(pairs: list[data.Pair], texts: list[str]) -> list[list[str]]:
  """Draws five pairs at random, the same ones at every call."""
  drawn = np.random.default_rng(0).choice(len(pairs), 5, replace=False)
  return [[*pairs[i], texts[i]] for i in drawn]
