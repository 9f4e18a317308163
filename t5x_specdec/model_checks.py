# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a T5X model refuses when it is built, in one line each.

Gin binds much that a class never sees: options of a decode function that is not
the one in use, or fields of a draft that its scope took from the target. Here
they are looked up. Imports neither T5X nor seqio: `models` passes in theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
import hashlib
import inspect
from typing import Any

from etils import epath
import gin
import numpy as np

from t5x_specdec import decoding
from t5x_specdec import validation
from t5x_specdec.drafts import ngram
from t5x_specdec.network import T5
from t5x_specdec.pair_tree import DRAFT

# What a model itself passes to `decode_fn`.
OWN = (
    'target',
    'draft',
    'target_params',
    'draft_params',
    'inputs',
    'prompts',
    'max_decode_len',
    'num_decodes',
)

# Where what a model sets has another name than `decode_fn` has for it.
_INSTEAD = {'num_decodes': 'default_decoder_params'}


def bindings(configurable: Any) -> dict[str, Any]:
  """What gin binds for a function or class; nothing where gin is not used."""
  try:
    return gin.get_bindings(configurable)
  except ValueError:  # not among what gin files mention
    return {}


def configured(function: Callable[..., Any]) -> Callable[..., Any]:
  """The version of a function that gin's bindings apply to, if there are any.

  Args:
    function: what gin files name with an @.

  Returns:
    The function as gin has it, or itself.
  """
  return gin.get_configurable(function) if bindings(function) else function


def options(decode_fn: Callable[..., Any]) -> set[str]:
  """Names that `decoder_params` may give a decode function."""
  return set(inspect.signature(decode_fn).parameters) - set(OWN)


def _check_values(bound: Mapping[str, Any]) -> None:
  """Refuses what a decode would, which comes only after the restore.

  Each value beside such as leave it alone: a call may give others of its own.
  """
  values = {'temperature': 1.0, 'topk': 0, 'topp': 0.0, 'verification': 'token'}
  values |= {'lenience': 1.0, 'max_decode_steps': None, 'eos_id': 1}
  values |= bound
  sampling = values['temperature'], values['topk'], values['topp']
  batch = max(np.size(sampling[0]), np.size(values['max_decode_steps']))
  validation.check_method(*sampling, batch)
  validation.check_verification(values['verification'])
  validation.checked_lenience(values['lenience'], values['verification'])
  validation.check_lengths(2**31, values['max_decode_steps'], 1, batch)
  validation.check_eos(values['eos_id'])
  validation.check_flags(
      **{k: values[k] for k in ('rescale_log_probs', 'trace') if k in values}
  )


def check_decode_fn(
    decode_fn: Callable[..., Any],
    model: str,
    stock: Callable[..., Any],
    sets: Collection[str] = OWN,
) -> None:
  """Refuses what is no speculative decoder, and bindings without effect.

  Args:
    decode_fn: what the model is to decode with.
    model: the model's class.
    stock: T5X's `temperature_sample`, whose bindings would have no effect.
    sets: what the model passes itself, so that bindings would have none either.

  Raises:
    ValueError: saying what to bind, or naming an option and its value.
  """
  parameters = inspect.signature(decode_fn).parameters
  if not all(name in parameters for name in OWN):
    name = getattr(decode_fn, '__name__', repr(decode_fn))
    raise ValueError(
        f'decode_fn {name} cannot decode speculatively: bind models.{model}.'
        'decode_fn = @decoding.speculative_decode (from t5x_specdec import '
        'decoding), with temperature, topk and topp as its bindings'
    )
  ours = bindings(decoding.speculative_decode)
  for name in sorted(set(ours) & set(sets)):
    raise ValueError(
        f'decoding.speculative_decode.{name} is bound, but the model itself '
        f'sets it: bind models.{model}.{_INSTEAD.get(name, name)} instead'
    )
  _check_values(ours)
  lost = bindings(stock)
  for name in sorted(set(lost) - set(ours)):
    if name not in parameters:
      raise ValueError(
          f'decoding.temperature_sample.{name} is bound, which speculative '
          'decoding does not support: leave it unbound'
      )
    raise ValueError(
        f'decoding.temperature_sample.{name} = {lost[name]!r} is bound, but '
        'decoding is speculative and does not use it: bind '
        f'decoding.speculative_decode.{name} = {lost[name]!r} (or another '
        'value) as well'
    )


def check_stock_decode_fn(
    bound: Callable[..., Any], beam_search: Callable[..., Any]
) -> None:
  """Refuses a target's gin file that asks for beam search by name.

  Args:
    bound: the decode function that gin binds for T5X's own model class.
    beam_search: T5X's.

  Raises:
    ValueError: saying what to bind.
  """
  if inspect.unwrap(bound) is beam_search:
    raise ValueError(
        "the target's gin binds EncoderDecoderModel.decode_fn = "
        '@decoding.beam_search, which speculative decoding does not replace: '
        'bind EncoderDecoderModel.decode_fn = @decoding.temperature_sample '
        '(from t5x import decoding) if sampling is what you want'
    )


def check_draft_bindings(config: Any, draft_config: Any) -> None:
  """Refuses a draft that took fields from the target: gin's scopes nest.

  Args:
    config: the target's network config.
    draft_config: the draft's.

  Raises:
    ValueError: naming the fields that the scope `draft` leaves out.
  """
  kind = type(draft_config)
  inherited = set(bindings(kind))
  if not inherited or kind is not type(config):
    return
  with gin.config_scope([DRAFT]):  # and not MODEL, where gin builds it
    own = gin.get_bindings(kind, inherit_scopes=False)
  missing = sorted(inherited - set(own) - {'dropout_rate', 'remat_policy'})
  if missing:
    raise ValueError(
        f'the draft would take {", ".join(missing)} from the target: bind '
        f'{", ".join(f"draft/network.{kind.__name__}.{n}" for n in missing)}'
    )


def _same_vocabulary(target: Any, draft: Any) -> bool:
  """Whether two vocabularies mean the same by every id, wherever they lie."""
  if (target.vocab_size, target.eos_id) != (draft.vocab_size, draft.eos_id):
    return False
  if hasattr(target, 'sp_model') and hasattr(draft, 'sp_model'):
    return target.sp_model == draft.sp_model
  return target == draft


def check_no_checkpoint(draft: Any) -> None:
  """Refuses a draft's checkpoint beside a draft that reads none.

  Args:
    draft: the source of drafts in use.

  Raises:
    ValueError: gin sets DRAFT_CHECKPOINT_PATH.
  """
  try:
    path = gin.query_parameter('%DRAFT_CHECKPOINT_PATH')
  except ValueError:  # nobody sets it
    return
  if path is not None:
    raise ValueError(
        f'DRAFT_CHECKPOINT_PATH = {path!r} is set, but the draft is {draft}, '
        'which reads none: leave it out, or give t5x_specdec/configs/runs/'
        'infer_speculative.gin'
    )


def check_table(table: ngram.Table, vocabulary: Any) -> None:
  """Refuses n-grams of another vocabulary.

  Args:
    table: what was counted.
    vocabulary: the target's output vocabulary, a `seqio.Vocabulary`.

  Raises:
    ValueError: naming both, or where the vocabulary has no file to compare.
  """
  path = getattr(vocabulary, 'sentencepiece_model_file', None)
  if path is None:
    raise ValueError(
        'n-grams are of one SentencePiece model, but the target has '
        f'{vocabulary}'
    )
  found = hashlib.sha256(epath.Path(path).read_bytes()).hexdigest()
  if found != table.fingerprint:
    raise ValueError(
        'target and draft must share one vocabulary, but the n-grams are of '
        f'one with SHA-256 {table.fingerprint[:12]}... and {path} has '
        f'{found[:12]}...'
    )


def check_pair(
    target: T5, draft: Any, vocabulary: Any, draft_vocabulary: Any | None
) -> None:
  """Refuses a draft of another vocabulary.

  Args:
    target: the target's network.
    draft: the source of drafts, a `Draft`.
    vocabulary: the target's output vocabulary, a `seqio.Vocabulary`.
    draft_vocabulary: the draft's, None where it is said to be the same.

  Raises:
    ValueError: naming both.
  """
  if draft.vocab_size not in (None, target.vocab_size):
    raise ValueError(
        'target and draft must share one vocabulary: vocab_size of the target '
        f'is {target.vocab_size}, of the draft {draft.vocab_size}'
    )
  if draft_vocabulary is None or draft_vocabulary is vocabulary:
    return
  if not _same_vocabulary(vocabulary, draft_vocabulary):
    described = [
        f'{words} ({words.vocab_size} ids, EOS {words.eos_id})'
        for words in (vocabulary, draft_vocabulary)
    ]
    raise ValueError(
        'target and draft must share one vocabulary, but the '
        f"target's {described[0]} and the draft's {described[1]} differ"
    )
