# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Small random models, and stock T5X decoding of the same parameters.

The upper half needs no T5X. `Stock` at the end imports it when it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
import contextlib
import dataclasses
import functools
import json
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_specdec import loop
from t5x_specdec import parameters
from t5x_specdec import stacking
from t5x_specdec.drafts import as_draft
from t5x_specdec.drafts import NoDraft
from t5x_specdec.gamma import Fixed
from t5x_specdec.network import T5
from t5x_specdec.parameters import PyTree
from t5x_specdec.parameters import T5Config
from t5x_specdec.sampling import Method

# Heads, head_dim, layers and lengths all differ, so that no two axes of a
# cache can be taken for each other.
_SMALL = T5Config(
    vocab_size=37,
    emb_dim=16,
    num_heads=3,
    num_encoder_layers=1,
    num_decoder_layers=2,
    head_dim=5,
    mlp_dim=24,
)
_GATED = ('gelu', 'linear')
CONFIGS = {
    't5_1_0': dataclasses.replace(
        _SMALL,
        num_encoder_layers=2,
        num_decoder_layers=1,
        logits_via_embedding=True,
    ),
    't5_1_1': dataclasses.replace(_SMALL, mlp_activations=_GATED),
    'decoder_only': dataclasses.replace(
        _SMALL, num_encoder_layers=0, mlp_activations=_GATED
    ),
}
# Seeds whose models write varied texts, id 0 among them.
SEEDS = {'t5_1_0': 199, 't5_1_1': 91, 'decoder_only': 35}
# An id that no model emits: decoding then never ends early.
NO_EOS = 10_000
GOLDEN = pathlib.Path(__file__).parent / 'golden'


# Whether the environment asks for it, as `scripts/mutants.py` does.
_ALWAYS_QUICK = jax.config.read('jax_disable_most_optimizations')


@contextlib.contextmanager
def quick_compilation(quick: bool = True) -> Iterator[None]:
  """Turns XLA's optimizations off: it then compiles twice as fast.

  So it is in every test but those marked `optimized` or `t5x`.

  Args:
    quick: False for a test of what users run.
  """
  before = jax.config.read('jax_disable_most_optimizations')
  jax.config.update('jax_disable_most_optimizations', quick or _ALWAYS_QUICK)
  try:
    yield
  finally:
    jax.config.update('jax_disable_most_optimizations', before)


def some_slow(daily: Collection[Any], rows: Iterable[Any]) -> list[Any]:
  """Parameters of a test, of which `make check` takes some.

  Args:
    daily: those that are not slow.
    rows: all, each a value or a tuple of them.

  Returns:
    What `pytest.mark.parametrize` takes.
  """
  return [
      pytest.param(
          *(row if isinstance(row, tuple) else [row]),
          marks=() if row in daily else pytest.mark.slow,
      )
      for row in rows
  ]


def damage(path: pathlib.Path, rng: np.random.Generator) -> None:
  """Flips a bit of a file, or cuts it."""
  data = bytearray(path.read_bytes())
  at = int(rng.integers(len(data)))
  if rng.random() < 0.7:
    data[at] ^= 1 << int(rng.integers(8))
  else:
    del data[at:]
  path.write_bytes(data)


def random_params(config: T5Config, seed: int) -> PyTree:
  """Parameters whose greedy texts vary, made by NumPy alone.

  With T5's initializers a small tied model repeats its last token for ever;
  here attention and feed-forward speak louder than the embedding.

  Args:
    config: the network's hyperparameters.
    seed: of NumPy's default generator.

  Returns:
    T5X parameter tree of float32 arrays.
  """
  rng = np.random.default_rng(seed)
  flat = {}
  apart = dataclasses.replace(config, scan_axis=None)
  for path, shape in parameters.param_shapes(apart).items():
    module, leaf = path[-2:]
    noise = rng.standard_normal(shape, np.float32)
    if leaf == 'scale':
      gain = np.float32(2 if module == 'decoder_norm' else 1)
      flat[path] = gain * (1 + np.float32(0.2) * noise)
    elif leaf == 'rel_embedding':
      flat[path] = 2 * noise
    elif leaf == 'embedding':
      flat[path] = np.float32(0.3) * noise
      flat[path][0] *= 1.5  # id 0 is to be emitted, too
    else:
      gain = {'query': 0.4, 'out': 2.0, 'wo': 2.0}.get(module, 1.0)
      gain *= 0.5 if 'encoder_decoder_attention' in path else 1.0
      fan_in = math.prod(shape[:-1]) if module == 'out' else shape[0]
      flat[path] = np.float32(gain * fan_in**-0.5) * noise
      if module == 'logits_dense':
        flat[path][:, 0] *= 1.5
  params = parameters.unflatten(flat)
  if config.scan_axis is None:
    return params
  return jax.tree.map(np.asarray, stacking.stack(params, config.scan_axis))


def perturbed(params: PyTree, seed: int, amount: float) -> PyTree:
  """Another model that partly agrees with this one.

  Args:
    params: T5X parameter tree of NumPy arrays.
    seed: of the noise.
    amount: standard deviation of the noise, as a share of each leaf's own.

  Returns:
    A tree of the same shapes.
  """
  rng = np.random.default_rng(seed)

  def add_noise(leaf):
    scale = np.float32(amount * np.sqrt(np.mean(np.square(leaf))))
    return leaf + scale * rng.standard_normal(leaf.shape, np.float32)

  return jax.tree.map(add_noise, params)


def random_inputs(
    rng: np.random.Generator, batch: int, length: int, vocab_size: int
) -> np.ndarray:
  """Encoder inputs of ragged lengths from 1 to `length`, int32."""
  ids = rng.integers(1, vocab_size, [batch, length], dtype=np.int32)
  lengths = rng.integers(1, length + 1, [batch, 1])
  return np.where(np.arange(length) < lengths, ids, 0)


def random_prompts(
    rng: np.random.Generator,
    batch: int,
    length: int,
    vocab_size: int,
    holes: bool = False,
) -> np.ndarray:
  """Prompts of ragged lengths from 0 to `length`, int32.

  Args:
    rng: source of everything random.
    batch: number of prompts.
    length: of the longest.
    vocab_size: ids are below it.
    holes: whether to free single tokens inside the prompts too.

  Returns:
    int32[batch, length], 0 where free.
  """
  ids = rng.integers(1, vocab_size, [batch, length], dtype=np.int32)
  lengths = rng.integers(0, length + 1, [batch, 1])
  if holes:
    ids *= rng.random([batch, length]) < 0.6
  return np.where(np.arange(length) < lengths, ids, 0)


@dataclasses.dataclass(frozen=True)
class Case:
  """A batch that stock T5X decoded greedily; rows do not depend on each other.

  Attributes:
    max_decode_len: length of the text.
    eos_id: id of EOS.
    inputs: int32[rows, S]; None for decoder-only.
    prompts: int32[rows, P].
    max_decode_steps: int32[rows], or int32[] for all of them.
    tokens: int32[rows, max_decode_len].
    scores: float32[rows], of the model's own law (`rescale_log_probs=False`).
    rescaled: float32[rows], with `rescale_log_probs=True`; None in most cases.
  """

  max_decode_len: int
  eos_id: int
  inputs: np.ndarray | None
  prompts: np.ndarray
  max_decode_steps: np.ndarray
  tokens: np.ndarray
  scores: np.ndarray
  rescaled: np.ndarray | None = None

  def __len__(self):
    return len(self.tokens)

  @property
  def steps(self) -> np.ndarray:
    """Most tokens to generate, int32[rows]."""
    return np.broadcast_to(self.max_decode_steps, [len(self)])

  @property
  def forced(self) -> np.ndarray:
    """Which tokens the prompt fixes, bool[rows, length]."""
    free = self.max_decode_len - self.prompts.shape[1]
    return np.pad(self.prompts != 0, ((0, 0), (0, free)))

  @property
  def within(self) -> np.ndarray:
    """Which tokens stand before the end of their row, bool[rows, length]."""
    limit = np.minimum(self.forced.sum(1) + self.steps, self.max_decode_len)
    eos = (self.tokens == self.eos_id) & ~self.forced
    after_eos = np.cumsum(eos, axis=1) - eos > 0
    return ~after_eos & (np.arange(self.max_decode_len) < limit[:, None])

  @property
  def generated(self) -> np.ndarray:
    """Which tokens were generated and not forced, bool[rows, length]."""
    return self.within & ~self.forced

  def take(self, rows: np.ndarray) -> Case:
    """The case of these rows only."""
    changes = {}
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if isinstance(value, np.ndarray) and value.ndim:
        changes[field.name] = value[rows]
    return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Blocks:
  """Logits of stock T5X's cached steps at offsets of each row's own.

  Attributes:
    inputs: int32[rows, S]; None for decoder-only.
    tokens: int32[rows, L] decoder inputs, id 0 among them.
    offsets: int32[rows].
    logits: float32[rows, K, vocab], of the K positions from each offset.
  """

  inputs: np.ndarray | None
  tokens: np.ndarray
  offsets: np.ndarray
  logits: np.ndarray


@dataclasses.dataclass(frozen=True)
class Golden:
  """What stock T5X makes of one model.

  Attributes:
    config: the network's hyperparameters.
    seed: of `random_params`.
    cases: decoded batches by name.
    blocks: logits at far offsets.
  """

  config: T5Config
  seed: int
  cases: dict[str, Case]
  blocks: Blocks

  @functools.cached_property
  def params(self) -> PyTree:
    """The model's parameters."""
    return random_params(self.config, self.seed)

  def save(self, path: pathlib.Path) -> None:
    """Writes everything but the parameters into an npz."""
    meta = {'config': dataclasses.asdict(self.config), 'seed': self.seed}
    arrays = {'meta': np.array(json.dumps(meta))}
    for name, group in {**self.cases, 'blocks': self.blocks}.items():
      for field in dataclasses.fields(group):
        value = getattr(group, field.name)
        if value is not None:
          value = np.asarray(value)
          small = value.dtype == np.int32
          arrays[f'{name}/{field.name}'] = value.astype(
              np.int16 if small else value.dtype
          )
    np.savez_compressed(path, **arrays)

  @classmethod
  def load(cls, name: str) -> Golden:
    """Reads `tests/golden/{name}.npz`."""
    groups: dict[str, dict] = {}
    with np.load(GOLDEN / f'{name}.npz') as file:
      meta = json.loads(str(file['meta']))
      for key in file.files:
        group, _, field = key.partition('/')
        if not field:
          continue
        value = file[key]
        if field in ('max_decode_len', 'eos_id'):
          value = int(value)
        elif value.dtype == np.int16:
          value = value.astype(np.int32)
        groups.setdefault(group, {'inputs': None})[field] = value
    blocks = Blocks(**groups.pop('blocks'))
    cases = {name: Case(**fields) for name, fields in groups.items()}
    return cls(T5Config(**meta['config']), meta['seed'], cases, blocks)



def compile_decode(
    target: T5Config,
    draft: T5Config | None,
    *,
    batch: int,
    input_len: int,
    text_len: int,
    gamma: int,
) -> Any:
  """The whole decode, compiled for shapes; plain decoding without a draft."""
  spec: Any = jax.ShapeDtypeStruct

  def params(config):
    return jax.eval_shape(
        lambda: parameters.init_params(config, jax.random.key(0))
    )

  return loop.decode.lower(
      params(target),
      {} if draft is None else params(draft),
      spec([batch, input_len], jnp.int32),
      None,
      jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch)),
      Method(
          temperature=spec([batch], jnp.float32),
          topk=spec([], jnp.int32),
          topp=spec([], jnp.float32),
      ),
      spec([], jnp.int32),
      None,
      target=T5(target),
      draft=NoDraft() if draft is None else as_draft(T5(draft)),
      max_decode_len=text_len,
      policy=Fixed(gamma),
      num_decodes=1,
      rescale_log_probs=True,
      verification='block',
      lenience=1.0,
      trace=False,
  ).compile()


class Stock:
  """Stock T5X over the same parameters; needs T5X.

  Decodes as users do: `predict_batch_with_aux` of T5X's model class around
  T5X's network, with `t5x.decoding.temperature_sample` bound as `decode_fn`.

  Attributes:
    config: the network's hyperparameters.
    module: T5X's flax module.
    model: T5X's model class around it.
  """

  def __init__(self, config: T5Config):
    # pylint: disable=g-import-not-at-top
    import seqio
    from t5x import decoding
    from t5x import models
    from t5x.examples.decoder_only import network as decoder_only
    from t5x.examples.scalable_t5 import network as scalable_t5
    from t5x.examples.t5 import network as t5

    fields = dataclasses.asdict(config)
    fields['dtype'] = jnp.dtype(config.dtype)
    network, axis = t5, fields.pop('scan_axis')
    if fields.pop('scalable'):
      network = scalable_t5
      del fields['float32_attention_logits']
      fields['scan_layers'] = axis is not None
      fields['param_scan_axis'] = 1 if axis is None else axis
    # Prompts may hold the EOS that decoding stops at; the model class strips
    # its vocabulary's own from them.
    vocabulary = seqio.PassThroughVocabulary(config.vocab_size, eos_id=NO_EOS)
    self.config = config
    self._sample = decoding.temperature_sample
    common = {'optimizer_def': None, 'decode_fn': self._sample}
    if config.decoder_only:
      fields['num_layers'] = fields.pop('num_decoder_layers')
      del fields['num_encoder_layers'], fields['float32_attention_logits']
      self.module = decoder_only.DecoderWrapper(
          decoder_only.TransformerConfig(**fields)
      )
      self.model = models.DecoderOnlyModel(
          self.module, vocabulary=vocabulary, **common
      )
    else:
      self.module = network.Transformer(network.T5Config(**fields))
      self.model = models.EncoderDecoderModel(
          self.module,
          input_vocabulary=vocabulary,
          output_vocabulary=vocabulary,
          **common,
      )

  def decode(
      self,
      params: PyTree,
      inputs: np.ndarray | None,
      prompts: np.ndarray | None,
      max_decode_len: int,
      *,
      num_decodes: int = 1,
      rescale_log_probs: bool = True,
      topp: float = 0.0,
      **decoder_params,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Decodes a batch; arguments as those of `autoregressive_decode`.

    Args:
      params: T5X parameter tree.
      inputs: int32[batch, S] or None.
      prompts: int32[batch, P] or None, P < max_decode_len: T5X's prompt buffer
        starts with the start token. A decoder-only model is prefilled with
        prompts without holes; with holes it is driven without its model class.
      max_decode_len: length of the text.
      num_decodes: decodes per input.
      rescale_log_probs: as T5X's.
      topp: as T5X's; static, since T5X masks all logits for a traced 0.0.
      **decoder_params: traced arguments of `temperature_sample`.

    Returns:
      int32[batch, num_decodes, max_decode_len] and float32[batch, num_decodes].
    """
    batch = len(inputs if inputs is not None else prompts)
    buffer = np.zeros([batch, max_decode_len], np.int32)
    if prompts is not None:
      buffer[:, 1 : prompts.shape[1] + 1] = prompts
    tokens, scores = self._decode(
        params,
        inputs,
        buffer,
        decoder_params,
        num_decodes=num_decodes,
        rescale_log_probs=rescale_log_probs,
        topp=topp,
        holes=self.config.decoder_only and has_holes(buffer[:, 1:]),
    )
    return np.asarray(tokens), np.asarray(scores)

  @functools.partial(
      jax.jit,
      static_argnames=(
          'self', 'num_decodes', 'rescale_log_probs', 'topp', 'holes'
      ),
  )
  def _decode(
      self, params, inputs, buffer, decoder_params, *, num_decodes, holes,
      **static
  ):
    decoder_params = decoder_params | static
    if not self.config.decoder_only:
      tokens, aux = self.model.predict_batch_with_aux(
          params,
          {'encoder_input_tokens': inputs, 'decoder_input_tokens': buffer},
          decoder_params=decoder_params,
          return_all_decodes=True,
          num_decodes=num_decodes,
          prompt_with_targets=True,
      )
      return tokens, aux['scores']
    if holes:
      return self._sample(
          inputs=buffer,
          cache=self._cache(params, None, buffer),
          tokens_to_logits=functools.partial(
              self.model._compute_logits_from_slice,
              params=params,
              max_decode_length=buffer.shape[1],
          ),
          num_decodes=num_decodes,
          **decoder_params,
      )
    causal = (buffer != 0).at[:, 0].set(True)
    # `remove_prefix` in the model class takes the prompt away: put it back.
    tokens, aux = self.model.predict_batch_with_aux(
        params,
        {
            'decoder_input_tokens': buffer,
            'decoder_causal_attention': causal.astype(jnp.int32),
        },
        decoder_params=decoder_params,
        return_all_decodes=True,
        num_decodes=num_decodes,
    )
    prompt = jnp.pad(buffer[:, 1:], ((0, 0), (0, 1)))
    count = jnp.sum(prompt != 0, axis=1)
    tokens = jax.vmap(lambda x, n: jnp.roll(x, n, axis=-1))(tokens, count)
    return tokens + prompt[:, None], aux['scores']

  def _cache(self, params, inputs, tokens):
    """T5X's empty cache for texts as long as `tokens`."""
    ones = [jnp.ones_like(x) for x in (inputs, tokens, tokens) if x is not None]
    _, variables = self.module.apply(
        {'params': params},
        *ones,
        decode=True,
        enable_dropout=False,
        mutable=['cache'],
    )
    return variables['cache']

  @functools.partial(jax.jit, static_argnames='self')
  def cached_logits(
      self, params: PyTree, inputs: jax.Array | None, tokens: jax.Array
  ) -> jax.Array:
    """Logits of T5X's decoding, one cached position after the other.

    Args:
      params: T5X parameter tree.
      inputs: int32[batch, S] or None.
      tokens: int32[batch, L] decoder inputs, the text shifted right.

    Returns:
      float32[batch, L, vocab_size].
    """
    cache = self._cache(params, inputs, tokens)
    extra = {}
    if not self.config.decoder_only:
      encoded = self.module.apply(
          {'params': params},
          inputs,
          enable_dropout=False,
          method=self.module.encode,
      )
      extra = {'encoded_inputs': encoded, 'raw_inputs': inputs}

    def step(cache, token):
      state = _DecodingState(cur_token=token[:, None], cache=cache)
      logits, cache = self.model._compute_logits_from_slice(
          state, params, max_decode_length=tokens.shape[1], **extra
      )
      return cache, logits

    _, logits = jax.lax.scan(step, cache, tokens.T)
    return logits.swapaxes(0, 1)

  @functools.partial(jax.jit, static_argnames='self')
  def training_logits(
      self,
      params: PyTree,
      inputs: jax.Array | None,
      tokens: jax.Array,
      targets: jax.Array,
  ) -> jax.Array:
    """Logits of T5X's training path, which masks targets that are 0.

    Args:
      params: T5X parameter tree.
      inputs: int32[batch, S] or None.
      tokens: int32[batch, L] decoder inputs.
      targets: int32[batch, L] decoder targets.

    Returns:
      float32[batch, L, vocab_size].
    """
    batch = {
        'encoder_input_tokens': inputs,
        'decoder_input_tokens': tokens,
        'decoder_target_tokens': targets,
    }
    return self.model._compute_logits(params=params, batch=batch)


@dataclasses.dataclass(frozen=True)
class _DecodingState:
  """The two fields of T5X's `DecodingState` that its models read."""

  cur_token: jax.Array
  cache: PyTree


@functools.cache
def stock(config: T5Config) -> Stock:
  """One `Stock` per config, so that its compilations are shared."""
  return Stock(config)


def has_holes(prompts: np.ndarray) -> bool:
  """Whether any prompt has a free slot before a fixed one."""
  fixed = np.asarray(prompts) != 0
  return bool(np.any(fixed[:, 1:] & ~fixed[:, :-1]))
