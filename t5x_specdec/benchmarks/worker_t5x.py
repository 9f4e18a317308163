# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Worker: stock T5X decoding with the target alone, as its users run it.

`predict_batch_with_aux` of T5X's `EncoderDecoderModel` around T5X's network,
with `t5x.decoding.temperature_sample` as `decode_fn` and its arguments bound as
gin binds them. Case: 'alone'.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_specdec.benchmarks import protocol
from t5x_specdec.benchmarks.jax_worker import JaxWorker
from t5x_specdec.benchmarks.protocol import Array


class T5XWorker(JaxWorker):
  """Times stock T5X."""

  packages = ('jax', 'jaxlib', 't5x')

  def start(self, job: dict[str, Any]) -> dict[str, Any]:
    """Takes the job and imports T5X."""
    # pylint: disable=g-import-not-at-top
    import seqio
    from t5x import decoding
    from t5x import models
    from t5x.examples.t5 import network

    answer = super().start(job)
    config = self.configs['target']
    if config.scalable:
      raise ValueError('stock T5X is timed for t5x/examples/t5 alone')
    known = {field.name for field in dataclasses.fields(network.T5Config)}
    fields = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if name in known
    } | {'dtype': jnp.dtype(config.dtype)}
    self._module = network.Transformer(network.T5Config(**fields))
    vocabulary = seqio.PassThroughVocabulary(
        config.vocab_size, eos_id=self.job.eos_id
    )
    self._model = models.EncoderDecoderModel(
        self._module,
        input_vocabulary=vocabulary,
        output_vocabulary=vocabulary,
        optimizer_def=None,
        decode_fn=decoding.temperature_sample,
    )
    return answer

  def logits(self, model: str, width: int, inputs: list, tokens: list):
    """Teacher-forced logits of the training path; `width` has no meaning."""
    del width
    decoder_inputs = np.array(tokens, np.int32)
    # Only where they are 0 do the targets matter: as a mask.
    logits = jax.jit(
        lambda params, inputs, tokens: self._module.apply(
            {'params': params},
            inputs,
            tokens,
            jnp.ones_like(tokens),
            enable_dropout=False,
        )
    )(self.params(model), np.array(inputs, np.int32), decoder_inputs)
    return {}, Array.of(np.asarray(logits, np.float32))

  def ready(self) -> None:
    """Compiles nothing yet: makes the function that is timed."""
    job = self.job

    def predict(params, inputs, decoder_inputs):
      tokens, _ = self._model.predict_batch_with_aux(
          params,
          {
              'encoder_input_tokens': inputs,
              'decoder_input_tokens': decoder_inputs,
          },
          rng=jax.random.PRNGKey(job.seed),
          decoder_params={
              'temperature': job.temperature,
              'topk': job.topk,
              'topp': job.topp,
          },
          prompt_with_targets=job.prompts is not None,
      )
      return tokens

    self._predict = jax.jit(predict)
    self._params = self.params('target')
    self._leaves.clear()

  def prepare(self, case: str) -> dict[str, Any]:
    """Compiles the case by running it once."""
    return {'seconds': self.run(case)['seconds']}

  def run(self, case: str) -> dict[str, Any]:
    """Decodes all batches once and times it."""
    assert case == 'alone'
    start = time.perf_counter()
    results = []
    for inputs, prompts in self.job.batches():
      decoder_inputs = np.zeros([len(inputs), self.job.text_len], np.int32)
      if prompts is not None:
        decoder_inputs[:, 1:2] = prompts
      results.append(
          np.asarray(self._predict(self._params, inputs, decoder_inputs))
      )
    seconds = time.perf_counter() - start
    return {'seconds': seconds, 'tokens': [r.tolist() for r in results]}


def main() -> None:
  """Serves the parent."""
  protocol.serve(T5XWorker)


if __name__ == '__main__':
  main()
