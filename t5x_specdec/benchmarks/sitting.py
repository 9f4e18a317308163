# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""One sitting: every framework in turn runs each of its cases once, repeatedly.

Only ratios of times measured close to each other mean anything on a machine
that has other work or changes its clock, so repeats are interleaved across
processes: while one runs, the others wait for the parent's word. Where memory
does not hold them all, or they would share an accelerator, they come one after
the other, which is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
import contextlib
import dataclasses
from typing import Any

import numpy as np

from t5x_specdec.benchmarks import checks
from t5x_specdec.benchmarks import machine
from t5x_specdec.benchmarks import shapes
from t5x_specdec.benchmarks.protocol import Array
from t5x_specdec.benchmarks.protocol import Job
from t5x_specdec.benchmarks.remote import Remote
from t5x_specdec.benchmarks.remote import WorkerError
from t5x_specdec.benchmarks.workloads import Workload

# What a process holds beside the weights: its libraries, caches, activations.
_OVERHEAD = 3 * 2**29


@dataclasses.dataclass(frozen=True)
class Worker:
  """A worker to be started.

  Attributes:
    name: as it is called in the results.
    module: of this package.
    cases: what it is to time, in this order; see its module.
    models: which models' weights it takes.
    remote: further arguments of `Remote`.
  """

  name: str
  module: str
  cases: tuple[str, ...]
  models: tuple[str, ...]
  remote: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Record:
  """What was measured, by the worker's name, or by its name and the case.

  Attributes:
    seconds: of every repeat.
    first: seconds of the first run, which compiles.
    answers: the last answer of each case: tokens, counters.
    started: the answer to 'start': versions, device.
    finished: the answer to 'finish': memory.
    logits: teacher-forced logits of the random weights, by the worker's name,
      the model's and the width of the blocks.
    absent: workers whose interpreter lacks a module, and which.
    errors: what else went wrong, by worker or by 'worker case'.
    interleaved: whether repeats were.
  """

  seconds: dict[tuple[str, str], list[float]] = dataclasses.field(
      default_factory=lambda: defaultdict(list)
  )
  first: dict[tuple[str, str], float] = dataclasses.field(default_factory=dict)
  answers: dict[tuple[str, str], list[dict]] = dataclasses.field(
      default_factory=lambda: defaultdict(list)
  )
  started: dict[str, dict] = dataclasses.field(default_factory=dict)
  finished: dict[str, dict] = dataclasses.field(default_factory=dict)
  logits: dict[tuple[str, str, int], np.ndarray] = dataclasses.field(
      default_factory=dict
  )
  absent: dict[str, str] = dataclasses.field(default_factory=dict)
  errors: dict[str, str] = dataclasses.field(default_factory=dict)
  interleaved: bool = True


def steps(workers: list[Worker], repeats: int) -> int:
  """How often `sit` tells of progress."""
  return sum(2 + len(w.cases) * (1 + repeats) for w in workers)


def sit(
    workers: list[Worker],
    workload: Workload,
    job: Job,
    *,
    widths: tuple[int, ...],
    repeats: int,
    tell: Callable[[str], None],
) -> Record:
  """Measures everything.

  Args:
    workers: the first is ours: what it raises is raised, what others raise is
      recorded.
    workload: models and inputs.
    job: the same, as workers take it.
    widths: of the blocks in which our worker's logits are computed too.
    repeats: of every case.
    tell: called with what is done next, `steps` times if nothing fails.

  Returns:
    The record.

  Raises:
    WorkerError: our own worker failed.
  """
  record = Record()
  with contextlib.ExitStack() as stack:
    team = _Team(workload, job, widths, record, tell)
    team.add(workers[0], stack)
    device = record.started[workers[0].name]['platform']
    need = sum(_bytes(w, workload) for w in workers)
    record.interleaved = device == 'cpu' and need <= machine.free_bytes()
    if record.interleaved:
      for worker in workers[1:]:
        team.add(worker, stack)
    team.measure(repeats)
  if not record.interleaved:
    for worker in workers[1:]:
      with contextlib.ExitStack() as stack:
        team = _Team(workload, job, widths, record, tell)
        team.add(worker, stack)
        team.measure(repeats)
  return record


def _bytes(worker: Worker, workload: Workload) -> int:
  """About what a worker's process will hold."""
  weights = (shapes.parameter_bytes(workload.configs[m]) for m in worker.models)
  return _OVERHEAD + sum(weights)


class _Team:
  """Processes that are alive at one time."""

  def __init__(self, workload, job, widths, record, tell):
    self._workload = workload
    self._job = job
    self._widths = widths
    self._record = record
    self._tell = tell
    self._members: dict[str, tuple[Worker, Remote]] = {}
    self._cases: list[tuple[str, str]] = []

  def add(self, worker: Worker, stack: contextlib.ExitStack) -> None:
    """Starts a worker and gives it the job."""
    self._tell(f'starting {worker.name}')
    remote = stack.enter_context(Remote(worker.module, **worker.remote))
    self._members[worker.name] = worker, remote
    with self._noted(worker.name, starting=True):
      answer = remote.call('start', job=dataclasses.asdict(self._job))
      self._record.started[worker.name] = answer

  @contextlib.contextmanager
  def _noted(self, name: str, case: str | None = None, starting: bool = False):
    """Notes what a worker raises; without a case, or dead, it is out."""
    try:
      yield
    except WorkerError as error:
      if name == 'ours':
        raise WorkerError(f'ours: {error}', error.missing, error.dead) from None
      if starting and error.missing:
        self._record.absent[name] = f'no module {error.missing}'
      else:
        self._record.errors[f'{name} {case}' if case else name] = str(error)
      if case is None or error.dead:
        del self._members[name]
        self._cases = [c for c in self._cases if c[0] != name]
      else:
        self._cases = [c for c in self._cases if c != (name, case)]

  def measure(self, repeats: int) -> None:
    """Loads, checks, warms up, and runs all cases in turn."""
    for name in self._members:
      self._tell(f'loading weights: {name}')
    self._load(self._workload.random_weights())
    self._compute_logits()
    self._load(self._workload.weights())
    for name, (worker, remote) in list(self._members.items()):
      if worker.models:
        with self._noted(name):
          remote.call('ready')
    self._prepare()
    for i in range(repeats):
      for name, case in list(self._cases):
        self._tell(f'repeat {i + 1} of {repeats}: {name} {case}')
        if (name, case) in self._cases:
          self._run(name, case)
    for name, (_, remote) in list(self._members.items()):
      with self._noted(name):
        self._record.finished[name] = remote.call('finish')

  def _load(self, leaves) -> None:
    """Hands each leaf to everybody who takes it."""
    for model, path, leaf in leaves:
      array = Array.of(leaf)
      takers = [n for n, (w, _) in self._members.items() if model in w.models]
      for name in takers:
        with self._noted(name):
          self._members[name][1].ask('leaf', array, model=model, path=path)
      for name in set(takers) & set(self._members):
        with self._noted(name):
          self._members[name][1].answer()

  def _compute_logits(self) -> None:
    """Has every worker compute logits of the random weights."""
    for name, (worker, remote) in list(self._members.items()):
      for model in worker.models:
        text = checks.text(self._workload.configs[model].vocab_size)
        for width in self._widths if name == 'ours' else (1,):
          with self._noted(name):
            remote.ask(
                'logits',
                model=model,
                width=width,
                inputs=text.inputs.tolist(),
                tokens=text.tokens(max(self._widths)).tolist(),
            )
            _, array = remote.answer()
            assert array is not None
            self._record.logits[name, model, width] = array.numpy()

  def _prepare(self) -> None:
    for name, (worker, remote) in list(self._members.items()):
      for case in worker.cases:
        self._tell(f'compiling: {name} {case}')
        if name not in self._members:
          continue
        with self._noted(name, case):
          first = remote.call('prepare', case=case)['seconds']
          self._record.first[name, case] = first
          self._cases.append((name, case))

  def _run(self, name: str, case: str) -> None:
    with self._noted(name, case):
      answer = self._members[name][1].call('run', case=case)
      self._record.seconds[name, case].append(answer.pop('seconds'))
      self._record.answers[name, case].append(answer)
