# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the text of a compiled XLA program, as far as tests ask for it."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import re

_HEADER = re.compile(r'^(ENTRY )?%(\S+) \(.*\{$')
_INSTRUCTION = re.compile(r'^\s+(?:ROOT )?%\S+ = (.*?) ([a-z][\w\-]*)\(')
_SHAPE = re.compile(r'\b[a-z]+\d*\[([\d,]*)\]')
_NAME = re.compile(r'%([\w.\-]+)')


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of a program.

  Attributes:
    opcode: what it does: 'dot', 'copy', 'while', ...
    shapes: of its result, several where that is a tuple.
    text: the line.
  """

  opcode: str
  shapes: tuple[tuple[int, ...], ...]
  text: str


class Program:
  """A compiled program: its computations, and who calls whom."""

  def __init__(self, text: str):
    self._computations: dict[str, list[Instruction]] = {}
    self._entry, current = '', []
    for line in text.splitlines():
      if header := _HEADER.match(line):
        current = self._computations[header[2]] = []
        self._entry = header[2] if header[1] else self._entry
      elif found := _INSTRUCTION.match(line):
        current.append(Instruction(found[2], _shapes(found[1]), line))

  @property
  def entry(self) -> list[Instruction]:
    """What runs first."""
    return self._computations[self._entry]

  @property
  def all(self) -> list[Instruction]:
    """Every instruction there is."""
    return [i for part in self._computations.values() for i in part]

  def within(self, instruction: Instruction) -> Iterator[Instruction]:
    """Yields all that an instruction runs, at any depth, each once."""
    seen, waiting = set(), self._called(instruction)
    while waiting:
      name = waiting.pop()
      if name not in seen:
        seen.add(name)
        for inner in self._computations[name]:
          yield inner
          waiting += self._called(inner)

  def _called(self, instruction: Instruction) -> list[str]:
    names = _NAME.findall(instruction.text)
    return [name for name in names if name in self._computations]


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
  return tuple(
      tuple(int(size) for size in dims.split(',') if size)
      for dims in _SHAPE.findall(text)
  )
