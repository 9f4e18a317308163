# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads what `generate --trace` and `demo --trace --json` wrote."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

# Of `run` in a record: what differs from batch to batch.
_OF_BATCH = ('batch', 'batch_ms', 'batch_alone_ms')
_COUNTERS = ('rounds', 'drafted', 'judged', 'accepted', 'emitted')


@dataclasses.dataclass(frozen=True)
class Text:
  """One decode of one input.

  Attributes:
    line: number of the input, from 1.
    input: the input.
    truncated: whether the input was cut.
    reference: a human's translation, None where there is none.
    decode: its number among the input's, from 1; 0 where it is the only one.
    batch: the batch it was decoded in.
    rounds: as `cli.records` writes them.
  """

  line: int
  input: str
  truncated: bool
  reference: str | None
  decode: int
  batch: int
  rounds: list[dict[str, Any]]

  @property
  def tokens(self) -> int:
    """Tokens that its rounds wrote."""
    return sum(
        entry['accepted'] + (entry['next_token'] is not None)
        for entry in self.rounds
    )


@dataclasses.dataclass(frozen=True)
class Run:
  """All texts of a run and what they have in common.

  Attributes:
    texts: in the order of their lines.
    about: what `records.of_run` says.
    counters: totals of rounds, drafted, judged, accepted and emitted.
    rounds_by_gamma: rounds at each gamma from 0 on.
    alpha: Corollary 3.6, None where nothing was judged.
    batches: for each batch its time and the target alone's, in ms; None where
      it was not measured.
  """

  texts: list[Text]
  about: dict[str, Any]
  counters: dict[str, int]
  rounds_by_gamma: list[int]
  alpha: float | None
  batches: dict[int, tuple[float | None, float | None]]


def parse(lines: list[str], name: str) -> Run:
  """Reads the lines of a run.

  Args:
    lines: JSON records; or one object that holds them, which `--json` prints.
    name: of the file, for errors.

  Returns:
    The run.

  Raises:
    ValueError: a line is something else, or of another run than the first.
  """
  records = []
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    at = f'{name}: line {number}'
    try:
      value = json.loads(line)
    except ValueError:
      raise ValueError(f'{at} is not JSON') from None
    for record in _unpacked(value, at):
      try:
        records.append((_texts(record), record['aux'], record['run']))
      except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f'{at} is not a record of `generate --trace` or `demo --trace '
            f'--json` ({error})'
        ) from None
      if _common(records[-1][2]) != _common(records[0][2]):
        raise ValueError(f'{at} is of another run than the lines before it')
  if not records:
    raise ValueError(f'{name}: holds no record')
  return _summed(records)


def _unpacked(value: Any, at: str) -> list[Any]:
  """The records in a line: itself, or those in a command's one object."""
  if not isinstance(value, dict):
    raise ValueError(f'{at} is not a JSON object')
  for name in ('examples', 'predictions'):
    if isinstance(value.get(name), list):
      return value[name]
  if 'prediction' not in value:
    raise ValueError(f'{at} has no prediction; was an --output file meant?')
  return [value]


def _common(about: dict[str, Any]) -> dict[str, Any]:
  return {name: about[name] for name in about if name not in _OF_BATCH}


def _texts(record: dict[str, Any]) -> list[Text]:
  """The decodes of one record."""
  many = isinstance(record['prediction'], list)
  traces = record['trace'] if many else [record['trace']]
  return [
      Text(
          line=int(record['line']),
          input=str(record['input']),
          truncated=bool(record['truncated']),
          reference=record.get('reference'),
          decode=i if many else 0,
          batch=int(record['run']['batch']),
          rounds=[dict(entry) for entry in trace],
      )
      for i, trace in enumerate(traces, 1)
  ]


def _summed(records: list[tuple[list[Text], Any, Any]]) -> Run:
  counters = {
      name: sum(aux[name] for _, aux, _ in records) for name in _COUNTERS
  }
  # What each line's mean is the mean of.
  overlap = sum(
      aux['alpha'] * aux['judged'] for _, aux, _ in records if aux['judged']
  )
  return Run(
      texts=[text for texts, _, _ in records for text in texts],
      about=_common(records[0][2]),
      counters=counters,
      rounds_by_gamma=[
          sum(rounds)
          for rounds in zip(*(aux['rounds_by_gamma'] for _, aux, _ in records))
      ],
      alpha=overlap / counters['judged'] if counters['judged'] else None,
      batches={
          about['batch']: (about['batch_ms'], about['batch_alone_ms'])
          for _, _, about in records
      },
  )
