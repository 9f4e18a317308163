"""The demo pair's hyperparameters and what one decode step of each costs."""

import math

from t5x_specdec import parameters

CONTEXT = 64  # the most tokens of a side, EOS included


def config(
    name: str, vocab_size: int, dtype: str = 'float32'
) -> parameters.T5Config:
  """Returns the network of 'target' or 'draft'.

  Args:
    name: which model of the pair.
    vocab_size: rows of the embedding.
    dtype: activation dtype.
  """
  sizes = {
      'target': {
          'emb_dim': 256,
          'num_heads': 4,
          'num_encoder_layers': 2,
          'num_decoder_layers': 4,
          'mlp_dim': 1024,
      },
      'draft': {
          'emb_dim': 128,
          'num_heads': 2,
          'num_encoder_layers': 1,
          'num_decoder_layers': 1,
          'mlp_dim': 256,
      },
  }
  if name not in sizes:
    raise ValueError(f'no model {name!r} in the pair; one of {list(sizes)}')
  return parameters.T5Config(
      vocab_size=vocab_size,
      dtype=dtype,
      head_dim=64,
      mlp_activations=('gelu', 'linear'),
      logits_via_embedding=True,
      **sizes[name],
  )


def count(config: parameters.T5Config) -> int:  # pylint: disable=redefined-outer-name
  """Returns the number of parameters."""
  return sum(map(math.prod, parameters.param_shapes(config).values()))


def step_cost(config: parameters.T5Config) -> int:  # pylint: disable=redefined-outer-name
  """Returns the multiplications of one decode step, attention apart.

  Keys and values of the cross-attention are projected once, not per step.
  """
  cost = config.vocab_size * config.emb_dim
  for path, shape in parameters.param_shapes(config).items():
    cross = 'encoder_decoder_attention' in path and path[-2] in ('key', 'value')
    if path[0] == 'decoder' and path[-1] == 'kernel' and not cross:
      cost += math.prod(shape)
  return cost
