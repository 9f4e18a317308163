# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random configurations against the target's own word, for as long as asked.

Random models, drafts, batches, lengths and sampling settings, each held to what
`t5x-specdec certify` asks of a pair. Prints what fails as it fails, and a
summary in the end; exit status 1 if anything did:

  python scripts/soak.py --minutes 60 --seed 1
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import sys
import time

import jax
import numpy as np

from t5x_specdec import parameters
from t5x_specdec.certificate import checks
from t5x_specdec.certificate.checks import Check
from t5x_specdec.certificate.reference import Setting
from t5x_specdec.certificate.subject import Subject
from t5x_specdec.cli import exits
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config

# Of a single test: an hour makes some thousands.
_LEVEL = 1e-8
_KINDS = ('model', 'chain', 'lookup', 'unigram', 'bigram', 'ngram')


def _params(config: T5Config, seed: int, spread: float) -> PyTree:
  """Random parameters whose logits vary by about `spread`."""
  flat = parameters.flatten(
      parameters.init_params(config, jax.random.key(seed))
  )
  gains = {'out': 2.0, 'wo': 2.0, 'logits_dense': spread}
  return parameters.unflatten({
      path: np.asarray(leaf) * np.float32(gains.get(path[-2], 1.0))
      for path, leaf in flat.items()
  })


def _config(rng: np.random.Generator) -> T5Config:
  """A random small network."""
  return T5Config(
      vocab_size=int(rng.integers(3, 40)),
      emb_dim=16,
      num_heads=int(rng.integers(1, 4)),
      num_encoder_layers=int(rng.integers(0, 3)),
      num_decoder_layers=int(rng.integers(1, 3)),
      head_dim=int(rng.integers(3, 9)),
      mlp_dim=24,
      mlp_activations=(('gelu', 'linear'), ('relu',))[rng.integers(2)],
  )


def _subject(rng: np.random.Generator, seed: int) -> tuple[Subject, str]:
  """A random pair with random inputs, and its draft in a word."""
  config = _config(rng)
  spread = float(rng.uniform(0.3, 3.0))
  target = _params(config, seed, spread)
  share = rng.uniform(0, 0.7)
  draft = jax.tree.map(
      lambda ours, other: ours * np.float32(1 - share) + other * share,
      target,
      _params(config, seed + 1, spread),
  )
  decoder = T5(config)
  kind = _KINDS[rng.integers(len(_KINDS))]
  order = {'unigram': 1, 'bigram': 2, 'ngram': 3}.get(kind, 1)
  corpus = rng.integers(1, config.vocab_size, [20, 12]).tolist()
  table = ngram.Table(*ngram.count(corpus, config.vocab_size, order), 'soak')
  source, params = kinds.make(
      kind, config.vocab_size, model=(decoder, draft), table=table
  )
  batch = int(rng.integers(1, 5))
  width = int(rng.integers(1, 8))
  text = rng.integers(1, config.vocab_size, [batch, width], dtype=np.int32)
  lengths = rng.integers(1, width + 1, [batch, 1])
  subject = Subject(
      name=f'seed {seed}',
      target=decoder,
      draft=source,
      target_params=target,
      draft_params=params,
      text=np.where(np.arange(width) < lengths, text, 0),
      steps=int(rng.integers(1, 14)),
      batch_size=batch,
      eos_id=int(rng.integers(1, config.vocab_size)),
      seed=seed,
  )
  return subject, f'{kind} draft, {config}'


def _setting(rng: np.random.Generator) -> Setting:
  """A random temperature above 0 and a random filter."""
  temperature = float(np.exp(rng.uniform(np.log(0.05), np.log(20.0))))
  which = rng.integers(3)
  return Setting(
      temperature=temperature,
      topk=int(rng.integers(1, 6)) if which == 1 else 0,
      topp=float(rng.uniform(0.05, 1.0)) if which == 2 else 0.0,
  )


def _trial(seed: int) -> tuple[str, list[Check]]:
  """One configuration in words, and what fails of it."""
  rng = np.random.default_rng(seed)
  subject, words = _subject(rng, seed)
  gamma = int(rng.integers(1, 7))
  rule = ('token', 'block')[rng.integers(2)]
  decodes = int(rng.integers(50, 200))
  setting = _setting(rng)
  words += f', {setting}, gamma {gamma}, {rule}, {decodes} decodes, '
  words += f'{subject.text.shape} inputs, {subject.steps} steps, '
  words += f'EOS {subject.eos_id}'
  found = list(_checks(subject, gamma, rule, decodes, setting))
  return words, [check for check in found if not _holds(check)]


def _checks(
    subject: Subject, gamma: int, rule: str, decodes: int, setting: Setting
) -> Iterator[Check]:
  """What is asked of a configuration."""
  greedy = Setting(0.0)
  ours = subject.decode(greedy, gamma=gamma, rule=rule, decodes=decodes)
  alone = subject.decode(greedy, gamma=0, decodes=decodes)
  yield from checks.greedy(subject, ours, alone, decodes, 'T=0')
  yield checks.endings(subject, ours, 'T=0')
  label = str(setting)
  tokens = subject.decode(
      setting, gamma=gamma, rule=rule, decodes=decodes, run=1
  )
  yield checks.endings(subject, tokens, label)
  places = subject.places(tokens, decodes, setting, 1)
  yield checks.support(subject, places, label)
  yield from checks.law(subject, places, label)
  yield from checks.independence(subject, places, gamma, label)


def _holds(check: Check) -> bool:
  if check.outcome is None:
    return bool(check.holds)
  return check.outcome.p_value > _LEVEL


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--minutes', type=float, default=60.0)
  parser.add_argument('--seed', type=int, default=0)
  return parser


def main(args: argparse.Namespace) -> int:
  start = time.monotonic()
  count, failed = 0, []
  try:
    while time.monotonic() < start + 60 * args.minutes:
      seed = args.seed * 1_000_000 + count
      words, faults = _trial(seed)
      count += 1
      for check in faults:
        failed.append(seed)
        print(f'{seed}: {words}\n  {check.name}: {check.fault}', flush=True)
      jax.clear_caches()  # no two configurations share a program
  finally:  # interrupted, too
    minutes = (time.monotonic() - start) / 60
    print(
        f'soak: seed {args.seed}, {minutes:.1f} minutes, {count} '
        f'configurations, {len(set(failed))} with failures '
        f'{sorted(set(failed))[:10]}'
    )
  return int(bool(failed))


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
