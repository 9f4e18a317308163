"""infer.py on several devices and in several processes; memory per device.

What is sharded how is read from the program that XLA compiled for infer.py's
own step: shapes in it are those of one device.
"""

from __future__ import annotations

from collections import Counter
import dataclasses
import math
import pathlib
import re
from typing import Any

import pytest
import t5x_processes
import t5x_runs

import t5x_specdec
from t5x_specdec import parameters
from t5x_specdec import T5Config

pytestmark = [pytest.mark.t5x, pytest.mark.slow]

_BATCH = 4
_GAMMA = 5
_SCRIPT = (
    pathlib.Path(t5x_specdec.__file__).parents[1] / 'scripts/pair_memory.py'
)
# The binding that docs/from_t5x_to_speculative.md gives.
_SHARDED_DRAFT = {
    'partitioning__standard_logical_axis_rules__additional_rules': [
        ('draft_vocab', 'model'),
        ('draft_mlp', 'model'),
        ('draft_heads', 'model'),
        ('draft_joined_kv', 'model'),
    ]
}


runs = t5x_runs.runs


def caches(
    config: T5Config,
    rows: int,
    heads: int,
    inputs: int = t5x_runs.INPUTS,
    targets: int = t5x_runs.TARGETS,
) -> Counter[tuple[int, ...]]:
  """How many caches of each shape a device is to hold.

  Args:
    config: of the model.
    rows: of the batch, on one device.
    heads: on one device.
    inputs: length of the inputs.
    targets: length of the text.

  Returns:
    {[rows, heads, length, head_dim]: keys and values of all layers}.
  """
  shapes = Counter()
  for length in (targets + _GAMMA + 2, inputs):
    shape = (rows, heads, length, config.head_dim)
    shapes[shape] += 2 * config.num_decoder_layers
  return shapes


def carried_caches(dump: pathlib.Path) -> Counter[tuple[int, ...]]:
  """Per-device shapes of the 4-D float arrays that the decoding loop carries.

  Args:
    dump: folder that XLA dumped compiled programs to.

  Returns:
    {shape: how many}, of the loop with the longest carry: the others are inside
    of it.
  """
  (path,) = dump.glob('*infer_step*cpu_after_optimizations.txt')
  loops = re.findall(r' = \((.*)\) while\(', path.read_text())
  shapes = [re.findall(r'f32\[([\d,]+)\]', loop) for loop in loops]
  carried = max(shapes, key=len)
  found = Counter(tuple(map(int, shape.split(','))) for shape in carried)
  return Counter({k: n for k, n in found.items() if len(k) == 4})


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Devices that T5X arranges as data x model by `model_parallel_submesh`.

  On a CPU a submesh counts processes and devices of a process.
  """

  data: int
  model: int
  processes: int
  devices: int
  submesh: tuple[int, int]

  @property
  def options(self) -> dict[str, int]:
    return {'devices': self.devices, 'processes': self.processes}

  @property
  def changes(self) -> dict[str, Any]:
    """Of the bindings."""
    name = 'partitioning__PjitPartitioner__'
    return {
        f'{name}num_partitions': None,
        f'{name}model_parallel_submesh': self.submesh,
    }


_ONE_HOST = Mesh(2, 4, processes=1, devices=8, submesh=(1, 4))
# The batch is split between the hosts, ...
_TWO_HOSTS = Mesh(2, 4, processes=2, devices=4, submesh=(1, 4))
# ... or every layer is.
_ACROSS_HOSTS = Mesh(1, 2, processes=2, devices=1, submesh=(2, 1))


@pytest.mark.parametrize(
    ('name', 'mesh', 'draft', 'rules', 'size'),
    [
        # In bytes, one device would hold 71,680 of the target's caches, 26,880
        # of the draft's with six heads and 71,680 of the other's.
        ('one_host', _ONE_HOST, 'six_heads', {}, 8_960 + 13_440),
        ('sharded_draft', _ONE_HOST, 'near', _SHARDED_DRAFT, 2 * 8_960),
        ('two_hosts', _TWO_HOSTS, 'six_heads', {}, 8_960 + 13_440),
        ('across_hosts', _ACROSS_HOSTS, 'six_heads', {}, 35_840 + 26_880),
    ],
)
def test_lines_are_those_of_one_device_and_caches_are_sharded(
    runs, name, mesh, draft, rules, size
):
  dump = runs.folder / f'dump_{name}'
  got = runs.infer(
      name,
      draft,
      options=mesh.options
      | {
          'xla_flags': (
              f'--xla_dump_to={dump} --xla_dump_hlo_as_text'
              ' --xla_dump_hlo_module_re=.*infer_step.*'
          )
      },
      **mesh.changes,
      **rules,
  )
  assert got == runs.once(f'{draft}_on_one', draft)
  assert t5x_runs.texts(got) == t5x_runs.texts(runs.stock())

  rows, target = _BATCH // mesh.data, t5x_runs.TARGET
  want = caches(target, rows, target.num_heads // mesh.model)
  if draft == 'near':
    want += want  # the draft has the target's shapes
  else:
    want += caches(t5x_runs.SIX_HEADS, rows, t5x_runs.SIX_HEADS.num_heads)
  found = carried_caches(dump)
  assert found == want
  assert sum(n * math.prod(shape) * 4 for shape, n in found.items()) == size


@pytest.mark.parametrize(
    ('name', 'mesh'), [('one_host', _ONE_HOST), ('two_hosts', _TWO_HOSTS)]
)
def test_mode_predict_counts_each_row_once_on_a_mesh(runs, name, mesh):
  """On eight texts, so that no row is padding, which is counted, too."""
  done = runs.run(
      f'predict_{name}',
      'near',
      options=mesh.options,
      infer__mode='predict',
      utils__DatasetConfig__split='eight',
      **mesh.changes,
  )
  got = t5x_processes.lines(runs.folder / f'predict_{name}')
  want = runs.once('near_on_one', 'near')[:8]
  assert all('aux' not in line for line in got)
  assert t5x_runs.texts(got) == t5x_runs.texts(want)
  assert t5x_runs.texts(got) == t5x_runs.texts(runs.stock()[:8])
  total = {
      name: sum(line['aux']['speculation'][name] for line in want)
      for name in ('overlap', 'judged', 'emitted', 'rounds')
  }
  alpha = total['overlap'] / total['judged']
  per_call = total['emitted'] / total['rounds']
  ((alpha_said, per_call_said, calls),) = t5x_runs.logged(done).values()
  assert calls == total['rounds']
  assert float(alpha_said) == pytest.approx(alpha, abs=6e-4)
  assert float(per_call_said) == pytest.approx(per_call, abs=6e-4)


def pair_memory(folder: pathlib.Path, *args: str) -> dict[str, int]:
  """Bytes per device that the script prints, by name."""
  done = t5x_processes.run(folder, [str(_SCRIPT), *args])
  lines = re.findall(r'^(\S.*?) +([\d,]+) B ', done.stdout, re.MULTILINE)
  return {name: int(size.replace(',', '')) for name, size in lines}


def sizes(config: T5Config) -> dict[str, int]:
  """Numbers of parameters: those of norms, and all others."""
  count = Counter()
  for path, shape in parameters.param_shapes(config).items():
    count['norms' if path[-1] == 'scale' else 'others'] += math.prod(shape)
  return count


def test_memory_adds_up_to_what_xla_allocates(runs):
  found = pair_memory(
      runs.folder,
      '--gin_file',
      str(runs.folder / 'target.gin'),
      str(runs.folder / 'six_heads.gin'),
      *('--mesh', '2x4', '--batch', str(_BATCH), '--compile'),
      *('--inputs', str(t5x_runs.INPUTS), '--targets', str(t5x_runs.TARGETS)),
      *('--dtype', 'float32'),
  )
  target, draft = sizes(t5x_runs.TARGET), sizes(t5x_runs.SIX_HEADS)
  # Of its matrices a device holds a quarter of the target's, all the draft's.
  assert found['target parameters'] == (
      target['norms'] * 4 + target['others']
  )
  assert found['draft parameters'] == 4 * (draft['norms'] + draft['others'])
  total = 0
  for name, config, heads in (
      ('target', t5x_runs.TARGET, 2),
      ('draft', t5x_runs.SIX_HEADS, 6),
  ):
    shapes = caches(config, _BATCH // 2, heads)
    for kind, (shape, n) in zip(('self', 'cross'), shapes.items()):
      size = found[f'{name} {kind}-attention caches']
      assert size == n * math.prod(shape) * 4
      total += size
  # int32 inputs (targets are not read without a prompt), a key of two words.
  batch = _BATCH // 2 * t5x_runs.INPUTS * 4 + 8
  assert found['arguments'] == (
      found['target parameters'] + found['draft parameters'] + batch
  )
  assert found['temporaries, caches included'] > total


def test_xxl_in_bfloat16_by_shapes(tmp_path):
  """T5 1.1 XXL and Small, whose sizes are known (Raffel et al., 2020)."""
  found = pair_memory(tmp_path)
  four = pair_memory(tmp_path, '--mesh', '1x4')
  assert found['target parameters'] == 2 * 11_135_332_352
  assert found['draft parameters'] == 2 * 76_961_152
  assert found['target cross-attention caches'] == 2 * 24 * 64 * 512 * 64 * 2
  assert found['target self-attention caches'] == 2 * 24 * 64 * 519 * 64 * 2
  assert found['draft cross-attention caches'] == 2 * 8 * 6 * 512 * 64 * 2
  for name, size in found.items():
    if name == 'target parameters':  # norms are on every device
      norms = 2 * (24 * 2 + 24 * 3 + 2) * 4096
      assert four[name] == (size - norms) // 4 + norms
    else:
      assert four[name] == (size if name.startswith('draft') else size // 4)
