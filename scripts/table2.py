# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
r"""Prints a row of Table 2 of the paper, measured: stock T5X against ours.

Takes the gin files and bindings of a speculative t5x.infer run, and decodes the
same batches in one process, in turns, with T5X's own `temperature_sample` and
with the draft's help:

  python scripts/table2.py --batches=50 \
      --gin_file=t5x_specdec/configs/table2/ende_small_t0.gin \
      --gin.CHECKPOINT_PATH="'gs://...'" \
      --gin.DRAFT_CHECKPOINT_PATH="'gs://...'"

alpha is Corollary 3.6's, accepted/judged the share of drafts that stood. c is
the time of a draft's step over a target's, each decoding alone with our own
loop over the whole length; its share of encoding the inputs and of preparing
the weights (`T5.prepare`) is part of either step. Exp is Theorem 3.8 of
this alpha and this c, Emp the ratio of milliseconds per token, encoder
included. Compilation is not timed. One process only; an unfilled last batch is
left out.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import time
from typing import Any

from absl import flags
import gin
import jax
import jax.numpy as jnp
import numpy as np
import seqio
from t5x import decoding as t5x_decoding
from t5x import gin_utils
from t5x import infer as t5x_infer
from t5x import models as t5x_models
from t5x import utils
import table2_report

from t5x_specdec import decoding
from t5x_specdec import inference
from t5x_specdec import model_checks
from t5x_specdec import models
from t5x_specdec import pair_tree
from t5x_specdec import sampling
from t5x_specdec.gamma import Fixed
from t5x_specdec.network import T5

_GIN_FILE = flags.DEFINE_multi_string('gin_file', [], 'As for t5x.infer.')
_GIN_BINDINGS = flags.DEFINE_multi_string(
    'gin_bindings', [], 'As for t5x.infer, which has --gin.NAME=VALUE for it.'
)
_DATA_DIR = flags.DEFINE_string('tfds_data_dir', None, 'As for t5x.infer.')
_BATCHES = flags.DEFINE_integer('batches', 20, 'Batches to decode.', 1)
_JSON = flags.DEFINE_bool('json', False, 'One JSON object as the last line.')


@dataclasses.dataclass
class _Decoder:
  """A compiled way to decode a batch, and the time it took.

  Attributes:
    run: (parameters of the pair, batch, key) -> tokens and aux.
    seconds: of all timed calls, until the result was there.
    results: int32[batch, length] tokens and aux of each of them.
  """

  run: Any
  seconds: float = 0.0
  results: list[Any] = dataclasses.field(default_factory=list)

  def __call__(self, *args) -> None:
    start = time.perf_counter()
    result = jax.block_until_ready(self.run(*args))
    self.seconds += time.perf_counter() - start
    self.results.append(jax.device_get(result))

  def joined(self) -> Any:
    return jax.tree.map(lambda *x: np.concatenate(x), *self.results)


def _options() -> dict[str, Any]:
  """What sampling is bound to for our decoder, where T5X's takes it, too."""
  known = inspect.signature(t5x_decoding.temperature_sample).parameters
  bound = model_checks.bindings(decoding.speculative_decode)
  return {name: value for name, value in bound.items() if name in known}


def _decoders(model: Any, partition: Any) -> dict[str, _Decoder]:
  """The baseline, ours, and both models alone, which tell c.

  Args:
    model: the pair.
    partition: compiles a function of parameters, batch and key.

  Returns:
    {'stock', 'speculative', 'target', 'draft'}.
  """
  options = _options()
  stock = t5x_models.EncoderDecoderModel(
      module=model.module,
      input_vocabulary=model.input_vocabulary,
      output_vocabulary=model.output_vocabulary,
      optimizer_def=None,  # pyright: ignore
      decode_fn=t5x_decoding.temperature_sample,
  )

  def baseline(params, batch, rng):
    target, _ = pair_tree.split_draft(params)
    return stock.predict_batch_with_aux(
        target, batch, rng, decoder_params=dict(options)
    )

  def alone(module, index):
    network = T5(module.config)

    def decode(params, batch, rng):
      result = decoding.autoregressive_decode(
          network,
          pair_tree.split_draft(params)[index],
          batch['encoder_input_tokens'],
          max_decode_len=batch['decoder_input_tokens'].shape[1],
          eos_id=network.vocab_size,  # none, so that it runs to the end
          rng=rng,
          **options,
      )
      return result.tokens, {'rounds': result.stats.rounds}

    return decode

  return {
      'stock': _Decoder(partition(baseline)),
      'speculative': _Decoder(partition(model.predict_batch_with_aux)),
      'target': _Decoder(partition(alone(model.module, 0))),
      'draft': _Decoder(partition(alone(model.draft_module, 1))),
  }


def _gamma(model: Any) -> int:
  """Drafts per round of a pair; ValueError where a row cannot be made of it.

  Theorem 3.8 asks for one number, which `planner.policy` is with 'auto' where
  drafts pay, and for a draft whose steps can be timed.
  """
  gamma = model.gamma
  gamma = gamma.gamma if isinstance(gamma, Fixed) else gamma
  if not isinstance(gamma, int) or gamma < 1:
    raise ValueError(
        f'MODEL.gamma is {model.gamma}: a row of the table is for one number '
        'of drafts, at least 1'
    )
  if model.draft_module is None:
    raise ValueError('a row of the table is for a draft that is a model')
  return gamma


def _row(
    model: Any, gamma: int, decoders: dict[str, _Decoder]
) -> dict[str, Any]:
  """The figures of the table, from what the decoders did."""
  tokens, aux = decoders['speculative'].joined()
  want, _ = decoders['stock'].joined()
  eos_id = model.output_vocabulary.eos_id or 1
  counts = {
      'stock': table2_report.count_tokens(want, eos_id),
      'speculative': table2_report.count_tokens(tokens, eos_id),
  }
  for name in ('target', 'draft'):  # a step a token
    counts[name] = int(decoders[name].joined()[1]['rounds'].sum())
  seconds = {name: decoder.seconds for name, decoder in decoders.items()}
  stats = inference.summary(aux)
  assert stats is not None
  options = _options()
  temperature = options.get('temperature', 1.0)
  same = None  # sampled texts follow one law, but not one key
  if temperature <= sampling.MIN_TEMPERATURE:
    same = int(np.all(tokens == want, axis=1).sum())
  return {
      'gamma': gamma,
      'temperature': temperature,
      'topk': options.get('topk', 1),
      'alpha': stats['alpha'],
      'alpha_empirical': stats['alpha_empirical'],
      **table2_report.times(stats['alpha'], gamma, seconds, counts),
      'tokens_per_target_call': stats['tokens_per_target_call'],
      'texts': len(tokens),
      'identical': same,
      'nonfinite': stats['nonfinite'],
      'tokens': counts,
      'device': jax.devices()[0].device_kind,
  }


def _read(model: Any, config: utils.DatasetConfig) -> list[dict[str, Any]]:
  """The first batches as infer.py makes them; ValueError if there is none."""
  if config.module:
    utils.import_module(config.module)
  utils.verify_matching_vocabs(config, model)
  task = seqio.maybe_get_mixture_or_task(config.mixture_or_task_name)
  lengths = config.task_feature_lengths
  texts = task.get_dataset(
      sequence_length=lengths,
      split=config.split,
      shuffle=False,
      num_epochs=1,
      use_cached=config.use_cached,
      seed=config.seed,
  )
  data = model.FEATURE_CONVERTER_CLS(pack=False)(texts, lengths)
  data = data.batch(config.batch_size, drop_remainder=True)
  batches = list(data.take(_BATCHES.value).as_numpy_iterator())
  if not batches:
    raise ValueError(f'no batch of {config.batch_size} texts in the data')
  return batches


def _restore(
    model: Any,
    batch: dict[str, Any],
    config: utils.RestoreCheckpointConfig,
    partitioner: Any,
) -> tuple[Any, Any]:
  """Restores the pair as infer.py does; its parameters and their axes."""
  initializer = utils.TrainStateInitializer(
      optimizer_def=None,
      init_fn=model.get_initial_variables,
      input_shapes={k: v.shape for k, v in batch.items()},
      input_types={k: jnp.dtype(v.dtype) for k, v in batch.items()},
      partitioner=partitioner,
  )
  config.strict = False  # there is no optimizer state
  state, _ = utils.create_checkpoint_manager_and_restore(
      initializer, partitioner, config, config.path, None, use_orbax=True
  )
  assert state is not None
  return state.params, initializer.train_state_axes.params


def infer(
    *,
    model: Any,
    dataset_cfg: utils.DatasetConfig,
    restore_checkpoint_cfg: utils.RestoreCheckpointConfig,
    partitioner: Any,
    **unused,
) -> dict[str, Any]:
  """Measures a row; named as gin files of t5x.infer have it.

  Args:
    model: the pair, `models.SpeculativeEncoderDecoderModel`.
    dataset_cfg: what to decode.
    restore_checkpoint_cfg: how to restore target and draft.
    partitioner: the run's.
    **unused: what else is bound for t5x.infer.

  Returns:
    The row.

  Raises:
    ValueError: the model has no draft model or no one gamma, or the data no
      full batch.
  """
  del unused
  if not isinstance(model, models.SpeculativeEncoderDecoderModel):
    raise ValueError(
        f'MODEL is {type(model).__name__}: give the gin files of a speculative '
        'run, without infer_baseline.gin'
    )
  gamma = _gamma(model)
  batches = _read(model, dataset_cfg)
  params, axes = _restore(
      model, batches[0], restore_checkpoint_cfg, partitioner
  )
  partition = functools.partial(
      partitioner.partition,
      in_axis_resources=(axes, partitioner.data_partition_spec, None),
      out_axis_resources=None,
  )
  decoders = _decoders(model, partition)
  for decoder in decoders.values():  # compiles
    jax.block_until_ready(
        decoder.run(params, batches[0], jax.random.PRNGKey(0))
    )
  for i, batch in enumerate(batches):
    rng = jax.random.fold_in(jax.random.PRNGKey(0), i)
    order = list(decoders.values())
    for decoder in order if i % 2 else order[::-1]:
      decoder(params, batch, rng)
  return _row(model, gamma, decoders)


def main(argv: list[str]) -> None:
  if len(argv) > 1 or not _GIN_FILE.value:
    raise SystemExit('usage: table2.py --gin_file=... [--gin.NAME=VALUE ...]')
  if _DATA_DIR.value:
    seqio.set_tfds_data_dir_override(_DATA_DIR.value)
  run: Any = gin.configurable(infer)
  root = os.path.dirname(os.path.dirname(os.path.abspath(t5x_infer.__file__)))
  gin_utils.parse_gin_flags(
      ['.', root],
      _GIN_FILE.value,
      # Nothing is written, so none need be given.
      ['INFER_OUTPUT_DIR = None', *_GIN_BINDINGS.value],
  )
  row = run()
  row['paper'] = table2_report.paper(_GIN_FILE.value)
  print(table2_report.describe(row))
  if _JSON.value:
    print(json.dumps(row))


if __name__ == '__main__':
  gin_utils.run(main)
