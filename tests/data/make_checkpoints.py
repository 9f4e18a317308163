"""Makes the checkpoints in this folder with stock T5X.

  python tests/data/make_checkpoints.py

writes `legacy_checkpoint` in bfloat16, `orbax_checkpoint` in float32 and
`checkpoint_arrays.npz`, the parameters as they were in memory: random numbers
that bfloat16 holds, so that all three are equal. The tests that have T5X build
states and save them by the functions below.
"""

import functools
import os
import pathlib
import shutil
import tempfile
from typing import Any

from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np

STEP = 7


@functools.cache
def tiny_state(optimizer: bool) -> tuple[Any, Any, Any]:
  """Returns a T5X state of 29 arrays, its initializer and its partitioner."""
  import seqio
  from t5x import adafactor
  from t5x import models
  from t5x import partitioning
  from t5x import utils
  from t5x.examples.t5 import network

  config = network.T5Config(
      vocab_size=8,
      dtype='float32',
      emb_dim=4,
      num_heads=2,
      num_encoder_layers=1,
      num_decoder_layers=1,
      head_dim=2,
      mlp_dim=4,
      mlp_activations=('gelu', 'linear'),
      dropout_rate=0.0,
      logits_via_embedding=False,
  )
  vocabulary = seqio.PassThroughVocabulary(config.vocab_size)
  definition = adafactor.Adafactor(1e-3) if optimizer else None
  model = models.EncoderDecoderModel(
      network.Transformer(config),
      vocabulary,
      vocabulary,
      optimizer_def=definition,
  )
  partitioner = partitioning.PjitPartitioner(num_partitions=1)
  initializer = utils.TrainStateInitializer(
      optimizer_def=definition,
      init_fn=model.get_initial_variables,
      input_shapes={
          'encoder_input_tokens': (1, 4),
          'decoder_input_tokens': (1, 4),
      },
      partitioner=partitioner,
  )
  state = initializer.from_scratch(jax.random.PRNGKey(0))
  random = np.random.default_rng(0)
  params = jax.tree.map(
      lambda x: jnp.asarray(random.normal(size=x.shape), jnp.bfloat16).astype(
          x.dtype
      ),
      state.params,
  )
  state = state.replace_params(params).replace_step(jnp.asarray(STEP))
  return state, initializer, partitioner


def save(
    directory: str, layout: str, dtype: str, made: tuple[Any, Any, Any]
) -> str:
  """Saves a tiny state with stock T5X and returns the checkpoint's path."""
  from t5x import checkpoints

  state, initializer, partitioner = made
  arguments = (initializer.global_train_state_shape, partitioner)
  os.makedirs(directory, exist_ok=True)
  if layout == 'legacy':
    checkpoints.Checkpointer(
        *arguments, directory, save_dtype=jnp.dtype(dtype)
    ).save(state)
  else:
    manager = checkpoints.OrbaxCheckpointManagerInterface(
        directory, *arguments, save_dtype=jnp.dtype(dtype)
    )
    manager.save(state)
    manager.wait_until_finished()
    manager.close()
  return os.path.join(directory, f'checkpoint_{STEP}')


def main() -> None:
  """Replaces the checkpoints beside this file."""
  here = pathlib.Path(__file__).parent
  made = tiny_state(optimizer=False)
  for layout, dtype in (('legacy', 'bfloat16'), ('orbax', 'float32')):
    with tempfile.TemporaryDirectory() as directory:
      path = save(directory, layout, dtype, made)
      target = here / f'{layout}_checkpoint' / f'checkpoint_{STEP}'
      shutil.rmtree(target, ignore_errors=True)
      shutil.copytree(path, target)
  flat = traverse_util.flatten_dict(made[0].state_dict()['target'], sep='/')
  arrays: dict[str, Any] = {k: np.asarray(v) for k, v in flat.items()}
  np.savez_compressed(here / 'checkpoint_arrays.npz', **arrays)


if __name__ == '__main__':
  main()
