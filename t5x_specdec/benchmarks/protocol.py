# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""How the parent and a worker talk: lines of JSON, with an array after some.

A message is one JSON object on a line. Where it has the key `array`, with dtype
and shape, the array's bytes follow the line: weights reach every framework from
one maker, one leaf at a time, without a file and without a copy of the model in
between. Each message to a worker names an operation, a method of the worker's,
and is answered by one message.

Imports neither JAX nor anything else that a framework's interpreter may lack.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import json
import os
import resource
import sys
import traceback
from typing import Any, BinaryIO

import numpy as np


@dataclasses.dataclass(frozen=True)
class Array:
  """An array on its way; 'bfloat16' is no dtype of NumPy's own.

  Attributes:
    dtype: its name.
    shape: its shape.
    data: uint8[bytes], row by row.
  """

  dtype: str
  shape: tuple[int, ...]
  data: np.ndarray

  @classmethod
  def of(cls, x: np.ndarray) -> Array:
    """Wraps a NumPy array without copying a contiguous one."""
    flat = np.ascontiguousarray(x).reshape(-1)
    return cls(x.dtype.name, x.shape, flat.view(np.uint8))

  def numpy(self) -> np.ndarray:
    """The array, sharing memory; its dtype must be known to NumPy."""
    return self.data.view(np.dtype(self.dtype)).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Job:
  """What every worker decodes, and how; goes over as JSON.

  Attributes:
    target: fields of the target's `T5Config`.
    draft: fields of the draft model's, None without one.
    kind: of draft, one of `kinds.KINDS`.
    table: file of n-grams, for kinds that have one.
    inputs: int[batches, batch, S], 0 at padding.
    prompts: int[batches, batch, 1], one forced token a row, or None.
    steps: int[batch], tokens to generate in each row, or None for all there is
      room for.
    text_len: length of the texts, prompt included, in tokens.
    temperature: 0 for greedy.
    topk: 0 for all.
    topp: 0 for all.
    verification: 'token' or 'block'.
    calibration: file that gamma policies go by; None measures on the spot.
    eos_id: id of EOS.
    seed: of the samples.
  """

  target: dict[str, Any]
  draft: dict[str, Any] | None
  kind: str
  table: str | None
  inputs: list
  prompts: list | None
  steps: list[int] | None
  text_len: int
  temperature: float
  topk: int
  topp: float
  verification: str
  calibration: str | None
  eos_id: int
  seed: int

  def batches(self) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Inputs int32[batch, S] and prompts int32[batch, 1] of each batch."""
    inputs = [np.array(batch, np.int32) for batch in self.inputs]
    if self.prompts is None:
      return [(batch, None) for batch in inputs]
    return list(zip(inputs, (np.array(p, np.int32) for p in self.prompts)))


def send(
    stream: BinaryIO, message: dict[str, Any], array: Array | None = None
) -> None:
  """Writes a message."""
  if array is not None:
    header = {'dtype': array.dtype, 'shape': array.shape}
    header['bytes'] = array.data.size
    message = message | {'array': header}
  stream.write(json.dumps(message).encode() + b'\n')
  if array is not None:
    stream.write(array.data.data)
  stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], Array | None] | None:
  """Reads a message; None at the end of the stream."""
  line = stream.readline()
  if not line:
    return None
  message = json.loads(line)
  header = message.pop('array', None)
  if header is None:
    return message, None
  data = np.empty(header['bytes'], np.uint8)
  done = 0
  while done < data.size:
    count = stream.readinto(memoryview(data)[done:])  # type: ignore
    if not count:
      raise EOFError('the stream ended within an array')
    done += count
  return message, Array(header['dtype'], tuple(header['shape']), data)


def serve(make: Callable[[], Any]) -> None:
  """Answers the parent's messages on standard input until it closes.

  Args:
    make: makes the worker. Its methods take the message's fields and, where one
      came, the array, and return the fields of the answer, or these and an
      array. What they raise is the answer {'error', 'missing'}.
  """
  out = os.fdopen(os.dup(1), 'wb')
  # Whatever a library prints must not get between the messages.
  os.dup2(2, 1)
  worker = None
  while (received := receive(sys.stdin.buffer)) is not None:
    message, array = received
    try:
      worker = make() if worker is None else worker
      if array is not None:
        message['array'] = array
      answer = getattr(worker, message.pop('op'))(**message)
    except Exception as error:  # pylint: disable=broad-except
      frame = traceback.extract_tb(error.__traceback__)[-1]
      place = f'{os.path.basename(frame.filename)}:{frame.lineno}'
      answer = {
          'error': f'{type(error).__name__}: {error} ({place})',
          'missing': getattr(error, 'name', None)
          if isinstance(error, ModuleNotFoundError)
          else None,
      }
    answer, array = answer if isinstance(answer, tuple) else (answer, None)
    send(out, answer or {}, array)


def peak_bytes() -> int:
  """Most memory that this process has held, as Linux counts it."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
