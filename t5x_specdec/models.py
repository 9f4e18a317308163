# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""T5X models that decode speculatively.

`SpeculativeEncoderDecoderModel` and `SpeculativeDecoderOnlyModel` stand where
T5X's own classes stand in a gin file. Target and draft stay stock flax modules;
only `predict_batch` and `predict_batch_with_aux` differ: they read the modules'
configs and run `t5x_specdec.decoding` over the same parameters.

T5X knows one tree of parameters per model: see `pair_tree` for this one.

Under a partitioner the parameters are sharded as their axes' names say and the
batch over the data axis, both from outside, as T5X jits `predict_batch`. No
constraint is set within: keys and values come from kernels that are sharded by
heads and from rows that are sharded by batch, the two axes of a cache, and XLA
carries both back to the zeros that a cache starts as. So the target's caches
are sharded like its heads and a replicated draft's by rows alone. That it stays
so is for the tests to watch (`tests/t5x_mesh_test.py` reads the shapes in the
compiled program): a constraint would need the mesh and T5X's rules in here, for
what is already so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
import dataclasses
import functools
from typing import Any

from flax import core as flax_core
from flax import linen as nn
import jax
import jax.numpy as jnp
import seqio
from t5x import decoding as t5x_decoding
from t5x import models

from t5x_specdec import decoding
from t5x_specdec import inference
from t5x_specdec import model_checks
from t5x_specdec import pair_tree
from t5x_specdec.drafts import Chain
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import kinds
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.drafts import ngram
from t5x_specdec.gamma import as_policy
from t5x_specdec.gamma import Policy
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.stats import SPECULATION


class _Speculative(models.BaseTransformerModel):
  """What both models share: the draft beside the target, and the decoding."""

  _STOCK: type[models.BaseTransformerModel]

  def __init__(
      self,
      module: nn.Module | None = None,
      draft_module: nn.Module | None = None,
      *,
      draft: Draft | ngram.Table | None = None,
      gamma: int | Policy | None = None,
      draft_vocabulary: seqio.Vocabulary | None = None,
      decode_fn: Callable[..., decoding.DecodeResult] | None = None,
      seed: int | None = None,
      **kwargs,
  ):
    name = type(self).__name__
    stock = model_checks.bindings(self._STOCK)
    if 'decode_fn' in stock:
      model_checks.check_stock_decode_fn(
          stock.pop('decode_fn'), t5x_decoding.beam_search
      )
    kwargs = {**stock, **kwargs}
    if module is not None:
      kwargs['module'] = module
    chained = isinstance(draft, Chain) and draft.then is None
    if (draft_module is None) == (draft is None) and not (
        chained and draft_module is not None
    ):
      raise ValueError(
          f'{"no draft" if draft is None else "two drafts"}: bind either '
          f'models.{name}.draft_module or, for a draft that is no model, '
          f'models.{name}.draft; or give a run file of t5x_specdec/configs/runs'
      )
    if decode_fn is None:
      decode_fn = model_checks.configured(decoding.speculative_decode)
    model_checks.check_decode_fn(
        decode_fn,
        name,
        t5x_decoding.temperature_sample,
        model_checks.OWN + (() if gamma is None else ('gamma',)),
    )
    super().__init__(decode_fn=decode_fn, **kwargs)
    self._target = T5(self.module.config)
    self.draft_module = draft_module
    self._draft_init = None
    self._table = {}
    if isinstance(draft, ngram.Table):
      model_checks.check_table(draft, self.output_vocabulary)
      draft, self._table, _ = kinds.resized(draft, self._target.vocab_size)
    if draft_module is not None:
      config: Any = draft_module.config  # pyright: ignore
      model_checks.check_draft_bindings(self.module.config, config)
      model = ModelDraft(T5(config))
      draft = dataclasses.replace(draft, then=model) if chained else model  # pyright: ignore
      self._draft_init = self._STOCK(
          **{**kwargs, 'module': draft_module}
      ).get_initial_variables
    if not hasattr(draft, 'propose') or isinstance(draft, type):
      raise ValueError(
          f'models.{name}.draft must be a source of drafts, such as '
          f'@drafts.PromptLookup(), got {draft!r}'
      )
    if gamma is not None:
      try:
        as_policy(gamma)
      except ValueError as error:
        raise ValueError(f'models.{name}.gamma: {error}') from error
    if draft_module is None:
      model_checks.check_no_checkpoint(draft)
    self._draft = draft
    model_checks.check_pair(
        self._target, draft, self.output_vocabulary, draft_vocabulary
    )
    self.gamma = gamma
    self._seed = seed

  def get_initial_variables(
      self,
      rng: jax.Array,
      input_shapes: Mapping[str, Any],
      input_types: Mapping[str, jnp.dtype] | None = None,
  ) -> flax_core.FrozenDict:
    """Initial variables of the target, the draft's under `draft` in each.

    Args:
      rng: random key.
      input_shapes: shape of each feature, batch first.
      input_types: dtype of each feature.

    Returns:
      `params` and `params_axes`, and what else the target has.
    """
    variables = super().get_initial_variables(rng, input_shapes, input_types)  # pyright: ignore
    if self._draft_init is None:
      return variables
    draft = self._draft_init(
        jax.random.fold_in(rng, 1), input_shapes, input_types
    )
    return pair_tree.join_variables(variables, draft)

  def predict_batch(
      self,
      params: PyTree,
      batch: Mapping[str, jax.Array],
      rng: jax.Array | None = None,
      **options,
  ) -> jax.Array:
    """Decodes a batch; counters go to the host for `inference` to log.

    Args:
      params: the model's parameters.
      batch: as for `predict_batch_with_aux`.
      rng: random key.
      **options: as for `predict_batch_with_aux`.

    Returns:
      The tokens of `predict_batch_with_aux`.
    """
    tokens, aux = self.predict_batch_with_aux(params, batch, rng, **options)
    jax.debug.callback(inference.keep, aux[SPECULATION])
    return tokens

  def _speculate(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      prompts: jax.Array | None,
      max_decode_len: int,
      *,
      rng: jax.Array | None,
      num_decodes: int,
      decoder_params: Mapping[str, Any] | None,
  ) -> decoding.DecodeResult:
    """Runs `decode_fn` on a batch; the model's and T5X's names translated."""
    options = dict(decoder_params or {})
    decode_rng = options.pop('decode_rng', None)
    if rng is not None and decode_rng is not None:
      raise ValueError(
          f'Got RNG both from the `rng` argument ({rng}) and '
          f"`decoder_params['decode_rng']` ({decode_rng}). Please specify one "
          'or the other.'
      )
    rng = decode_rng if rng is None else rng
    if self._seed is not None:
      rng = jax.random.PRNGKey(0) if rng is None else rng
      rng = jax.random.fold_in(rng, self._seed)
    if 'eos_id' not in options:
      options['eos_id'] = self.output_vocabulary.eos_id or 1
    if self.gamma is not None:
      options.setdefault('gamma', self.gamma)
    known = model_checks.options(self.decode_fn)
    if unknown := sorted(set(options) - known):
      raise ValueError(
          f'decoder_params {unknown} are not supported by speculative decoding,'
          f' which takes {sorted(known - {"rng"})} and decode_rng'
      )
    target_params, draft_params = pair_tree.split_draft(params)
    draft_params = draft_params or self._table
    if isinstance(self._draft, Chain):
      draft_params = {'first': {}, 'then': draft_params}
    return self.decode_fn(  # pyright: ignore
        self._target,
        self._draft,
        target_params,
        draft_params,
        inputs,
        prompts=prompts,
        max_decode_len=max_decode_len,
        num_decodes=num_decodes,
        rng=rng,
        **options,
    )


def _select(
    result: decoding.DecodeResult, return_all_decodes: bool
) -> tuple[jax.Array, dict[str, Any]]:
  """Tokens and aux as T5X returns them, batch first in every leaf.

  Args:
    result: of a decode.
    return_all_decodes: whether to keep all decodes or only the best one.

  Returns:
    int32[batch, (num_decodes,) length] and {'scores': ..., 'speculation':
    {counter: ...}}, the counters those of `stats.Stats`.
  """
  if not return_all_decodes:
    result = jax.tree.map(lambda x: x[:, -1], result)
  counters = result.stats.counters()
  return result.tokens, {'scores': result.scores, SPECULATION: counters}


class SpeculativeEncoderDecoderModel(_Speculative, models.EncoderDecoderModel):
  """`t5x.models.EncoderDecoderModel` that decodes with a draft.

  Every argument of the stock class is taken, too. Under gin those that are not
  bound here come from the bindings of the stock class itself, so that a
  target's own gin file stays as it is.

  Attributes:
    module: the target, a stock encoder-decoder module.
    draft_module: the draft, likewise, of the same vocabulary.
    draft: instead of `draft_module`, a source of drafts that has no checkpoint:
      `drafts.PromptLookup()`, or a table of n-grams from `drafts.ngram.load`.
      Beside `draft_module`, a `drafts.Chain` of what is asked before it:
      `drafts.Chain(drafts.PromptLookup())`.
    gamma: drafts per round, or a policy such as `gamma.Adaptive(c=0.05)`; None
      leaves it to `decode_fn`.
    draft_vocabulary: the draft's, compared with the output vocabulary; None
      says that it is the same.
    decode_fn: called like `decoding.speculative_decode`, which it defaults to.
    seed: folded into the key of every batch; infer.py's own is constant.
  """

  _STOCK = models.EncoderDecoderModel

  def predict_batch_with_aux(
      self,
      params: PyTree,
      batch: Mapping[str, jax.Array],
      rng: jax.Array | None = None,
      decoder_params: MutableMapping[str, Any] | None = None,
      return_all_decodes: bool | None = None,
      num_decodes: int | None = None,
      prompt_with_targets: bool = False,
  ) -> tuple[jax.Array, dict[str, Any]]:
    """Decodes a batch; arguments and results as those of the stock class.

    Args:
      params: the model's parameters.
      batch: int32[batch, length] features, `encoder_input_tokens` and
        `decoder_input_tokens`.
      rng: random key.
      decoder_params: options of `decode_fn`, and `decode_rng`.
      return_all_decodes: all decodes or only the best.
      num_decodes: decodes per input.
      prompt_with_targets: whether `decoder_input_tokens`, EOS removed, are a
        forced prompt.

    Returns:
      int32[batch, length] tokens, or int32[batch, num_decodes, length] by
      rising score; and aux, scores and counters of `stats.Stats`.
    """
    defaults: Any = self._default_decoder_params
    if return_all_decodes is None:
      return_all_decodes = bool(defaults.return_all_decodes)
    if num_decodes is None:
      num_decodes = int(defaults.num_decodes)
    tokens = batch['decoder_input_tokens']
    prompts = None
    if prompt_with_targets:
      # The start token is ours to give; an EOS would end the text at once.
      prompts = tokens[:, 1:]
      prompts = prompts * (prompts != self.output_vocabulary.eos_id)
    result = self._speculate(
        params,
        batch['encoder_input_tokens'],
        prompts,
        tokens.shape[1],
        rng=rng,
        num_decodes=num_decodes,
        decoder_params=decoder_params,
    )
    return _select(result, return_all_decodes)


class SpeculativeDecoderOnlyModel(_Speculative, models.DecoderOnlyModel):
  """`t5x.models.DecoderOnlyModel` that decodes with a draft.

  Attributes: see `SpeculativeEncoderDecoderModel`.
  """

  _STOCK = models.DecoderOnlyModel

  @functools.wraps(_Speculative.__init__)
  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    if self._inputs_bidirectional_attention:
      raise ValueError(
          'inputs_bidirectional_attention (a prefix LM) is not supported by '
          'speculative decoding: its network is causal'
      )

  def predict_batch_with_aux(
      self,
      params: PyTree,
      batch: Mapping[str, jax.Array],
      rng: jax.Array | None = None,
      *,
      return_all_decodes: bool = False,
      num_decodes: int = 1,
      decoder_params: MutableMapping[str, Any] | None = None,
  ) -> tuple[jax.Array, dict[str, Any]]:
    """Continues the inputs of a batch; as in the stock class.

    Args:
      params: the model's parameters.
      batch: int32[batch, length] features, `decoder_input_tokens` and
        `decoder_causal_attention`, which tells inputs from targets.
      rng: random key.
      return_all_decodes: all decodes or only the best.
      num_decodes: decodes per input.
      decoder_params: options of `decode_fn`, and `decode_rng`.

    Returns:
      int32[batch, length] generated tokens without the inputs (with a decodes
      axis for `return_all_decodes`), and aux.
    """
    if 'decoder_causal_attention' not in batch:
      raise ValueError(
          'Batch does not have the right format for text generation: probably '
          'because `task_feature_lengths` passed to the feature converter does '
          'not have both `inputs` and `targets`.'
      )
    inputs = batch['decoder_input_tokens'] * batch['decoder_causal_attention']
    prompts = inputs[:, 1:]
    result = self._speculate(
        params,
        None,
        prompts,
        inputs.shape[1],
        rng=rng,
        num_decodes=num_decodes,
        decoder_params=decoder_params,
    )
    tokens, aux = _select(result, return_all_decodes)
    prefix = jnp.sum(prompts != 0, axis=-1)
    return models.remove_prefix(tokens, prefix), aux
