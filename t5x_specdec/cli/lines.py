# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lines of text in, and where output may go: what subcommands share."""

from __future__ import annotations

import json
import os
from typing import Any


def read(path: str, flag: str = '--input') -> list[str]:
  """Lines of a file, or of standard input.

  Args:
    path: of the file; - for standard input.
    flag: the argument that named it, for errors.

  Returns:
    The lines, at least one, without what ends them.

  Raises:
    ValueError: not UTF-8, or no line at all.
  """
  standard = path == '-'
  name = 'standard input' if standard else path
  with open(0 if standard else path, 'rb', closefd=not standard) as file:
    content = file.read()
  try:
    text = content.decode('utf-8')
  except UnicodeDecodeError as error:
    line = content[: error.start].count(b'\n') + 1
    raise ValueError(f'{flag} {name}: line {line} is not UTF-8') from None
  # Only line feeds separate inputs: U+2028, say, is text.
  lines = [line.rstrip('\r') for line in text.split('\n')]
  if lines and not lines[-1]:
    lines.pop()
  if not lines:
    raise ValueError(f'{flag} {name}: holds no line')
  return lines


def check_output(
    output: str | None, source: str | None, flag: str = '--input'
) -> None:
  """Raises ValueError where the output cannot be written or is the input.

  Args:
    output: the file to write, None for standard output.
    source: the file that is read; - or None for none.
    flag: the argument that named it, for errors.
  """
  if output is None:
    return
  folder = os.path.dirname(os.path.abspath(output))
  if not os.path.isdir(folder):
    raise ValueError(f'--output {output}: there is no folder {folder}')
  if os.path.isdir(output):
    raise ValueError(f'--output {output} is a folder')
  # Before what is to be written has been computed.
  if not os.access(output if os.path.exists(output) else folder, os.W_OK):
    raise ValueError(f'--output {output} cannot be written')
  both = source not in (None, '-') and os.path.exists(output)
  if both and os.path.samefile(str(source), output):
    raise ValueError(f'--output {output} is the {flag}')


def finished(output: str, lines: list[str]) -> tuple[list[dict[str, Any]], int]:
  """What an earlier run has written, the line it was cut off in left out.

  Args:
    output: the file; there may be none.
    lines: the inputs.

  Returns:
    The records of its whole lines, and where these end, in bytes.

  Raises:
    ValueError: it is not the output of these inputs.
  """
  if not os.path.isfile(output):
    return [], 0
  with open(output, 'rb') as file:
    content = file.read()
  end = content.rfind(b'\n') + 1
  records = []
  for i, line in enumerate(content[:end].split(b'\n')[:-1]):
    try:
      record = json.loads(line)
      same = i < len(lines) and record['input'] == lines[i]
    except (ValueError, TypeError, KeyError):
      same = False
    if not same:
      raise ValueError(
          f'--resume: line {i + 1} of --output {output} is not of line {i + 1} '
          'of the --input'
      )
    records.append(record)
  return records, end
