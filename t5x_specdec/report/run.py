# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads what `generate --trace` and `demo --trace --json` wrote."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, NamedTuple

# Of what is divided by, in ms: a nanosecond.
_SHORTEST = 1e-6
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


class Timed(NamedTuple):
  """What timing a batch gave; each None where it was not measured.

  Attributes:
    ms: of the batch with the draft.
    alone_ms: of the target alone.
    alone_tokens: that the target alone generated in that time: where texts are
      sampled, its are others.
  """

  ms: float | None
  alone_ms: float | None
  alone_tokens: int | None


@dataclasses.dataclass(frozen=True)
class Run:
  """All texts of a run and what they have in common.

  Attributes:
    texts: in the order of their lines.
    about: what `records.of_run` says, where a run was resumed at its start.
    counters: totals of rounds, drafted, judged, accepted and emitted.
    rounds_by_gamma: rounds at each gamma from 0 on.
    alpha: Corollary 3.6, None where nothing was judged.
    batches: for each batch what timing it gave.
  """

  texts: list[Text]
  about: dict[str, Any]
  counters: dict[str, int]
  rounds_by_gamma: list[int]
  alpha: float | None
  batches: dict[int, Timed]


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
        records.append(_read(record))
      except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f'no {error}' if isinstance(error, KeyError) else error
        raise ValueError(
            f'{at} is not as `generate --trace` or `demo --trace --json` of '
            f'this version writes it: {reason}'
        ) from None
      if _kind(records[-1]) != _kind(records[0]):
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


class _Record(NamedTuple):
  """One line, all of it checked."""

  texts: list[Text]
  about: dict[str, Any]
  counters: dict[str, int]
  rounds_by_gamma: list[int]
  overlap: float
  batch: int
  times: Timed


def _kind(record: _Record) -> dict[str, Any]:
  """What all lines of a run share; one that resumes times its parts anew."""
  gammas = record.about['parts_ms']['gammas']
  return record.about | {'parts_ms': gammas}


def _read(record: dict[str, Any]) -> _Record:
  """Raises KeyError, TypeError or ValueError for anything unexpected."""
  aux, run = record['aux'], record['run']
  about = _about(run)
  texts = _texts(record)
  gammas = about['parts_ms']['gammas']
  rounds_by_gamma = [int(rounds) for rounds in aux['rounds_by_gamma']]
  counted = [0] * (max(gammas) + 1)
  for text in texts:
    for entry in text.rounds:
      if entry['gamma'] not in gammas:
        raise ValueError(f'a round at gamma {entry["gamma"]}, not of {gammas}')
      counted[entry['gamma']] += 1
  if rounds_by_gamma != counted:
    raise ValueError(f'rounds_by_gamma {rounds_by_gamma}, traced {counted}')
  judged = int(aux['judged'])
  return _Record(
      texts,
      about,
      {name: int(aux[name]) for name in _COUNTERS},
      rounds_by_gamma,
      (_chance(aux['alpha']) or 0.0) * judged if judged else 0.0,
      int(run['batch']),
      _times(run),
  )


def _times(run: dict[str, Any]) -> Timed:
  """What timing a batch gave."""
  ms, alone_ms = (
      None if run[name] is None else _time(run[name], least=_SHORTEST)
      for name in ('batch_ms', 'batch_alone_ms')
  )
  tokens = run['batch_alone_tokens']
  return Timed(ms, alone_ms, None if tokens is None else int(tokens))


def _finite(value: Any) -> float:
  number = float(value)
  if not math.isfinite(number):
    raise ValueError(f'a number is {number}')
  return number


def _time(milliseconds: Any, least: float = 0.0) -> float:
  time = _finite(milliseconds)
  if time < least:
    raise ValueError(f'a time of {time} ms')
  return time


def _chance(value: Any) -> float | None:
  if value is None:
    return None
  chance = float(value)
  if not 0 <= chance <= 1.001:  # by float32's rounding
    raise ValueError(f'a chance of {chance}')
  return chance


def _about(run: dict[str, Any]) -> dict[str, Any]:
  """What all records of a run say of it."""
  parts, gamma = run['parts_ms'], run['gamma']
  gammas = [int(gamma) for gamma in parts['gammas']]
  for name in ('draft', 'verify'):
    if len(parts[name]) != len(gammas):
      raise ValueError(f'parts_ms has no {name} for each of gammas {gammas}')
  if gammas != sorted(set(gammas)) or not gammas or gammas[0] < 0:
    raise ValueError(f'gammas {gammas} do not rise')
  return {
      'temperature': _finite(run['temperature']),
      'verification': str(run['verification']),
      'gamma': gamma if isinstance(gamma, int) else str(gamma),
      'abstains': bool(run['abstains']),
      'rows': int(run['rows']),
      'parts_ms': {
          'encode': _time(parts['encode']),
          'encode_draft': _time(parts['encode_draft']),
          'step': _time(parts['step'], least=_SHORTEST),
          'gammas': gammas,
          'draft': [_time(cost) for cost in parts['draft']],
          'verify': [_time(cost, least=_SHORTEST) for cost in parts['verify']],
      },
  }


def _round(entry: dict[str, Any]) -> dict[str, Any]:
  """A round, with lists of one length."""
  drafted = [int(token) for token in entry['drafted']]
  follows = entry['next_token']
  result = {
      'gamma': int(entry['gamma']),
      'drafted': drafted,
      'accepted': int(entry['accepted']),
      'next_token': None if follows is None else int(follows),
      'next_piece': None if follows is None else str(entry['next_piece']),
      'p': [_chance(p) for p in entry['p']],
      'q': [_chance(q) for q in entry['q']],
      'pieces': [str(piece) for piece in entry['pieces']],
  }
  lengths = {len(result[name]) for name in ('p', 'q', 'pieces')}
  count, accepted = len(drafted), result['accepted']
  if lengths != {count} or not 0 <= accepted <= count <= result['gamma']:
    raise ValueError('a round does not add up')
  return result


def _texts(record: dict[str, Any]) -> list[Text]:
  """The decodes of one record."""
  many = isinstance(record['prediction'], list)
  traces = record['trace'] if many else [record['trace']]
  return [
      Text(
          line=int(record['line']),
          input=str(record['input']),
          truncated=bool(record['truncated']),
          reference=None
          if record.get('reference') is None
          else str(record['reference']),
          decode=i if many else 0,
          batch=int(record['run']['batch']),
          rounds=[_round(entry) for entry in trace],
      )
      for i, trace in enumerate(traces, 1)
  ]


def _summed(records: list[_Record]) -> Run:
  counters = {
      name: sum(record.counters[name] for record in records)
      for name in _COUNTERS
  }
  # What each line's mean is the mean of.
  overlap = sum(record.overlap for record in records)
  return Run(
      texts=[text for record in records for text in record.texts],
      about=records[0].about,
      counters=counters,
      rounds_by_gamma=[
          sum(rounds)
          for rounds in zip(*(record.rounds_by_gamma for record in records))
      ],
      alpha=overlap / counters['judged'] if counters['judged'] else None,
      batches={record.batch: record.times for record in records},
  )
