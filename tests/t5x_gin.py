"""Gin text of small T5X networks, and parsing as T5X's scripts do it."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import os
import sys
from typing import Any
from unittest import mock

import gin
import pytest

from t5x_specdec import T5Config

PATHS = (
    "CHECKPOINT_PATH = 'target/checkpoint_1'",
    "DRAFT_CHECKPOINT_PATH = 'draft/checkpoint_1'",
)
OUTPUT = ("INFER_OUTPUT_DIR = 'out'",)
# What infer.py's run files require besides networks.
REQUIRED = (
    *PATHS,
    *OUTPUT,
    'DROPOUT_RATE = 0.0',
    "MIXTURE_OR_TASK_NAME = 'task'",
    "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}",
)
RUN = 'runs/infer_speculative.gin'
_OURS = ('models/', 'runs/', 'table2/')


def network(config: T5Config, scope: str = '') -> str:
  """Gin text that binds every field of a network's configuration.

  Args:
    config: of either example of T5X's; `scalable` and `decoder_only` tell.
    scope: 'draft/' for the draft's network.

  Returns:
    The text, with the import of the network as `network`.
  """
  fields = dataclasses.asdict(config)
  fields['dtype'] = str(fields['dtype'])
  fields['dropout_rate'] = 0.0
  axis, scalable = fields.pop('scan_axis'), fields.pop('scalable')
  example, name = 't5', 'T5Config'
  if scalable or config.decoder_only:
    del fields['float32_attention_logits']
  if scalable:
    example = 'scalable_t5'
    fields['scan_layers'] = axis is not None
    fields['param_scan_axis'] = 1 if axis is None else axis
  elif config.decoder_only:
    example, name = 'decoder_only', 'TransformerConfig'
    fields['num_layers'] = fields.pop('num_decoder_layers')
    del fields['num_encoder_layers']
  lines = [f'  {field} = {value!r}' for field, value in fields.items()]
  return '\n'.join([
      'from __gin__ import dynamic_registration',
      f'from t5x.examples.{example} import network',
      f'{scope}network.{name}:',
      *lines,
      '',
  ])


def parse(
    *configs: str, bindings: Sequence[str] = REQUIRED, script: str = 'infer'
) -> dict[str, Any]:
  """Parses as a script of T5X does.

  Args:
    *configs: gin files, ours as in t5x_specdec/configs, or texts of more than a
      line, in order.
    bindings: those of the command line.
    script: 'infer', 'evaluate' or 'train'.

  Returns:
    What gin binds for the script's main function, evaluated.
  """
  import t5x
  from t5x import eval as t5x_eval
  from t5x import infer
  from t5x import train

  scripts = {
      'evaluate': t5x_eval.evaluate,
      'infer': infer.infer,
      'train': train.train,
  }
  root = os.path.dirname(list(t5x.__path__)[0])
  gin.clear_config()
  for path in ('.', root):
    gin.add_config_file_search_path(path)
  # T5X's run files import their script as __main__.
  with mock.patch.multiple(sys.modules['__main__'], create=True, **scripts):
    for config in configs:
      if '\n' in config:
        gin.parse_config(config)
      else:
        folder = 't5x_specdec/configs/' if config.startswith(_OURS) else ''
        gin.parse_config_file(folder + config)
    gin.parse_config(bindings)
    gin.finalize()
    return gin.get_bindings(scripts[script])


@pytest.fixture(name='parse')
def parse_fixture():
  """`parse`, and gin as it was afterwards."""
  yield parse
  gin.clear_config()
