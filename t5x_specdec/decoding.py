# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding: one compiled loop that drafts, verifies and commits.

Each round asks the draft for gamma tokens, scores them all in one block of the
target, and keeps those that verification lets stand plus one token of the
target's own. Rows of a batch accept different numbers of tokens and simply
stand at different positions. Plain autoregressive decoding is the same loop
without drafts.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from t5x_specdec import loop
from t5x_specdec import sampling
from t5x_specdec import validation
from t5x_specdec.block_decoder import BlockDecoder
from t5x_specdec.drafts import as_draft
from t5x_specdec.drafts import Draft
from t5x_specdec.drafts import NoDraft
from t5x_specdec.gamma import as_policy
from t5x_specdec.gamma import Fixed
from t5x_specdec.gamma import Policy
from t5x_specdec.loop import DecodeResult
from t5x_specdec.parameters import PyTree
from t5x_specdec.sampling import Method


def _as_array(x: ArrayLike, dtype: Any, shape: Any = None) -> Any:
  """`x` as dtype[shape], its own shape by default.

  What is not on a device stays with NumPy: before the one compiled call, every
  operation of `jnp` would cost a dispatch, together as much as several steps of
  a small model.
  """
  xp = jnp if isinstance(x, jax.Array) else np
  return xp.broadcast_to(
      xp.asarray(x, dtype), np.shape(x) if shape is None else shape
  )


def _run(
    target: BlockDecoder,
    draft: Draft,
    target_params: PyTree,
    draft_params: PyTree,
    inputs: ArrayLike | None,
    *,
    policy: Policy,
    prompts: ArrayLike | None,
    max_decode_len: int,
    eos_id: ArrayLike,
    rng: jax.Array | None,
    row_keys: jax.Array | None,
    temperature: ArrayLike,
    topk: ArrayLike,
    topp: ArrayLike,
    num_decodes: int,
    max_decode_steps: ArrayLike | None,
    rescale_log_probs: bool,
    verification: str,
    lenience: float,
    trace: bool,
) -> DecodeResult:
  """Checks the arguments both decoders share and runs the compiled loop."""
  target.check(target_params, 'target')
  batch = validation.check_text(target, inputs, prompts, max_decode_len)
  validation.check_eos(eos_id)
  validation.check_lengths(max_decode_len, max_decode_steps, num_decodes, batch)
  validation.check_method(temperature, topk, topp, batch)
  validation.check_keys(rng, row_keys, batch)
  validation.check_flags(rescale_log_probs=rescale_log_probs, trace=trace)
  if row_keys is not None:
    keys = sampling.typed(jnp.asarray(row_keys))
  else:
    keys = sampling.row_keys(
        jax.random.PRNGKey(0) if rng is None else rng, batch
    )
  as_int32 = functools.partial(_as_array, dtype=np.int32)
  method = Method(
      temperature=_as_array(temperature, np.float32, [batch]),
      topk=as_int32(topk),
      topp=_as_array(topp, np.float32),
  )
  return loop.decode(
      target_params,
      draft_params,
      None if inputs is None else as_int32(inputs),
      None if prompts is None else as_int32(prompts),
      keys,
      method,
      as_int32(eos_id),
      None if max_decode_steps is None else as_int32(max_decode_steps),
      target=target,
      draft=draft,
      max_decode_len=max_decode_len,
      policy=policy,
      num_decodes=num_decodes,
      rescale_log_probs=bool(rescale_log_probs),
      verification=verification,
      lenience=lenience,
      trace=bool(trace),
  )


def speculative_decode(
    target: BlockDecoder,
    draft: Draft | BlockDecoder,
    target_params: PyTree,
    draft_params: PyTree,
    inputs: ArrayLike | None,
    *,
    prompts: ArrayLike | None = None,
    max_decode_len: int,
    gamma: int | Policy = 5,
    eos_id: ArrayLike = 1,
    rng: jax.Array | None = None,
    row_keys: jax.Array | None = None,
    temperature: ArrayLike = 1.0,
    topk: ArrayLike = 1,
    topp: ArrayLike = 0.0,
    num_decodes: int = 1,
    max_decode_steps: ArrayLike | None = None,
    rescale_log_probs: bool = True,
    verification: str = 'block',
    lenience: float = 1.0,
    trace: bool = False,
) -> DecodeResult:
  """Decodes with a draft; the output's law is the target's own.

  Leviathan et al. (2023), per row, compiled as one loop. Exact, unless
  `lenience` is set below its default of 1, which is LOSSY.
  Arguments, defaults and results are those of
  `t5x.decoding.temperature_sample`; note its default `topk=1`. At temperature 0
  the tokens are the target's greedy ones; above, they are distributed as the
  target's samples (not the same samples as another decoder's for one key).

  Args:
    target: the model whose law is sampled.
    draft: where drafts come from; a bare `BlockDecoder` is a model draft.
    target_params: the target's parameters (T5X tree for `T5`).
    draft_params: the draft's parameters.
    inputs: int32[batch, S] encoder inputs, 0 at padding; None for decoder-only.
    prompts: int32[batch, P], P <= max_decode_len: the text's forced tokens, 0
      where free, also between forced ones. Needed where `inputs` is None, which
      leaves the batch open. Zeros follow EOS even where tokens were forced.
    max_decode_len: length of the text, prompt included, in tokens.
    gamma: drafts per round, >= 1, or a policy that picks it: `gamma.Adaptive`.
    eos_id: not 0; a row ends at the first generated `eos_id`, with one outside
      the vocabulary only at its length.
    rng: random key, typed or raw; default PRNGKey(0), as in T5X.
    row_keys: key[batch] (or raw uint32[batch, 2]) instead of `rng`: a row's
      sample then depends on its own key, whoever shares the batch.
    temperature: float or float[batch]; at or under 1e-4 the row is greedy.
    topk: keep the k most likely tokens and their ties, 0 for no cutoff.
    topp: keep the fewest most likely tokens of at least this mass, 0 for no
      cutoff.
    num_decodes: decodes per input.
    max_decode_steps: most tokens to generate after the prompt; int or
      int[batch].
    rescale_log_probs: whether scores are those of the law after temperature and
      filters (greedy scores are then 0.0), or of the model's own.
    verification: 'token', the paper's Algorithm 1, or 'block', which accepts at
      least as many drafts on average at the same cost (arXiv 2403.10444); at
      temperature 0 the two are one.
    lenience: l of Appendix A.5, in (0, 1]. BELOW 1 THE OUTPUT IS NOT THE
      TARGET'S any more, neither in law nor at temperature 0, and the statistics
      say so (`exact`). A draft stands with probability min(1, p / (l q)), so
      that no token is emitted with more than 1 / l times the probability that
      the target gives it after the text before; likely tokens may be lost. A
      greedy row accepts x where p(x) >= l max(p), p being the model's law at
      temperature 1 without filters, and with `rescale_log_probs` still scores
      0.0. Asks for verification='token': for blocks no such bound is known.
      Compiled anew for each value.
    trace: whether to record the drafts of every round.

  Returns:
    Tokens, scores and statistics of each decode.

  Raises:
    ValueError: naming the argument and showing its value, before compiling.
  """
  draft = as_draft(draft)
  policy = as_policy(gamma)
  validation.check_draft(target, draft, draft_params)
  validation.check_verification(verification)
  lenience = validation.checked_lenience(lenience, verification)
  return _run(
      target,
      draft,
      target_params,
      draft_params,
      inputs,
      policy=policy,
      prompts=prompts,
      max_decode_len=max_decode_len,
      eos_id=eos_id,
      rng=rng,
      row_keys=row_keys,
      temperature=temperature,
      topk=topk,
      topp=topp,
      num_decodes=num_decodes,
      max_decode_steps=max_decode_steps,
      rescale_log_probs=rescale_log_probs,
      verification=verification,
      lenience=lenience,
      trace=trace,
  )


def autoregressive_decode(
    target: BlockDecoder,
    target_params: PyTree,
    inputs: ArrayLike | None,
    *,
    prompts: ArrayLike | None = None,
    max_decode_len: int,
    eos_id: ArrayLike = 1,
    rng: jax.Array | None = None,
    row_keys: jax.Array | None = None,
    temperature: ArrayLike = 1.0,
    topk: ArrayLike = 1,
    topp: ArrayLike = 0.0,
    num_decodes: int = 1,
    max_decode_steps: ArrayLike | None = None,
    rescale_log_probs: bool = True,
) -> DecodeResult:
  """Decodes with the target alone, one token per target call.

  The same loop without drafts: what `speculative_decode` is to be compared
  with. See there for the arguments, the result and the errors.

  Args:
    target: the model whose law is sampled.
    target_params: the target's parameters.
    inputs: int32[batch, S] encoder inputs, or None for decoder-only.
    prompts: int32[batch, P] forced tokens, 0 where free.
    max_decode_len: length of the text, prompt included, in tokens.
    eos_id: a row ends at the first generated `eos_id`.
    rng: random key, typed or raw; default PRNGKey(0).
    row_keys: key[batch] instead of `rng`.
    temperature: float or float[batch].
    topk: keep the k most likely tokens, 0 for no cutoff.
    topp: keep the fewest most likely tokens of this mass, 0 for no cutoff.
    num_decodes: decodes per input.
    max_decode_steps: most tokens to generate after the prompt.
    rescale_log_probs: whether scores include temperature and filters.

  Returns:
    Tokens, scores and statistics of each decode.

  Raises:
    ValueError: naming the argument and showing its value, before compiling.
  """
  return _run(
      target,
      NoDraft(),
      target_params,
      {},
      inputs,
      policy=Fixed(0),
      prompts=prompts,
      max_decode_len=max_decode_len,
      eos_id=eos_id,
      rng=rng,
      row_keys=row_keys,
      temperature=temperature,
      topk=topk,
      topp=topp,
      num_decodes=num_decodes,
      max_decode_steps=max_decode_steps,
      rescale_log_probs=rescale_log_probs,
      verification='token',
      lenience=1.0,
      trace=False,
  )
