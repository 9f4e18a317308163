# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two models in one tree of parameters, as T5X knows one per model.

It is the target's own tree, names unchanged, with the draft's under `draft`
beside `encoder` and `decoder`: flax passes over collections' entries that a
module does not ask for, so loss, scores, scanned layers' annotations and every
regular expression of the user's over `target/...` work as they are, and only
what needs the draft knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flax import core as flax_core
from flax.linen import partitioning as flax_partitioning
import jax

from t5x_specdec.parameters import PyTree

# Where the draft stands in the tree, and its scope in gin.
DRAFT = 'draft'


def split_draft(tree: PyTree) -> tuple[PyTree, PyTree]:
  """Splits a model's parameters, or any tree of their names.

  Args:
    tree: mapping with the target's entries and `draft`.

  Returns:
    The target's tree and the draft's, empty where it has no parameters.
  """
  tree = flax_core.unfreeze(tree)
  draft = tree.pop(DRAFT, {})
  return tree, draft


def join_draft(target: Mapping[str, Any], draft: PyTree) -> PyTree:
  """The inverse of `split_draft`."""
  return flax_core.freeze({**target, DRAFT: draft})


def join_variables(
    target: Mapping[str, Any], draft: Mapping[str, Any]
) -> flax_core.FrozenDict:
  """Joins the initial variables of two modules.

  The draft's logical axes are the module's own with `draft_` before each name.
  No rule of T5X's knows these, so a draft is replicated until
  `standard_logical_axis_rules.additional_rules` maps, say, `draft_mlp` to
  'model'.

  Args:
    target: collections of the target, `params` and the like.
    draft: collections of the draft; of these `params` and `params_axes`.

  Returns:
    The target's collections, the draft's in them.

  Raises:
    ValueError: the target has a place of that name itself.
  """
  if DRAFT in target['params']:
    raise ValueError(
        f'the target has parameters named {DRAFT!r} itself: '
        f'{sorted(target["params"])}'
    )

  def rename(axes):
    names = [name and f'{DRAFT}_{name}' for name in axes.names]
    return flax_partitioning.AxisMetadata(names=tuple(names))

  joined = dict(target)
  joined['params'] = join_draft(target['params'], draft['params'])
  if 'params_axes' in draft:
    axes = jax.tree.map(
        rename,
        draft['params_axes'],
        is_leaf=lambda x: isinstance(x, flax_partitioning.AxisMetadata),
    )
    joined['params_axes'] = join_draft(target['params_axes'], axes)
  return flax_core.freeze(joined)
