# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Worker: Hugging Face transformers over the same weights.

Cases: 'alone', `generate` with the target, and 'assisted:GAMMA', its assisted
generation with the draft and GAMMA tokens drafted each time, as in ours.
Imports no JAX: see `alone.py`.
"""

from __future__ import annotations

import importlib.metadata
import time
from typing import Any

import numpy as np

from t5x_specdec.benchmarks import protocol
from t5x_specdec.benchmarks.protocol import Array
from t5x_specdec.benchmarks.protocol import Job

_SUBLAYERS = {
    'attention': (0, 'SelfAttention'),
    'self_attention': (0, 'SelfAttention'),
    'encoder_decoder_attention': (1, 'EncDecAttention'),
}
_NORMS = {
    'pre_attention_layer_norm': 0,
    'pre_self_attention_layer_norm': 0,
    'pre_cross_attention_layer_norm': 1,
}
_PROJECTIONS = {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}


def their_names(path: list[str]) -> list[str]:
  """Names of a T5X parameter in transformers' T5, the tied ones included."""
  if path[-1] == 'embedding':
    return [
        'shared.weight',
        'encoder.embed_tokens.weight',
        'decoder.embed_tokens.weight',
    ]
  if path[:2] == ['decoder', 'logits_dense']:
    return ['lm_head.weight']
  stack, module = path[:2]
  if module == 'relpos_bias':
    bias = 'layer.0.SelfAttention.relative_attention_bias'
    return [f'{stack}.block.0.{bias}.weight']
  if module in ('encoder_norm', 'decoder_norm'):
    return [f'{stack}.final_layer_norm.weight']
  layer = f'{stack}.block.{module.removeprefix("layers_")}.layer'
  feed_forward = 1 if stack == 'encoder' else 2
  part = path[2]
  if part == 'mlp':
    return [f'{layer}.{feed_forward}.DenseReluDense.{path[3]}.weight']
  if part in _SUBLAYERS:
    number, name = _SUBLAYERS[part]
    return [f'{layer}.{number}.{name}.{_PROJECTIONS[path[3]]}.weight']
  return [f'{layer}.{_NORMS.get(part, feed_forward)}.layer_norm.weight']


class HFWorker:
  """Times transformers' `generate`; methods are the operations."""

  def start(self, job: dict[str, Any]) -> dict[str, Any]:
    """Takes the job, imports torch and makes models without weights."""
    # pylint: disable=g-import-not-at-top
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    self._torch = torch
    self._device = 'cuda' if torch.cuda.is_available() else 'cpu'
    self.job = Job(**job)
    self._configs = {'target': self.job.target, 'draft': self.job.draft}
    with torch.device('meta'):
      self._models = {
          name: transformers.T5ForConditionalGeneration(
              self._config(transformers, fields)
          ).eval()
          for name, fields in self._configs.items()
      }
    for name, model in self._models.items():
      # `generate` makes a cache of so many layers for the decoder; the stacks
      # have copies of the config.
      model.config.num_layers = self._configs[name]['num_decoder_layers']
    packages = ('torch', 'transformers')
    return {
        'device': self._device,
        'versions': {p: importlib.metadata.version(p) for p in packages},
        'threads': torch.get_num_threads(),
    }

  def _config(self, transformers, fields: dict[str, Any]):
    """The same network as these fields of a `T5Config`, in their terms."""
    gated = list(fields['mlp_activations']) == ['gelu', 'linear']
    if not gated and list(fields['mlp_activations']) != ['relu']:
      raise ValueError(f'mlp_activations {fields["mlp_activations"]}')
    config = transformers.T5Config(
        vocab_size=fields['vocab_size'],
        d_model=fields['emb_dim'],
        d_kv=fields['head_dim'],
        d_ff=fields['mlp_dim'],
        num_layers=fields['num_encoder_layers'],
        num_decoder_layers=fields['num_decoder_layers'],
        num_heads=fields['num_heads'],
        dropout_rate=0.0,
        feed_forward_proj='gated-gelu' if gated else 'relu',
        tie_word_embeddings=fields['logits_via_embedding'],
        pad_token_id=0,
        eos_token_id=self.job.eos_id,
        decoder_start_token_id=0,
    )
    return config

  def leaf(self, model: str, path: list[str], array: Array) -> None:
    """Takes one parameter, in place of an earlier one of that name."""
    torch = self._torch
    if array.dtype == 'bfloat16':
      x = torch.from_numpy(array.data.view(np.int16)).view(torch.bfloat16)
    else:
      x = torch.from_numpy(array.numpy())
    x = x.reshape(array.shape)
    if path[-1] in ('kernel', 'rel_embedding'):
      x = x.T
    x = x.clone(memory_format=torch.contiguous_format).to(self._device)
    weight = torch.nn.Parameter(x, requires_grad=False)
    names = their_names(path)
    if path[-1] == 'embedding' and self._configs[model]['logits_via_embedding']:
      names.append('lm_head.weight')
    for name in names:
      module, _, leaf = name.rpartition('.')
      owner = self._models[model].get_submodule(module)
      if getattr(owner, leaf).shape != weight.shape:
        raise ValueError(
            f'{"/".join(path)} has shape {tuple(weight.shape)}, {name} '
            f'{tuple(getattr(owner, leaf).shape)}'
        )
      setattr(owner, leaf, weight)

  def logits(self, model: str, width: int, inputs: list, tokens: list):
    """Teacher-forced logits of one call; `width` has no meaning."""
    del width
    torch = self._torch
    ids = torch.tensor(inputs, device=self._device)
    with torch.inference_mode():
      logits = self._models[model](
          input_ids=ids,
          attention_mask=(ids != 0).long(),
          decoder_input_ids=torch.tensor(tokens, device=self._device),
      ).logits
    return {}, Array.of(logits.float().cpu().numpy())

  def ready(self) -> None:
    """Raises ValueError where a parameter has not come."""
    for model, module in self._models.items():
      absent = [n for n, p in module.named_parameters() if p.is_meta]
      if absent:
        raise ValueError(f'{model} was given no {absent[0]}')

  def prepare(self, case: str) -> dict[str, Any]:
    """Runs the case once, to warm up."""
    return {'seconds': self.run(case)['seconds']}

  def run(self, case: str) -> dict[str, Any]:
    """Decodes all batches once and times it."""
    torch, job = self._torch, self.job
    arguments: dict[str, Any] = {'max_new_tokens': job.text_len}
    if job.temperature > 0:
      torch.manual_seed(job.seed)
      arguments |= {'do_sample': True, 'temperature': job.temperature}
      arguments |= {'top_k': job.topk, 'top_p': job.topp or 1.0}
    else:
      arguments |= {'do_sample': False}
    name, _, gamma = case.partition(':')
    if name == 'assisted':
      draft = self._models['draft']
      draft.generation_config.num_assistant_tokens = int(gamma)
      draft.generation_config.num_assistant_tokens_schedule = 'constant'
      # 0: drafting never stops early for want of confidence.
      draft.generation_config.assistant_confidence_threshold = 0.0
      arguments['assistant_model'] = draft
    start = time.perf_counter()
    results = [self._generate(*b, **arguments) for b in job.batches()]
    seconds = time.perf_counter() - start
    return {'seconds': seconds, 'tokens': results}

  def _generate(self, inputs, prompts, **arguments) -> list:
    """Texts of one batch, padded to `text_len`."""
    torch = self._torch
    ids = torch.from_numpy(inputs).long().to(self._device)
    if prompts is not None:
      start = np.pad(prompts, ((0, 0), (1, 0)))
      arguments['decoder_input_ids'] = torch.from_numpy(start).long().to(
          self._device
      )
      arguments['max_new_tokens'] -= prompts.shape[1]
    with torch.inference_mode():
      out = self._models['target'].generate(
          input_ids=ids, attention_mask=(ids != 0).long(), **arguments
      )
    text = out[:, 1:].cpu().numpy()
    missing = self.job.text_len - text.shape[1]
    return np.pad(text, ((0, 0), (0, missing))).tolist()

  def finish(self) -> dict[str, Any]:
    """Peak memory in bytes."""
    return {'peak_bytes': protocol.peak_bytes(), 'peak_device_bytes': None}


def main() -> None:
  """Serves the parent."""
  protocol.serve(HFWorker)


if __name__ == '__main__':
  main()
