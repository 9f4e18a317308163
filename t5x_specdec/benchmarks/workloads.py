# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is decoded: a planted pair on random inputs, or checkpoints on text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses
import os
from typing import Any

import numpy as np

from t5x_specdec import parameters
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks.protocol import Job
from t5x_specdec.checkpoint_reader import read_checkpoint
from t5x_specdec.config_reader import config_from_params
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.parameters import Path
from t5x_specdec.parameters import T5Config
from t5x_specdec.testing import planted
from t5x_specdec.vocabulary import EOS_ID
from t5x_specdec.vocabulary import Vocabulary

# Of one model, 'target' or 'draft': its parameters one by one.
Leaves = Iterator[tuple[str, Path, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Workload:
  """A pair of models and what they decode.

  Attributes:
    target: the target's shape.
    draft: the draft model's, None without one.
    inputs: int32[batches, batch, S], 0 at padding.
    prompts: int32[batches, batch, 1] or None.
    text_len: length of the texts, prompt included, in tokens; the longest's.
    weights: makes the leaves that are timed, over `random_weights`.
    expected: int[batches, batch, text_len], the greedy texts where they are
      known in advance.
    seed: of the random weights.
    kind: of draft, one of `kinds.KINDS`.
    table: file of n-grams, for kinds that have one.
    steps: tokens to generate in each row, None where they are as many.
    rounds: how many rounds the slowest row alone needs at a gamma, greedily,
      where that is known in advance.
  """

  target: T5Config
  draft: T5Config | None
  inputs: np.ndarray
  prompts: np.ndarray | None
  text_len: int
  weights: Callable[[], Leaves]
  expected: list | None
  seed: int
  kind: str = 'model'
  table: str | None = None
  steps: list[int] | None = None
  rounds: Callable[[int], int] | None = None

  @property
  def configs(self) -> dict[str, T5Config]:
    """Shapes of the models by name."""
    found = {'target': self.target, 'draft': self.draft}
    return {name: x for name, x in found.items() if x is not None}

  def random_weights(self) -> Leaves:
    """Every leaf of all models, nothing planted."""
    for model, config, seed in self._models():
      for path, leaf in planted.random_leaves(
          config, seed=seed, dtype=config.dtype
      ):
        yield model, path, leaf

  def job(
      self,
      *,
      temperature: float,
      topk: int,
      topp: float,
      verification: str,
      calibration: str | None,
      seed: int,
  ) -> Job:
    """What the workers are told."""
    return Job(
        target=dataclasses.asdict(self.target),
        draft=None if self.draft is None else dataclasses.asdict(self.draft),
        kind=self.kind,
        table=self.table,
        inputs=self.inputs.tolist(),
        prompts=None if self.prompts is None else self.prompts.tolist(),
        steps=self.steps,
        text_len=self.text_len,
        temperature=temperature,
        topk=topk,
        topp=topp,
        verification=verification,
        calibration=calibration,
        eos_id=EOS_ID,
        seed=seed,
    )

  def _models(self) -> Iterator[tuple[str, T5Config, int]]:
    for i, (model, config) in enumerate(self.configs.items(), start=1):
      yield model, config, self.seed + i


def _check_same_vocabulary(target: T5Config, draft: T5Config) -> None:
  if target.vocab_size != draft.vocab_size:
    raise ValueError(
        f'--target scores {target.vocab_size} ids, --draft '
        f'{draft.vocab_size}: they must be of one vocabulary'
    )


def planted_workload(
    target: str,
    draft: str,
    *,
    alpha: float,
    batch_size: int,
    input_len: int,
    output_len: int,
    dtype: str,
    seed: int,
    ragged: bool = False,
) -> Workload:
  """A pair whose greedy text and acceptance are known in advance.

  One row needs no prompt: its text follows the start token. Of several rows
  each opens with a token of its own, so that their texts, and what is accepted
  of them, differ.

  Args:
    target: a name in `shapes.SIZES`.
    draft: likewise.
    alpha: in [0, 1], see `planted.successors`.
    batch_size: rows.
    input_len: tokens of each input.
    output_len: tokens to generate in each row.
    dtype: of parameters and activations.
    seed: of everything random.
    ragged: whether rows end one after the other, the last at `output_len`,
      the first of n at an n-th of it.

  Returns:
    The workload, one batch of it.

  Raises:
    ValueError: for different vocabularies, or alpha outside [0, 1].
  """
  models = [
      dataclasses.replace(shapes.SIZES[name], dtype=dtype)
      for name in (target, draft)
  ]
  _check_same_vocabulary(*models)
  vocab = models[0].vocab_size
  tables = planted.successors(vocab, alpha, seed)
  rng = np.random.default_rng([seed, 1])
  inputs = rng.integers(2, vocab, [1, batch_size, input_len], dtype=np.int32)
  starts = np.zeros(batch_size, np.int32)
  if batch_size > 1:
    starts = rng.choice(np.arange(2, vocab, dtype=np.int32), batch_size)
  token, texts = starts, []
  for _ in range(output_len):
    token = tables[0][token]
    texts.append(token)
  expected = np.stack(texts, axis=1)
  prompts = None
  if batch_size > 1:
    prompts = starts[None, :, None]
    expected = np.concatenate([starts[:, None], expected], axis=1)
  steps = [output_len] * batch_size
  if ragged:
    steps = [-(-output_len * (i + 1) // batch_size) for i in range(batch_size)]
    first = expected.shape[1] - output_len
    for row, count in zip(expected, steps):
      row[first + count :] = 0

  def rounds(gamma: int) -> int:
    pair = planted.PlantedPair({}, {}, *tables)
    return max(
        len(pair.rounds(int(start), count, gamma))
        for start, count in zip(starts, steps)
    )

  def weights() -> Leaves:
    for i, (model, config) in enumerate(zip(('target', 'draft'), models)):
      for path, leaf in planted.planted_leaves(
          config, tables[i], seed=seed + i + 1, dtype=dtype
      ):
        yield model, path, leaf

  return Workload(
      *models,
      inputs=inputs,
      prompts=prompts,
      text_len=expected.shape[1],
      weights=weights,
      expected=[expected.tolist()],
      seed=seed,
      steps=steps if ragged else None,
      rounds=rounds,
  )


def checkpoint_workload(
    target: str | os.PathLike[str],
    draft: str | os.PathLike[str] | None,
    vocabulary: str | os.PathLike[str],
    lines: list[str],
    *,
    kind: str = 'model',
    table: str | os.PathLike[str] | None = None,
    batch_size: int,
    input_len: int,
    output_len: int,
    dtype: str,
    seed: int,
) -> Workload:
  """T5X checkpoints on lines of text.

  Args:
    target: the target's checkpoint.
    draft: the draft model's, None without one.
    vocabulary: SentencePiece model of all.
    lines: one input each; as many as fill whole batches are taken.
    kind: of draft, one of `kinds.KINDS`.
    table: file of n-grams, for kinds that have one.
    batch_size: rows of a batch.
    input_len: inputs are cut and padded to this.
    output_len: most tokens to generate.
    dtype: of parameters and activations.
    seed: of the random weights.

  Returns:
    The workload.

  Raises:
    ValueError: fewer lines than rows, a checkpoint that is not usable or of a
      decoder-only model, or n-grams of another vocabulary.
  """
  if len(lines) < batch_size:
    raise ValueError(
        f'{len(lines)} lines of input do not fill --batch_size {batch_size}'
    )
  words = Vocabulary(vocabulary)
  if table is not None:
    kinds.check_same_vocabulary(ngram.load(table), os.fspath(table), words)
  count = len(lines) // batch_size * batch_size
  inputs = np.zeros([count, input_len], np.int32)
  for row, line in zip(inputs, lines):
    ids = words.encode(line)[: input_len - 1] + [EOS_ID]
    row[: len(ids)] = ids

  def read(path) -> Any:
    return read_checkpoint(path, dtype=dtype).params

  paths = {'target': target} | ({} if draft is None else {'draft': draft})
  models = []
  for path in paths.values():
    models.append(config_from_params(read(path), dtype=dtype))
    if models[-1].decoder_only:
      raise ValueError(f'{path} is a decoder-only model: not benchmarked')
    if inputs.max() >= models[-1].vocab_size:
      raise ValueError(f'{path} has no row for id {inputs.max()}')
  if draft is None:
    models.append(None)
  else:
    _check_same_vocabulary(*models)

  def weights() -> Leaves:
    for model, path in paths.items():
      for name, leaf in parameters.flatten(read(path)).items():
        yield model, name, np.asarray(leaf)

  return Workload(
      *models,
      inputs=inputs.reshape(-1, batch_size, input_len),
      prompts=None,
      text_len=output_len,
      weights=weights,
      expected=None,
      seed=seed,
      kind=kind,
      table=None if table is None else os.fspath(table),
  )
