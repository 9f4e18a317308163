# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The T5X parameter tree: its hyperparameters, names, shapes and first values.

Everything that knows how T5X lays parameters out lives here, so that the
network, the checkpoint reader and the error messages agree on one table.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from t5x_specdec import stacking

PyTree = Any
Path = tuple[str, ...]

NUM_BUCKETS = 32
MAX_DISTANCE = 128


@dataclasses.dataclass(frozen=True)
class T5Config:
  """The fields of T5X's `network.T5Config`, hashable and without T5X.

  `num_encoder_layers == 0` stands for T5X's decoder-only model
  (`examples/decoder_only`), whose tree has no encoder and keeps the embedding
  under `decoder`. With `scalable` it is the network of `examples/scalable_t5`
  (umT5), whose layers each have a relative bias of their own and whose
  attention kernels keep heads and head_dim apart.

  Attributes:
    vocab_size: rows of the embedding (T5's checkpoints pad it to 32128).
    dtype: activation dtype; logits are float32 whatever it is.
    emb_dim: model width.
    num_heads: attention heads.
    num_encoder_layers: encoder depth, 0 for a decoder-only model.
    num_decoder_layers: decoder depth.
    head_dim: width of one head; `num_heads * head_dim` need not be `emb_dim`.
    mlp_dim: feed-forward width.
    mlp_activations: one name ('relu',) or several that are multiplied
      ('gelu', 'linear').
    logits_via_embedding: True where the embedding doubles as the logits layer
      (T5 1.0), its output then scaled by `emb_dim ** -0.5`.
    float32_attention_logits: compute attention logits in float32.
    scalable: whether it is the network of `examples/scalable_t5`.
    scan_axis: the axis along which that one stacks its layers in every array
      (T5X: `param_scan_axis`, where `scan_layers`); None: layers stand apart.
  """

  vocab_size: int
  dtype: Any = 'float32'
  emb_dim: int = 512
  num_heads: int = 8
  num_encoder_layers: int = 6
  num_decoder_layers: int = 6
  head_dim: int = 64
  mlp_dim: int = 2048
  mlp_activations: tuple[str, ...] = ('relu',)
  logits_via_embedding: bool = False
  float32_attention_logits: bool = False
  scalable: bool = False
  scan_axis: int | None = None

  def __post_init__(self):
    object.__setattr__(self, 'dtype', jnp.dtype(self.dtype).name)
    object.__setattr__(self, 'mlp_activations', tuple(self.mlp_activations))
    if self.scalable and self.decoder_only:
      raise ValueError(
          'scalable_t5 has an encoder: num_encoder_layers must be at least 1'
      )
    # A layer norm's scale, once stacked, has two axes.
    axes = (None, 0, 1, -1, -2) if self.scalable else (None,)
    if self.scan_axis not in axes:
      raise ValueError(
          'layers are stacked by scalable_t5 only, along axis 0, 1, -1 or -2 '
          f'(param_scan_axis), got {self.scan_axis}'
      )

  @classmethod
  def of(cls, config: Any) -> T5Config:
    """Reads the fields of any T5X network config by name.

    Args:
      config: `T5Config` of `t5x.examples.t5.network` or of
        `t5x.examples.scalable_t5.network`,
        `t5x.examples.decoder_only.network.TransformerConfig` or an object with
        the same fields.

    Returns:
      The same hyperparameters as a `T5Config`.
    """
    if isinstance(config, cls):
      return config
    names = {field.name for field in dataclasses.fields(cls)}
    values = {n: getattr(config, n) for n in names if hasattr(config, n)}
    if hasattr(config, 'num_layers'):
      values['num_encoder_layers'] = 0
      values['num_decoder_layers'] = config.num_layers
    if hasattr(config, 'scan_layers'):
      values['scalable'] = True
      values['scan_axis'] = (
          config.param_scan_axis if config.scan_layers else None
      )
    return cls(**values)

  @property
  def decoder_only(self) -> bool:
    """Whether the model has no encoder."""
    return self.num_encoder_layers == 0


def embedding_path(config: T5Config) -> Path:
  """Path of the token embedding in the tree."""
  root = ('decoder',) if config.decoder_only else ()
  return (*root, 'token_embedder', 'embedding')


def mlp_inputs(config: T5Config) -> list[tuple[str, str]]:
  """Name and activation of the feed-forward's input matrices.

  Args:
    config: the network's hyperparameters.

  Returns:
    [('wi', 'relu')] or [('wi_0', 'gelu'), ('wi_1', 'linear')], for example.
  """
  activations = config.mlp_activations
  if len(activations) == 1:
    return [('wi', activations[0])]
  return [(f'wi_{i}', name) for i, name in enumerate(activations)]


def _attention_shapes(config: T5Config) -> dict[Path, tuple[int, ...]]:
  heads = (config.num_heads, config.head_dim)
  if not config.scalable:
    heads = (config.num_heads * config.head_dim,)
  shapes: dict[Path, tuple[int, ...]] = {
      (name, 'kernel'): (config.emb_dim, *heads)
      for name in ('query', 'key', 'value')
  }
  shapes['out', 'kernel'] = (*heads, config.emb_dim)
  return shapes


def _mlp_shapes(config: T5Config) -> dict[Path, tuple[int, ...]]:
  shapes = {
      (name, 'kernel'): (config.emb_dim, config.mlp_dim)
      for name, _ in mlp_inputs(config)
  }
  shapes['wo', 'kernel'] = (config.mlp_dim, config.emb_dim)
  return shapes


def _layer_shapes(config: T5Config, stack: str) -> dict[Path, tuple[int, ...]]:
  """Shapes in one layer of a stack, 'encoder' or 'decoder'."""
  attentions = ['self_attention'] if stack == 'decoder' else ['attention']
  if stack == 'decoder' and not config.decoder_only:
    attentions.append('encoder_decoder_attention')
  norms = {
      'attention': 'pre_attention_layer_norm',
      'self_attention': 'pre_self_attention_layer_norm',
      'encoder_decoder_attention': 'pre_cross_attention_layer_norm',
  }
  shapes: dict[Path, tuple[int, ...]] = {}
  if config.scalable:
    shapes['relpos_bias', 'rel_embedding'] = (config.num_heads, NUM_BUCKETS)
  for name in attentions:
    shapes[norms[name], 'scale'] = (config.emb_dim,)
    for tail, shape in _attention_shapes(config).items():
      shapes[name, *tail] = shape
  shapes['pre_mlp_layer_norm', 'scale'] = (config.emb_dim,)
  for tail, shape in _mlp_shapes(config).items():
    shapes['mlp', *tail] = shape
  return shapes


def _stack_shapes(
    config: T5Config, stack: str, depth: int
) -> dict[Path, tuple[int, ...]]:
  shapes: dict[Path, tuple[int, ...]] = {}
  if not config.scalable:
    bias = (stack, 'relpos_bias', 'rel_embedding')
    shapes[bias] = (config.num_heads, NUM_BUCKETS)
  shapes[stack, f'{stack}_norm', 'scale'] = (config.emb_dim,)
  layer = _layer_shapes(config, stack)
  if config.scan_axis is not None:
    for tail, shape in layer.items():
      shapes[stack, stack, *tail] = stacking.stacked_shape(
          shape, depth, config.scan_axis
      )
    return shapes
  for i in range(depth):
    for tail, shape in layer.items():
      shapes[stack, f'layers_{i}', *tail] = shape
  return shapes


def param_shapes(config: T5Config) -> dict[Path, tuple[int, ...]]:
  """Shape of every parameter, by its path in the T5X tree.

  Source: `network.py` of T5X's `examples/t5`, `examples/decoder_only` and
  `examples/scalable_t5`.

  Args:
    config: the network's hyperparameters.

  Returns:
    `{path: shape}`, for example
    `{('decoder', 'logits_dense', 'kernel'): (512, 32128), ...}`.
  """
  shapes = {embedding_path(config): (config.vocab_size, config.emb_dim)}
  if not config.decoder_only:
    shapes |= _stack_shapes(config, 'encoder', config.num_encoder_layers)
  shapes |= _stack_shapes(config, 'decoder', config.num_decoder_layers)
  if not config.logits_via_embedding:
    path = ('decoder', 'logits_dense', 'kernel')
    shapes[path] = (config.emb_dim, config.vocab_size)
  return shapes


def flatten(tree: PyTree, prefix: Path = ()) -> dict[Path, Any]:
  """Flattens nested mappings into `{path: leaf}`."""
  if not isinstance(tree, Mapping):
    return {prefix: tree}
  flat = {}
  for name, child in tree.items():
    flat |= flatten(child, (*prefix, str(name)))
  return flat


def unflatten(flat: Mapping[Path, Any]) -> PyTree:
  """The inverse of `flatten`."""
  tree: dict[str, Any] = {}
  for path, leaf in flat.items():
    node = tree
    for name in path[:-1]:
      node = node.setdefault(name, {})
    node[path[-1]] = leaf
  return tree


def embedding(params: PyTree, config: T5Config) -> Any:
  """The token embedding [vocab, emb_dim] of a parameter tree."""
  root = params['decoder'] if config.decoder_only else params
  return root['token_embedder']['embedding']


def init_params(config: T5Config, key: jax.Array) -> PyTree:
  """Draws a parameter tree with T5X's initializers.

  Args:
    config: the network's hyperparameters.
    key: a JAX random key.

  Returns:
    Nested dict of float32 arrays.
  """
  scaling = jax.nn.initializers.variance_scaling
  dense = scaling(1.0, 'fan_in', 'truncated_normal')
  relpos = scaling(1.0, 'fan_avg', 'uniform')
  flat = {}
  apart = dataclasses.replace(config, scan_axis=None)
  for i, (path, shape) in enumerate(param_shapes(apart).items()):
    leaf_key = jax.random.fold_in(key, i)
    module, leaf = path[-2:]
    if leaf == 'scale':
      flat[path] = jnp.ones(shape, jnp.float32)
    elif leaf == 'embedding':
      flat[path] = jax.random.normal(leaf_key, shape, jnp.float32)
    elif leaf == 'rel_embedding':
      flat[path] = relpos(leaf_key, shape, jnp.float32)
    elif module in ('query', 'key', 'value', 'out'):
      axes = range(len(shape))
      ins = len(shape) - 1 if module == 'out' else 1
      attention = scaling(1.0, 'fan_in', 'normal', axes[:ins], axes[ins:])
      # T5 folds the attention scale 1/sqrt(head_dim) into this initializer.
      scale = config.head_dim**-0.5 if module == 'query' else 1.0
      flat[path] = attention(leaf_key, shape, jnp.float32) * scale
    else:
      flat[path] = dense(leaf_key, shape, jnp.float32)
  params = unflatten(flat)
  if config.scan_axis is None:
    return params
  return stacking.stack(params, config.scan_axis)
