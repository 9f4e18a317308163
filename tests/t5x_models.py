# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Small T5X models in this process: T5X's own and ours of the same target."""

from __future__ import annotations

import dataclasses
import functools

import helpers
import jax
import numpy as np

from t5x_specdec import pair_tree

EOS = 3
INPUTS, LENGTH, BATCH = 7, 9, 5


@dataclasses.dataclass(frozen=True)
class Pair:
  """T5X's model and ours of the same target, and the parameters of both."""

  name: str
  stock: object
  ours: object
  params: dict
  pair_params: dict


def vocabulary(size: int, eos_id: int = EOS):
  import seqio

  return seqio.PassThroughVocabulary(size, eos_id=eos_id)


def model_of(name: str, cls: str, **kwargs):
  """One of our models, or with a name of T5X's one of those."""
  from t5x import models as t5x_models

  from t5x_specdec import models

  module = helpers.stock(helpers.CONFIGS[name]).module
  words = vocabulary(helpers.CONFIGS[name].vocab_size)
  common = {'module': module, 'optimizer_def': None}
  if name == 'decoder_only':
    common['vocabulary'] = words
  else:
    common |= {'input_vocabulary': words, 'output_vocabulary': words}
  if hasattr(models, cls):
    common['draft_module'] = module
    return getattr(models, cls)(**(common | kwargs))
  return getattr(t5x_models, cls)(**(common | kwargs))


def ours_of(name: str, **kwargs):
  kind = 'DecoderOnly' if name == 'decoder_only' else 'EncoderDecoder'
  return model_of(name, f'Speculative{kind}Model', **kwargs)


@functools.cache
def pair(name: str) -> Pair:
  from t5x import decoding


  config = helpers.CONFIGS[name]
  params = helpers.random_params(config, helpers.SEEDS[name])
  draft = helpers.perturbed(params, 5, 0.15)
  kind = 'DecoderOnly' if name == 'decoder_only' else 'EncoderDecoder'
  return Pair(
      name,
      model_of(name, f'{kind}Model', decode_fn=decoding.temperature_sample),
      ours_of(name, gamma=3),
      params,
      pair_tree.join_draft(params, draft),
  )


@functools.cache
def batch_of(name: str) -> dict[str, np.ndarray]:
  """A batch as SeqIO's converters make them, some inputs with EOS."""
  rng = np.random.default_rng(8)
  vocab_size = helpers.CONFIGS[name].vocab_size
  text = helpers.random_inputs(rng, BATCH, LENGTH, vocab_size)
  batch = {
      'decoder_target_tokens': text,
      'decoder_input_tokens': np.pad(text, ((0, 0), (1, 0)))[:, :-1],
      'decoder_loss_weights': (text != 0).astype(np.int32),
  }
  if name == 'decoder_only':
    ends = rng.integers(1, 5, [BATCH, 1])
    causal = np.arange(LENGTH) <= ends
    batch['decoder_causal_attention'] = causal.astype(np.int32)
  else:
    batch['encoder_input_tokens'] = helpers.random_inputs(
        rng, BATCH, INPUTS, vocab_size
    )
  return batch


def predict(model, params, batch, *, jit=None, **kwargs):
  """`predict_batch_with_aux`, compiled as a whole for T5X's models.

  Ours share the compilation of the decode inside where they are not.

  Args:
    model: of either kind.
    params: its parameters.
    batch: features.
    jit: whether to compile the whole.
    **kwargs: for `predict_batch_with_aux`.

  Returns:
    Tokens and aux.
  """
  options = kwargs.pop('decoder_params', {'temperature': 0.0})

  def run(params, batch):
    return model.predict_batch_with_aux(
        params, batch, decoder_params=dict(options), **kwargs
    )

  if jit is None:
    jit = not hasattr(model, 'draft_module')
  return (jax.jit(run) if jit else run)(params, batch)
