"""A SeqIO task: the demo pair's held-out sentences, English to German."""

import os

import seqio
import tensorflow as tf

_PAIR = 't5x_specdec/demo_pair'
_WORDS = seqio.SentencePieceVocabulary(f'{_PAIR}/vocabulary.model')
_FEATURE = seqio.Feature(_WORDS, add_eos=True)


def _split(line):
  english, german = tf.unstack(tf.strings.split(line, '\t'), 2)
  return {'inputs': english, 'targets': german}


def _read(split, shuffle_files=False, seed=None):
  del split, shuffle_files, seed
  lines = tf.data.TextLineDataset(f'{_PAIR}/test.tsv')
  return lines.take(int(os.environ.get('DEMO_LINES', '10'))).map(_split)


def _exact(targets, predictions):
  return {'exact': sum(t == p for t, p in zip(targets, predictions))}


seqio.TaskRegistry.add(
    'demo_ende',
    source=seqio.FunctionDataSource(_read, splits=['test']),
    preprocessors=[
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
    ],
    output_features={'inputs': _FEATURE, 'targets': _FEATURE},
    metric_fns=[_exact],
)
