# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Restores a target and its draft, each from a checkpoint of its own.

T5X restores one checkpoint per run. `PairCheckpointManager` goes where
`RestoreCheckpointConfig.checkpoint_manager_cls` names T5X's own manager: it
splits the train state, leaves each half to a stock manager and joins them.
So both layouts of T5X, TensorFlow checkpoints, `gs://` paths, dtypes and
assignment maps are T5X's business as ever.

What it adds is refusing. Run by infer.py, T5X drops arrays that a model does
not ask for (a checkpoint with more layers is decoded wrongly, in silence) and
creates folders beside a path that does not exist. Here existence is checked
first, names both ways, and shapes; messages name model, path and array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import contextlib
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
from t5x import checkpoint_importer
from t5x import checkpoints
from t5x import partitioning
from t5x import state_utils
from t5x import train_state as train_state_lib
from t5x import utils
from tensorflow.io import gfile  # pyright: ignore

from t5x_specdec import tree_checks
from t5x_specdec.pair_tree import DRAFT
from t5x_specdec.pair_tree import join_draft
from t5x_specdec.pair_tree import split_draft

_BINDINGS = {'target': 'CHECKPOINT_PATH', 'draft': 'DRAFT_CHECKPOINT_PATH'}


def _check_exists(model: str, path: str) -> None:
  """Raises before anything is created: a directory or TensorFlow's files."""
  if not path or not (gfile.exists(path) or gfile.exists(f'{path}.index')):
    raise FileNotFoundError(
        f'{model} checkpoint {path}: no such checkpoint, or it cannot be read '
        f'(set by {_BINDINGS[model]})'
    )


def _check_is_one(model: str, path: str) -> None:
  """Raises where a path is the folder of checkpoints, not one of them."""
  if not gfile.isdir(path):
    return
  inside = [name.rstrip('/') for name in gfile.listdir(path)]
  steps = [name for name in inside if re.fullmatch(r'checkpoint_\d+', name)]
  if steps:
    raise ValueError(
        f'{model} checkpoint {path}: holds {", ".join(sorted(steps)[:3])}: '
        f'name one (set by {_BINDINGS[model]})'
    )


def _reason(error: Exception) -> str:
  """What an error says, in one line, TensorStore's settings left out."""
  said = re.split(r"\s\[[a-z_ ]+='", str(error), maxsplit=1)[0].splitlines()
  kind = [] if type(error) is ValueError else [type(error).__name__]
  return ': '.join([*kind, *said[:1]])


@contextlib.contextmanager
def _naming(model: str, path: str):
  """Puts the model and the path before whatever T5X says of them."""
  start = f'{model} checkpoint {path}: '
  try:
    yield
  except Exception as error:
    if str(error).startswith(start):
      raise
    raise ValueError(f'{start}cannot be restored: {_reason(error)}') from error


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
  return state_utils.flatten_state_dict(tree)


class _Checked:
  """A stock manager of one model that restores exactly its checkpoint."""

  def __init__(
      self,
      model: str,
      directory: str,
      train_state: train_state_lib.TrainState,
      partitioner: partitioning.BasePartitioner,
      manager_cls: checkpoints.CheckpointManagerConstructor,
      **kwargs,
  ):
    self._model = model
    self._expected = _flat(train_state.state_dict()['target'])
    with _naming(model, directory):
      self._manager = manager_cls(
          directory=directory,
          train_state=train_state,
          partitioner=partitioner,
          **kwargs,
      )

  def restore(
      self,
      path: str,
      fallback_state: Mapping[str, Any] | None = None,
      state_transformation_fns: Sequence[
          checkpoints.RestoreStateTransformationFn
      ] = (),
  ) -> train_state_lib.TrainState:
    """`OrbaxCheckpointManagerInterface.restore`, names and shapes checked."""
    model = self._model
    _check_exists(model, path)
    _check_is_one(model, path)
    stored = {}

    def note(checkpoint_state, model_state):
      del model_state
      stored.update(_flat(checkpoint_state.get('target', {})))
      return checkpoint_state

    def check(checkpoint_state, model_state):
      del model_state
      found = _flat(checkpoint_state.get('target', {}))
      for name, leaf in found.items():
        # T5X reads an array of Orbax's by the model's name for it, whatever a
        # map says, unless the tree is of Orbax's first kind (strings).
        renamed = stored.get(name) is not leaf
        if renamed and not isinstance(leaf, (Mapping, np.ndarray, str)):
          raise ValueError(
              f'T5X cannot rename {name} of an Orbax checkpoint: there '
              'assignment_map and the like have to leave names alone'
          )
      # Orbax's tree tells the shape of a process's shard: see below.
      specs = {
          name: leaf if isinstance(leaf, (Mapping, np.ndarray)) else None
          for name, leaf in found.items()
      }
      tree_checks.check_checkpoint(
          model, path, self._expected, specs, fallback_state is not None
      )
      for leaf in specs.values():
        if isinstance(leaf, dict):
          # T5X stores every chunk, so one that is not there was lost, and
          # TensorStore would read zeros.
          leaf['fill_missing_data_reads'] = False
      return checkpoint_state

    with _naming(model, path):
      restored = self._manager.restore(
          path=path,
          fallback_state=fallback_state,
          state_transformation_fns=[note, *state_transformation_fns, check],
      )
    return self._check_restored(path, restored)

  def restore_from_tf_checkpoint(
      self, path: str, strict: bool = True
  ) -> train_state_lib.TrainState:
    """The stock method, names and shapes checked."""
    model, expected = self._model, self._expected

    class Translator(checkpoint_importer.CheckpointTranslator):
      """T5X's own rules, and a look at what came out before it is cut."""

      def apply(self, flatdict, **opts):
        translated = checkpoint_importer.t5_importer.apply(flatdict, **opts)
        found = {}
        for name, leaf in translated.items():
          name, is_parameter = re.subn(r'^target/', '', name)
          # T5X moves a bias that is shared by all layers out of the first.
          name = re.sub(r'layers_0/relpos_bias', 'relpos_bias', name)
          if is_parameter:
            found[name] = leaf
        tree_checks.check_checkpoint(model, path, expected, found)
        return translated

    with _naming(model, path):
      restored = self._manager.restore_from_tf_checkpoint(
          path, strict=strict, translator=Translator()
      )
    return self._check_restored(path, restored)

  def _check_restored(self, path: str, restored: Any) -> Any:
    found = _flat(restored.state_dict()['target'])
    tree_checks.check_checkpoint(self._model, path, self._expected, found)
    return restored

  def close(self):
    self._manager.close()


class PairCheckpointManager:
  """What `RestoreCheckpointConfig.checkpoint_manager_cls` is bound to.

  Only restores. The draft is restored as its own RestoreCheckpointConfig says,
  but for `fallback_to_scratch`, `strict` and `checkpoint_manager_cls`, which
  gin's scopes hand down from the target's: a draft is never made up, and lost
  acceptance would be all that shows.
  """

  def __init__(
      self,
      directory: str,
      train_state: train_state_lib.TrainState,
      partitioner: partitioning.BasePartitioner,
      *,
      draft_restore_cfg: utils.RestoreCheckpointConfig | None = None,
      manager_cls: checkpoints.CheckpointManagerConstructor = (
          checkpoints.OrbaxCheckpointManagerInterface
      ),
      **kwargs,
  ):
    """Splits the state; see `OrbaxCheckpointManagerInterface`.

    Args:
      directory: the target's checkpoint, or the parent of several.
      train_state: shapes of the pair, a model of `t5x_specdec.models`'.
      partitioner: the run's.
      draft_restore_cfg: where and how to restore the draft; None for a draft
        that has no parameters.
      manager_cls: the manager that each half is left to.
      **kwargs: for both managers, the target's `restore_dtype` among them.

    Raises:
      FileNotFoundError: a checkpoint is not there.
      ValueError: the model has no draft, or is being trained.
    """
    if not isinstance(train_state, train_state_lib.InferenceState):
      raise ValueError('a pair of models can be restored, not trained')
    has_draft = DRAFT in train_state.params
    if has_draft and draft_restore_cfg is None:
      raise ValueError(
          'no checkpoint for the draft: bind checkpoints.PairCheckpointManager.'
          'draft_restore_cfg, or give t5x_specdec/configs/runs/'
          'infer_speculative.gin'
      )
    if draft_restore_cfg is not None and not has_draft:
      raise ValueError(
          'the model has no draft to restore: MODEL must be one of '
          "t5x_specdec.models, so t5x_specdec's run file has to come after the "
          "target's gin file"
      )
    if draft_restore_cfg is not None:
      self._draft_path = self._resolve(draft_restore_cfg)
      _check_exists('draft', self._draft_path)
    _check_exists('target', directory)
    self._draft_cfg = draft_restore_cfg
    self._train_state = train_state
    target, draft = self._split(train_state)
    self._target = _Checked(
        'target', directory, target, partitioner, manager_cls, **kwargs
    )
    self._draft = None
    if draft_restore_cfg is None:
      return
    dtype = draft_restore_cfg.dtype
    kwargs |= {
        'dataset_iterator': None,
        'restore_dtype': jnp.dtype(dtype) if dtype else None,
    }
    self._draft = _Checked(
        'draft', self._draft_path, draft, partitioner, manager_cls, **kwargs
    )

  def restore(
      self,
      step: int | None = None,
      path: str | None = None,
      fallback_state: Mapping[str, Any] | None = None,
      state_transformation_fns: Sequence[
          checkpoints.RestoreStateTransformationFn
      ] = (),
      lazy_parameters: bool = False,
  ) -> train_state_lib.TrainState:
    """Restores both; arguments are about the target, as in T5X.

    Args:
      step: not supported; runs restore by path.
      path: the target's checkpoint.
      fallback_state: where arrays come from that the target's checkpoint lacks.
      state_transformation_fns: applied to the target's tree after reading.
      lazy_parameters: not supported, nor is it by Orbax.

    Returns:
      The pair's train state, its step the target's.

    Raises:
      FileNotFoundError: a checkpoint is not there.
      ValueError: naming model, path and array.
    """
    if path is None or step is not None or lazy_parameters:
      raise ValueError('a pair of models is restored by path, and at once')
    if fallback_state is not None:
      target, _ = split_draft(fallback_state['target'])
      fallback_state = {**fallback_state, 'target': target}
    return self._join(
        self._target.restore(path, fallback_state, state_transformation_fns)
    )

  def restore_from_tf_checkpoint(
      self, path_or_dir: str, strict: bool = True
  ) -> train_state_lib.TrainState:
    """Restores a target of TensorFlow's, and its draft of whatever kind.

    Args:
      path_or_dir: the target's checkpoint.
      strict: as in T5X; parameters are compared whatever it says.

    Returns:
      The pair's train state.
    """
    return self._join(
        self._target.restore_from_tf_checkpoint(path_or_dir, strict)
    )

  def wait_until_finished(self) -> None:
    """Nothing is ever being saved."""

  def close(self) -> None:
    """Closes both managers."""
    self._target.close()
    if self._draft is not None:
      self._draft.close()

  @staticmethod
  def _resolve(config: utils.RestoreCheckpointConfig) -> str:
    """The draft's one path, the latest where the mode says so."""
    if config.mode == 'latest':
      _check_exists('draft', str(config.path))
    _, paths = utils.get_first_valid_restore_config_and_paths([config])
    if len(paths) != 1:
      raise ValueError(
          f'draft checkpoint {config.path}: {len(paths)} checkpoints by mode '
          f'{config.mode!r}, one is needed (set by {_BINDINGS["draft"]})'
      )
    return paths[0]

  @staticmethod
  def _split(state: Any) -> tuple[Any, Any]:
    params = split_draft(state.params)
    axes = split_draft(state.params_axes) if state.params_axes else (None, None)
    target = state.replace(params=params[0], params_axes=axes[0])
    draft = train_state_lib.InferenceState(
        step=state.step, params=params[1], params_axes=axes[1]
    )
    return target, draft

  def _join(self, target: Any) -> train_state_lib.TrainState:
    if self._draft is None or self._draft_cfg is None:
      return target
    path = self._draft_path
    if gfile.exists(f'{path}.index'):
      if self._draft_cfg.state_transformation_fns:
        raise ValueError(
            f'draft checkpoint {path}: a TensorFlow checkpoint takes neither '
            'assignment_map nor state_transformation_fns'
        )
      draft = self._draft.restore_from_tf_checkpoint(path, strict=False)
    else:
      draft = self._draft.restore(
          path,
          state_transformation_fns=self._draft_cfg.state_transformation_fns,
      )
    return target.replace(
        params=join_draft(target.params, draft.params),
        params_axes=self._train_state.params_axes,
    )
