# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
r"""Prints the memory that decoding with a pair of T5X models takes per device.

From shapes alone, without weights or an accelerator. T5 1.1 XXL with Small in
bfloat16 at T5's longest texts, one at a time, on one device and on four:

  python scripts/pair_memory.py
  python scripts/pair_memory.py --mesh 1x4

With --compile the decode is compiled and XLA says what else it allocates: for
virtual CPU devices, or, where the package `libtpu` is installed, for a TPU,
which need not be there:

  python scripts/pair_memory.py --compile --topology v4:2x2x1 --mesh 1x4

A CPU has no bfloat16 products: for it XLA holds float32 copies of the weights,
so only what is compiled for an accelerator tells about one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import functools
import math
import os
import re
import sys
from typing import Any

from flax.linen import partitioning as flax_partitioning
import gin
import jax
from jax.experimental import topologies
import jax.numpy as jnp
import numpy as np
import t5x
from t5x import partitioning
from t5x import utils
from t5x.infer import infer  # the run file configures it, as in infer.py

from t5x_specdec.cli import exits
from t5x_specdec.gamma import as_policy
from t5x_specdec.network import T5
from t5x_specdec.pair_tree import split_draft

_RUN_FILE = 't5x_specdec/configs/runs/infer_speculative.gin'
_PAIR = 't5x_specdec/configs/models/t5_1_1_xxl_small.gin'
# What a run needs and a shape does not.
_UNUSED = [
    "CHECKPOINT_PATH = ''",
    "DRAFT_CHECKPOINT_PATH = ''",
    'DROPOUT_RATE = 0.0',
    "INFER_OUTPUT_DIR = ''",
    "MIXTURE_OR_TASK_NAME = ''",
    'TASK_FEATURE_LENGTHS = {}',
]
_CACHE_AXES = ('heads', 'length', 'kv')


class _Partitioner(partitioning.PjitPartitioner):
  """T5X's partitioner on given devices, which may be only described."""

  def __init__(self, devices: np.ndarray):
    super().__init__(num_partitions=devices.shape[1])
    self._mesh = jax.sharding.Mesh(devices, ('data', 'model'))

  @property
  def mesh(self) -> jax.sharding.Mesh:
    return self._mesh


def build_model(gin_files: list[str], bindings: list[str]) -> Any:
  """The model that infer.py would make of these files and the run file."""
  gin.add_config_file_search_path(os.path.dirname(list(t5x.__path__)[0]))
  gin.parse_config_files_and_bindings(
      [*gin_files, _RUN_FILE], [*_UNUSED, *bindings]
  )
  return gin.get_bindings(infer)['model']


def make_partitioner(
    shape: tuple[int, ...], topology: str | None
) -> _Partitioner:
  """A partitioner on a data x model mesh of CPU devices or a topology's."""
  count = math.prod(shape)
  if topology is None:
    devices = jax.devices('cpu')
  else:
    # One device per chip, as jobs on a v4 see it.
    options = (
        {'chip_config_name': 'megacore'} if topology.startswith('v4:') else {}
    )
    devices = topologies.get_topology_desc(topology, 'tpu', **options).devices
  if len(devices) < count:
    raise ValueError(f'{shape}: there are only {len(devices)} devices')
  return _Partitioner(np.array(devices[:count]).reshape(shape))


def _bytes_per_device(shapes: Any, shardings: Any) -> int:
  """Bytes of a tree's shards on one device."""

  def size(x, sharding):
    return math.prod(sharding.shard_shape(x.shape)) * x.dtype.itemsize

  sizes = jax.tree.map(size, shapes, shardings)
  return sum(jax.tree.leaves(sizes))


class Measurement:
  """A pair's decode by shapes, on a mesh."""

  def __init__(
      self,
      model: Any,
      partitioner: _Partitioner,
      *,
      batch: int,
      inputs: int,
      targets: int,
      dtype: str,
  ):
    self._model = model
    self._partitioner = partitioner
    self._batch = {
        'encoder_input_tokens': jax.ShapeDtypeStruct(
            (batch, inputs), jnp.int32
        ),
        'decoder_input_tokens': jax.ShapeDtypeStruct(
            (batch, targets), jnp.int32
        ),
    }
    state = utils.TrainStateInitializer(
        optimizer_def=None,
        init_fn=model.get_initial_variables,
        input_shapes={k: v.shape for k, v in self._batch.items()},
        partitioner=partitioner,
    )
    self._axes = state.train_state_axes.params
    self._params = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, dtype),
        state.global_train_state_shape.params,
    )

  def shapes(self) -> Iterator[tuple[str, int]]:
    """Yields what parameters and caches take per device, in bytes."""
    mesh, model = self._partitioner.mesh, self._model
    rules = self._partitioner.logical_axis_rules
    shardings = jax.tree.map(
        lambda spec: jax.sharding.NamedSharding(mesh, spec), self._axes
    )
    # The longest position and the slots after it: see `decoding`.
    largest = max(as_policy(model.gamma).gammas)
    width = self._batch['decoder_input_tokens'].shape[1] + largest + 2
    names = ('target', 'draft')
    modules = (model.module, model.draft_module)
    trees = split_draft(self._params), split_draft(shardings)
    for name, module, params, sharding in zip(names, modules, *trees):
      yield f'{name} parameters', _bytes_per_device(params, sharding)
      network = T5(module.config)
      state = jax.eval_shape(
          lambda params, inputs, net=network: net.init(
              net.prepare(params), inputs, inputs.shape[0], width
          ),
          params,
          self._batch['encoder_input_tokens'],
      )
      prefix = '' if name == 'target' else 'draft_'
      spec: Any = flax_partitioning.logical_to_mesh_axes(
          ('batch', *(prefix + axis for axis in _CACHE_AXES)), rules
      )
      per_device = functools.partial(
          _bytes_per_device, shardings=jax.sharding.NamedSharding(mesh, spec)
      )
      for kind, caches in (
          ('self', (state.keys, state.values)),
          ('cross', (state.cross_keys, state.cross_values)),
      ):
        total = sum(per_device(cache) for cache in jax.tree.leaves(caches))
        yield f'{name} {kind}-attention caches', total

  def compiled(self) -> Iterator[tuple[str, int]]:
    """Yields what XLA allocates per device for infer.py's step, in bytes."""
    partitioner = self._partitioner
    step = partitioner.partition(
        lambda params, batch, rng: self._model.predict_batch_with_aux(
            # Not the vocabulary's EOS: that may be on a server.
            params, batch, rng, decoder_params={'eos_id': 1}
        ),
        in_axis_resources=(
            self._axes, partitioner.data_partition_spec, None
        ),
        out_axis_resources=None,
    )
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    compiled = step.lower(self._params, self._batch, key).compile()
    memory = compiled.memory_analysis()
    yield 'arguments', memory.argument_size_in_bytes
    yield 'results', memory.output_size_in_bytes
    yield 'temporaries, caches included', memory.temp_size_in_bytes
    yield 'program', memory.generated_code_size_in_bytes


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(description=str(__doc__).partition('\n')[0])
  parser.add_argument('--gin_file', nargs='+', default=[_PAIR])
  parser.add_argument('--gin', nargs='*', default=[], help='bindings')
  parser.add_argument('--mesh', default='1x1', help='DATAxMODEL devices')
  parser.add_argument('--topology', help="a TPU's, such as v4:2x2x1")
  parser.add_argument('--batch', type=int, default=1)
  parser.add_argument('--inputs', type=int, default=512, help='tokens')
  parser.add_argument('--targets', type=int, default=512, help='tokens')
  parser.add_argument('--dtype', default='bfloat16', help='of parameters')
  parser.add_argument('--compile', action='store_true')
  return parser


def main(args: argparse.Namespace) -> None:
  if not re.fullmatch(r'[1-9]\d*x[1-9]\d*', args.mesh):
    raise ValueError(f'--mesh must be like 1x4, got {args.mesh!r}')
  shape = tuple(int(size) for size in args.mesh.split('x'))
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', math.prod(shape))
  # Else libtpu asks a server of Google's cloud what machine this is.
  os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
  measurement = Measurement(
      build_model(args.gin_file, args.gin),
      make_partitioner(shape, args.topology),
      batch=args.batch,
      inputs=args.inputs,
      targets=args.targets,
      dtype=args.dtype,
  )
  for name, size in measurement.shapes():
    print(f'{name:30} {size:15,} B {size / 2**30:8.3f} GiB')
  if args.compile:
    for name, size in measurement.compiled():
      print(f'{name:30} {size:15,} B {size / 2**30:8.3f} GiB')


if __name__ == '__main__':
  sys.exit(exits.run_script(_parser(), main))
