# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains one model of the pair from scratch, resumably, on the CPU."""

from collections.abc import Iterator
import contextlib
import dataclasses
import pathlib
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from demo_training import batches as batching
from demo_training import fast
from demo_training import objective
from demo_training import states
from t5x_specdec import parameters
from t5x_specdec.parameters import PyTree


@dataclasses.dataclass(frozen=True)
class Recipe:
  """How a model is trained.

  Attributes:
    minutes: wall time over which the rate decays to zero; ignored with `steps`.
    steps: number of steps over which it decays; 0 decays over `minutes`.
    peak_rate: learning rate at its peak, relative to each parameter's size.
    warmup_steps: steps in which the rate rises.
    weight_decay: weight decay, relative to the learning rate.
    label_smoothing: share of the probability spread over the vocabulary.
    word_dropout: share of input tokens, on both sides, replaced by unknown.
    unit_dropout: share of feed-forward units left out of a step.
    seed: of the initial parameters, the order of batches and the dropouts.
    eval_every: steps between evaluations on dev.
    save_seconds: seconds between checkpoints.
  """

  minutes: float = 75.0
  steps: int = 0
  peak_rate: float = 0.02
  warmup_steps: int = 200
  weight_decay: float = 0.01
  label_smoothing: float = 0.0
  word_dropout: float = 0.05
  unit_dropout: float = 0.0
  seed: int = 0
  eval_every: int = 500
  save_seconds: float = 120.0

  def rate(self, step: int, progress: float) -> float:
    """Returns the learning rate: a linear rise, then a linear fall to zero.

    Args:
      step: steps taken.
      progress: share of the training that is done.
    """
    rise = min(1.0, (step + 1) / self.warmup_steps)
    return self.peak_rate * rise * max(0.0, 1.0 - progress)


def optimizer(weight_decay: float) -> optax.GradientTransformation:
  """Adam with the steps in units of each parameter's size, as T5's Adafactor.

  T5 draws its first parameters at very different sizes (embeddings at 1, query
  kernels at 1/8 of the others), which one absolute step cannot suit. The
  learning rate is multiplied in by the caller, since it depends on the clock.

  Args:
    weight_decay: weight decay, relative to the learning rate.
  """
  def sized(update, param):
    return update * jnp.maximum(jnp.sqrt(jnp.mean(jnp.square(param))), 1e-3)

  return optax.chain(
      optax.clip_by_global_norm(1.0),
      optax.scale_by_adam(b1=0.9, b2=0.98, eps=1e-9),
      optax.stateless_with_tree_map(sized),
      optax.add_decayed_weights(weight_decay),
  )


@contextlib.contextmanager
def _held_back() -> Iterator[list[int]]:
  """Collects SIGINT and SIGTERM, so that a step is finished and saved first."""
  caught = []
  before = {
      number: signal.signal(number, lambda number, _: caught.append(number))
      for number in (signal.SIGINT, signal.SIGTERM)
  }
  try:
    yield caught
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


class Trainer:
  """The training state of one model, its jitted steps and its files.

  Attributes:
    state: parameters, optimizer state.
    step: steps taken.
    elapsed: seconds spent in training, over all runs.
  """

  def __init__(
      self,
      config: parameters.T5Config,
      recipe: Recipe,
      folder: pathlib.Path,
      teacher: tuple[parameters.T5Config, PyTree] | None = None,
      start: PyTree | None = None,
  ):
    """Goes on from `folder`'s files, where it has them.

    Args:
      config: the network.
      recipe: how to train it.
      folder: where its log and checkpoints are.
      teacher: network and parameters of the model whose law is to be learned.
      start: the first parameters, instead of fresh ones.
    """
    self._recipe = recipe
    self._folder = folder
    self._model = fast.T5(config)
    self._teacher = fast.T5(teacher[0]) if teacher else None
    self._teacher_params = jax.tree.map(
        jnp.asarray, teacher[1] if teacher else {}
    )
    self._optimizer = optimizer(recipe.weight_decay)
    self._key = jax.random.key(recipe.seed)
    if start is None:
      start = parameters.init_params(config, jax.random.fold_in(self._key, 0))
    params = jax.tree.map(jnp.asarray, start)
    self.state = (params, self._optimizer.init(params))
    self.step = 0
    self.elapsed = 0.0
    self.best = np.inf
    self._update = jax.jit(self._update_impl, donate_argnums=0)
    self._measure = jax.jit(self._measure_impl)
    folder.mkdir(parents=True, exist_ok=True)
    self._restore()

  def _loss(self, params, teacher, inputs, targets, key):
    recipe = self._recipe
    noisy = [
        objective.drop_words(
            tokens, recipe.word_dropout, jax.random.fold_in(key, i)
        )
        for i, tokens in enumerate((inputs, objective.shift_right(targets)))
    ]
    if recipe.unit_dropout:
      params = objective.drop_units(
          params, recipe.unit_dropout, jax.random.fold_in(key, 2)
      )
    logits = self._model.logits(params, *noisy)
    teacher_logits = None
    if self._teacher:
      teacher_logits = self._teacher.logits(
          teacher, inputs, objective.shift_right(targets)
      )
    loss, count = objective.cross_entropy(
        logits, targets, recipe.label_smoothing, teacher_logits
    )
    return loss / jnp.maximum(count, 1.0), (loss, count)

  def _update_impl(self, state, teacher, inputs, targets, rate, step):
    params, moments = state
    key = jax.random.fold_in(self._key, step)
    grads, sums = jax.grad(self._loss, has_aux=True)(
        params, teacher, inputs, targets, key
    )
    updates, moments = self._optimizer.update(grads, moments, params)
    params = jax.tree.map(lambda p, u: p - rate * u, params, updates)
    return (params, moments), jnp.stack(sums)

  def _measure_impl(self, params, inputs, targets):
    logits = self._model.logits(params, inputs, objective.shift_right(targets))
    hits = jnp.sum((jnp.argmax(logits, -1) == targets) & (targets > 0))
    return jnp.stack([*objective.cross_entropy(logits, targets), hits])

  def evaluate(self, dev: batching.Batches) -> tuple[float, float]:
    """Returns loss per token, in nats, and token accuracy on `dev`."""
    sums = np.zeros(3)
    for item in dev.epoch(None):
      batch = dev.build(*item)
      sums += np.asarray(
          self._measure(self.state[0], batch.inputs, batch.targets)
      )
    return sums[0] / sums[1], sums[2] / sums[1]

  def progress(self) -> float:
    """Returns which share of the training is done, 1 at its end."""
    if self._recipe.steps:
      return self.step / self._recipe.steps
    return self.elapsed / (60.0 * self._recipe.minutes)

  def run(self, train: batching.Batches, dev: batching.Batches) -> None:
    """Trains to the end of the recipe and saves.

    Args:
      train: the training pairs.
      dev: what losses are measured on.

    Raises:
      SystemExit: SIGINT or SIGTERM came, and all is saved.
    """
    with _held_back() as stopped:
      self._run(train, dev, stopped)
      self.save()
    if stopped:
      self._log(f'stopped at step {self.step}: the same command goes on')
      raise SystemExit(128 + stopped[0])
    self._log(f'finished: {self.step} steps, {self.elapsed:.0f} s')

  def _run(
      self, train: batching.Batches, dev: batching.Batches, stopped: list[int]
  ) -> None:
    saved = last = time.monotonic()
    sums, seen = [], self.elapsed
    epoch, order = -1, []
    while self.progress() < 1.0 and not stopped:
      number, index = divmod(self.step, train.per_epoch)
      if number != epoch:
        epoch, order = number, train.epoch(number)
      batch = train.build(*order[index])
      rate = self._recipe.rate(self.step, self.progress())
      self.state, now = self._update(
          self.state,
          self._teacher_params,
          batch.inputs,
          batch.targets,
          np.float32(rate),
          np.uint32(self.step),
      )
      sums.append(now)
      self.step += 1
      jax.block_until_ready(now)
      clock = time.monotonic()
      self.elapsed, last = self.elapsed + clock - last, clock
      if self.step % self._recipe.eval_every == 0:
        self._report(sums, seen, epoch, rate, dev)
        sums, seen = [], self.elapsed
      if clock - saved > self._recipe.save_seconds:
        self.save()
        saved = clock
    if not stopped:
      self._report(sums, seen, epoch, 0.0, dev)

  def _report(self, sums, since, epoch, rate, dev) -> None:
    if not sums:
      return
    loss, count = np.sum(np.asarray(sums), axis=0)
    dev_loss, dev_accuracy = self.evaluate(dev)
    speed = count / max(self.elapsed - since, 1e-9)
    self._log(
        f'step {self.step} epoch {epoch} progress {self.progress():.3f} '
        f'rate {rate:.5f} train loss {loss / count:.3f} '
        f'dev loss {dev_loss:.3f} accuracy '
        f'{dev_accuracy:.3f} tokens/s {speed:.0f} steps/s '
        f'{len(sums) / max(self.elapsed - since, 1e-9):.2f}'
    )
    if dev_loss < self.best:
      self.best = dev_loss
      named = states.named_params(self.state[0], self.step)
      states.write(self._folder / 'best.npz', named)

  def _log(self, line: str) -> None:
    line = f'{time.strftime("%H:%M:%S")} {line}'
    print(line, flush=True)
    with (self._folder / 'train.log').open('a') as file:
      print(line, file=file)

  def save(self) -> None:
    """Writes all that training needs to go on."""
    moments = {
        f'moments/{i}': np.asarray(leaf)
        for i, leaf in enumerate(jax.tree.leaves(self.state[1]))
    }
    states.write(
        self._folder / 'latest.npz',
        {
            **states.named_params(self.state[0], self.step),
            **moments,
            'elapsed': np.asarray(self.elapsed, np.float64),
            'best': np.asarray(self.best, np.float64),
        },
    )

  def _restore(self) -> None:
    path = self._folder / 'latest.npz'
    if not path.exists():
      return
    params, self.step = states.load_params(path)
    arrays = states.read(path)
    self.elapsed, self.best = float(arrays['elapsed']), float(arrays['best'])
    leaves, tree = jax.tree.flatten(self.state[1])
    moments = tree.unflatten(
        [jnp.asarray(arrays[f'moments/{i}']) for i in range(len(leaves))]
    )
    self.state = (jax.tree.map(jnp.asarray, params), moments)
    self._log(f'continues from {path} at step {self.step}')
