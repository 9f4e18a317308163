# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Worker: our decoders, and the parts they are made of.

Cases: 'autoregressive', 'speculative:GAMMA', where GAMMA may be 'adaptive' or
'auto', 'loop:GAMMA:NAME' with a name of `loops.LOOPS`, and of the parts
'encode', 'encode_pair', 'block:WIDTH', 'draft_step' where the draft has a
model, and 'propose:GAMMA'. The parts need the text, so the first case must be
'autoregressive'.
"""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import t5x_specdec
from t5x_specdec import parameters
from t5x_specdec import preparation
from t5x_specdec import sampling
from t5x_specdec.benchmarks import loops
from t5x_specdec.benchmarks import on_the_spot
from t5x_specdec.benchmarks import pieces
from t5x_specdec.benchmarks import protocol
from t5x_specdec.benchmarks.jax_worker import JaxWorker
from t5x_specdec.benchmarks.protocol import Array
from t5x_specdec.decoding import DecodeResult
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ngram
from t5x_specdec.gamma import Policy
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree

# Runs a case once; how many steps that took (1 for whole calls), and results.
_Runner = Callable[[], tuple[int, list[DecodeResult]]]

# Positions at which a part is timed.
_STEPS = 32


class OurWorker(JaxWorker):
  """Times `autoregressive_decode`, `speculative_decode` and their parts."""

  packages = ('jax', 'jaxlib', 'flax', 'numpy')

  def __init__(self):
    super().__init__()
    self._runners: dict[str, _Runner] = {}
    self._prepared: dict[str, PyTree] = {}
    self._draft: Any = None
    self._draft_params: PyTree = {}
    self._text = np.zeros([0, 0], np.int32)

  def logits(self, model: str, width: int, inputs: list, tokens: list):
    """Teacher-forced logits, read in blocks of `width`."""
    logits = pieces.teacher_forced(
        self.params(model),
        np.array(inputs, np.int32),
        np.array(tokens, np.int32),
        decoder=T5(self.configs[model]),
        width=width,
    )
    return {}, Array.of(np.asarray(logits))

  def ready(self) -> None:
    """Prepares the models as `pair.read_model` does, a leaf at a time."""
    for name, config in self.configs.items():
      params = self.params(name)
      lay_out = preparation.pays_to_lay_out(params)
      if config.logits_via_embedding:
        params = jax.jit(T5(config).prepare, donate_argnums=0)(params)
      flat = parameters.flatten(params)
      del params, self._leaves[name]
      if lay_out:
        preparation.transpose(flat)
      self._prepared[name] = parameters.unflatten(flat)
    self._draft, self._draft_params = self._make_draft()

  def _make_draft(self) -> tuple[Draft, PyTree]:
    """Where drafts come from, and its prepared parameters."""
    job, model = self.job, None
    if 'draft' in self.configs:
      model = self._decoder('draft'), self._prepared['draft']
    draft, params = kinds.make(
        job.kind,
        self.configs['target'].vocab_size,
        model=model,
        table=None if job.table is None else ngram.load(job.table),
    )
    # A model's have been; n-grams are put on the device.
    return draft, params if model else draft.prepare(params)

  def prepare(self, case: str) -> dict[str, Any]:
    """Compiles a case by running it once."""
    start = time.perf_counter()
    name, *options = case.split(':')
    self._runners[case] = getattr(self, f'_make_{name}')(*options)
    _, results = self._runners[case]()
    seconds = time.perf_counter() - start
    if name == 'autoregressive':
      tokens = results[0].tokens[:, 0]
      used = tokens[:, : int(np.max(np.sum(tokens != 0, axis=1)))]
      self._text = np.pad(used, ((0, 0), (1, 0)))
    return {'seconds': seconds}

  def run(self, case: str) -> dict[str, Any]:
    """Runs a case once and times it; per step where it is a part."""
    start = time.perf_counter()
    steps, results = self._runners[case]()
    answer: dict[str, Any] = {'seconds': (time.perf_counter() - start) / steps}
    if results:
      # Loops that sample have texts of their own.
      if not case.startswith('loop:'):
        answer['tokens'] = [r.tokens[:, 0].tolist() for r in results]
      stats = [r.stats for r in results]
      answer['stats'] = jax.tree.map(
          lambda *x: np.concatenate(x), *stats
      ).summary()
      # A batch decodes until its slowest row has ended.
      answer['loop_rounds'] = int(sum(s.rounds.max() for s in stats))
    return answer

  def _decoder(self, name: str) -> T5:
    return T5(self.configs[name])

  def _arguments(self) -> dict[str, Any]:
    job = self.job
    return {
        'max_decode_len': job.text_len,
        'eos_id': job.eos_id,
        'rng': jax.random.key(job.seed),
        'temperature': job.temperature,
        'topk': job.topk,
        'topp': job.topp,
        'max_decode_steps': job.steps,
    }

  def _make_autoregressive(self) -> _Runner:
    arguments = self._arguments()

    def run():
      return 1, [
          jax.device_get(
              t5x_specdec.autoregressive_decode(
                  self._decoder('target'),
                  self._prepared['target'],
                  inputs,
                  prompts=prompts,
                  **arguments,
              )
          )
          for inputs, prompts in self.job.batches()
      ]

    return run

  def _make_loop(self, gamma: str, name: str) -> _Runner:
    return self._make_speculative(gamma, **loops.LOOPS[name])

  def _make_speculative(self, gamma: str, **changes: Any) -> _Runner:
    chosen = int(gamma) if gamma.isdigit() else self._policy(gamma)
    return lambda: (
        1,
        [
            self._speculate(chosen, *batch, **changes)
            for batch in self.job.batches()
        ],
    )

  def _speculate(
      self, gamma: int | Policy, inputs, prompts, **changes: Any
  ) -> DecodeResult:
    arguments = {
        **self._arguments(),
        'verification': self.job.verification,
        **changes,
    }
    return jax.device_get(
        t5x_specdec.speculative_decode(
            self._decoder('target'),
            self._draft,
            self._prepared['target'],
            self._draft_params,
            inputs,
            prompts=prompts,
            gamma=gamma,
            **arguments,
        )
    )

  def _policy(self, word: str) -> Policy:
    """What 'adaptive' or 'auto' stands for on these inputs."""
    job, batch = self.job, self.job.batches()[0]

    def sample() -> Any:
      result = self._speculate(on_the_spot.SAMPLE_GAMMA, *batch)
      return result.stats.summary()['alpha']

    return on_the_spot.policy(
        word,
        job.calibration,
        sample,
        self._decoder('target'),
        self._prepared['target'],
        self._draft,
        self._draft_params,
        rows=len(batch[0]),
        verification=job.verification,
    )

  def _encode(self, name: str, gamma: int, inputs, prompts) -> Any:
    """State of a model, or of 'drafts', after the input and the prompt."""
    rows = len(inputs)
    # Of a prompt of P tokens the first P decoder inputs are read in one block:
    # the start token and all but the last.
    prompt = np.zeros([rows, 0 if prompts is None else 1], np.int32)
    max_len = self.job.text_len + gamma + 2
    if name == 'drafts':
      return pieces.encode_draft(
          self._draft_params,
          inputs,
          prompt,
          draft=self._draft,
          max_len=max_len,
      )
    return pieces.encode(
        self._prepared[name],
        inputs,
        prompt,
        decoder=self._decoder(name),
        rows=rows,
        max_len=max_len,
    )

  def _make_encode(self, *, names=('target',)) -> _Runner:
    def run():
      for inputs, prompts in self.job.batches():
        for name in names:
          jax.block_until_ready(self._encode(name, 0, inputs, prompts))
      return 1, []

    return run

  def _make_encode_pair(self) -> _Runner:
    return self._make_encode(names=('target', 'drafts'))

  def _loop(self, gamma: int) -> tuple[np.ndarray, np.ndarray]:
    """The first batch's decoder inputs, padded to the caches; positions."""
    first = 0 if self.job.prompts is None else 1
    width = self.job.text_len + gamma + 2
    text = np.pad(self._text, ((0, 0), (0, width - self._text.shape[1])))
    return text, pieces.spread(first, self._text.shape[1] - 1, _STEPS)

  def _held(self, name: str, gamma: int) -> pieces.Held:
    """A model's state for the first batch."""
    return pieces.Held(self._encode(name, gamma, *self.job.batches()[0]))

  def _make_block(self, number: str) -> _Runner:
    width = int(number)
    text, positions = self._loop(width - 1)
    held = self._held('target', width - 1)
    loop = pieces.blocks(
        self._decoder('target'),
        self._prepared['target'],
        held,
        text,
        positions,
        width,
    )
    return lambda: (loop(), (len(positions), []))[1]

  def _make_draft_step(self) -> _Runner:
    text, positions = self._loop(0)
    held = self._held('draft', 0)
    loop = pieces.blocks(
        self._decoder('draft'),
        self._prepared['draft'],
        held,
        text,
        positions,
        1,
    )
    return lambda: (loop(), (len(positions), []))[1]

  def _make_propose(self, number: str) -> _Runner:
    gamma = int(number)
    text, positions = self._loop(gamma)
    job, rows = self.job, len(text)
    loop = pieces.proposals(
        self._draft,
        self._draft_params,
        self._held('drafts', gamma),
        text,
        positions,
        sampling.Method(
            temperature=jnp.full([rows], job.temperature, jnp.float32),
            topk=jnp.int32(job.topk),
            topp=jnp.float32(job.topp),
        ),
        gamma,
    )
    return lambda: (loop(), (len(positions), []))[1]


def main() -> None:
  """Serves the parent."""
  protocol.serve(OurWorker)


if __name__ == '__main__':
  main()
