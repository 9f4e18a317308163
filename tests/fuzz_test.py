# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Any argument works or is refused by name; no subcommand shows a traceback."""

import functools

import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
import jax
import numpy as np
import pytest

import t5x_specdec
from t5x_specdec import loop
from t5x_specdec.cli import main
from t5x_specdec.testing import toys

_VOCAB = 6
_TABLE = {'table': np.zeros([2, _VOCAB, _VOCAB, _VOCAB], np.float32)}
_FUZZED = functools.partial(
    hypothesis.settings,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)
# Large ones would be honoured, at the price of memory and of compilation.
_INTEGERS = st.integers(-(2**70), 8)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    _INTEGERS,
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
)
_ARRAYS = st.one_of(
    *(
        arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3,
                                                 min_side=0, max_side=3))
        for dtype in (np.int32, np.int64, np.uint8, np.float32, np.bool_,
                      np.complex64, 'U2', object)
    )
)
_KEYS = st.sampled_from([
    jax.random.key(1),
    jax.random.PRNGKey(1),
    jax.random.split(jax.random.key(1), 2),
    jax.random.split(jax.random.PRNGKey(1), 2),
    jax.random.split(jax.random.key(1), 3),
    jax.random.key(1, impl='rbg'),
])
_ANYTHING = st.one_of(
    _SCALARS,
    _ARRAYS,
    _KEYS,
    st.lists(_SCALARS, max_size=3),
    st.dictionaries(st.text(max_size=2), _SCALARS, max_size=2),
    st.sampled_from([object(), int, len, np.nan, -0.0, {}, (), 'token']),
)
_ARGUMENTS = (
    'inputs', 'prompts', 'max_decode_len', 'gamma', 'eos_id', 'rng',
    'row_keys', 'temperature', 'topk', 'topp', 'num_decodes',
    'max_decode_steps', 'rescale_log_probs', 'verification', 'trace',
)
# Which others a message may name: what cannot be judged alone.
_TOGETHER = {
    'inputs': ('batch', 'prompts'),
    'prompts': ('batch',),
    'max_decode_len': ('max_decode_steps',),
    'topk': ('topp',),
}


@pytest.fixture
def only_traced(monkeypatch):
  """What passes the checks is traced and neither compiled nor run."""
  decode = loop.decode

  def trace(*args, **static):
    call = functools.partial(decode, **static)
    return jax.eval_shape(call, *args)

  monkeypatch.setattr(loop, 'decode', trace)


def call(**change):
  """A legal call but for `change`."""
  decoder = toys.TableDecoder(_VOCAB)
  arguments = {
      'inputs': np.ones([2, 3], np.int32),
      'max_decode_len': 4,
      'gamma': 2,
      'topk': 0,
  } | change
  return t5x_specdec.speculative_decode(
      decoder, decoder, _TABLE, _TABLE, **arguments
  )


def works_or_names(names, **change):
  """Whether a call works; if not, the error must name one of `names`."""
  try:
    result = call(**change)
  except (ValueError, TypeError) as error:
    assert any(name in str(error) for name in names), (change, str(error))
    return False
  length = change.get('max_decode_len', 4)
  assert result.tokens.shape[2] == length
  return True


@pytest.mark.parametrize('name', _ARGUMENTS)
def test_any_argument_works_or_is_refused_by_name(name, only_traced):
  @_FUZZED(max_examples=40)
  @hypothesis.given(value=_ANYTHING)
  def check(value):
    works_or_names((name, *_TOGETHER.get(name, ())), **{name: value})

  check()


def test_any_legal_arguments_work_together(only_traced):
  """Every combination of legal values is accepted and traced."""

  @_FUZZED(max_examples=15)
  @hypothesis.given(
      batch=st.integers(1, 3),
      width=st.integers(1, 3),
      length=st.integers(1, 6),
      gamma=st.integers(1, 4),
      temperature=st.sampled_from([0, 0.0, 1e-6, 1.0, 1e3, np.float32(0.5)]),
      cut=st.sampled_from([{}, {'topk': 3}, {'topp': 0.5}, {'topp': 1}]),
      decodes=st.integers(1, 3),
      eos=st.sampled_from([1, 5, 10_000, -1]),
      rule=st.sampled_from(['token', 'block']),
      trace=st.booleans(),
      data=st.data(),
  )
  def check(
      batch, width, length, gamma, temperature, cut, decodes, eos, rule, trace,
      data,
  ):
    prompt = data.draw(st.integers(0, length))
    steps = data.draw(st.none() | st.integers(1, length))
    result = call(
        inputs=np.ones([batch, width], np.int64),
        prompts=np.full([batch, prompt], 2) if prompt else None,
        max_decode_len=length,
        gamma=gamma,
        temperature=temperature,
        num_decodes=decodes,
        max_decode_steps=steps,
        eos_id=eos,
        verification=rule,
        trace=trace,
        **cut,
    )
    assert result.tokens.shape == (batch, decodes, length)
    assert result.scores.shape == (batch, decodes)

  check()


_WORDS = st.one_of(
    st.text(
        st.characters(exclude_characters='\0', exclude_categories=['Cs']),
        max_size=6,
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
    st.sampled_from(['nan', '1e400', '', '-', '--', 'ngram', 'model', '.']),
)
_FLAGS = {
    'generate': (
        'draft', 'vocabulary', 'gamma', 'temperature', 'topk', 'topp', 'seed',
        'batch_size', 'max_decode_len', 'num_decodes', 'verification',
        'draft_checkpoint', 'draft_table', 'dtype', 'input', 'output',
    ),
    'certify': (
        'draft', 'vocabulary', 'gamma', 'samples', 'seed', 'batch_size',
        'max_decode_len', 'max_input_len', 'input', 'dtype', 'draft_table',
    ),
    'demo': ('gamma', 'temperature', 'topk', 'topp', 'seed', 'draft'),
    'ngram build': ('vocabulary', 'order', 'output', 'examples', 'split'),
}
# What each is given that no value of the other flags can make work.
_NEVER = {
    'generate': ['--target', 'no_such_folder'],
    'certify': ['--target', 'no_such_folder'],
    'demo': ['--n', '0'],
    'ngram build': ['--input', 'no_such_file'],
}


@pytest.mark.parametrize('command', _FLAGS)
def test_any_command_line_ends_in_one_line(command, tmp_path, monkeypatch,
                                           capsys):
  """Junk is refused: exit status 2, and an error without a traceback."""
  monkeypatch.chdir(tmp_path)

  @_FUZZED(max_examples=40)
  @hypothesis.given(
      options=st.lists(
          st.tuples(st.sampled_from(_FLAGS[command]), _WORDS), max_size=5
      )
  )
  def check(options):
    argv = command.split() + _NEVER[command]
    argv += [f'--{name}={value}' for name, value in options]
    try:
      status = main.main(argv)
    except SystemExit as error:  # argparse, after its usage
      status = error.code
    out, err = capsys.readouterr()
    assert status == 2, argv
    assert not out
    lines = err.rstrip('\n').split('\n')
    assert 't5x-specdec' in lines[-1] or 'error:' in err, err
    assert 'Traceback' not in err
    assert lines[0].startswith(('usage:', 't5x-specdec: error:')), err
    assert len(lines) == 1 or lines[0].startswith('usage:'), err

  check()
