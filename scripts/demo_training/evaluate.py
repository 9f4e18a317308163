"""Quality and speculation on the held-out pages, and the model card."""

import json
import pathlib

import numpy as np
import sacrebleu
import sentencepiece

from demo_training import batches as batching
from demo_training import data
from demo_training import sizes
from demo_training import train
from demo_training import vocabulary
from t5x_specdec import checkpoint_reader
from t5x_specdec import decoding
from t5x_specdec import network
from t5x_specdec import parameters

GAMMA = 5

Model = tuple[network.T5, parameters.PyTree]


def load(folder: pathlib.Path) -> tuple[Model, int]:
  """Reads an exported model: its network, its parameters and its step."""
  checkpoint = checkpoint_reader.read_checkpoint(folder, dtype='float32')
  config = parameters.config_from_params(checkpoint.params, dtype='float32')
  return (network.T5(config), checkpoint.params), checkpoint.step


class Decodes:
  """The held-out pairs decoded in a few shapes, and what was counted.

  Attributes:
    texts: the translations, in the order of the pairs.
    stats: totals over all rows, as `Stats.summary` names them.
  """

  def __init__(
      self,
      pairs: list[data.Pair],
      pieces: sentencepiece.SentencePieceProcessor,
      target: Model,
      draft: Model | None = None,
      temperature: float = 0.0,
  ):
    """Decodes every pair's source.

    Args:
      pairs: source and reference texts.
      pieces: the vocabulary.
      target: the model to decode.
      draft: the model that drafts; None decodes the target alone.
      temperature: 0 is greedy; above, the law itself is sampled.
    """
    self.texts = [''] * len(pairs)
    totals = dict.fromkeys(('overlap', 'judged', 'accepted', 'emitted'), 0.0)
    totals['rounds'] = 0.0
    batches = batching.Batches(
        batching.encode(pairs, pieces), tokens=16 * sizes.CONTEXT, seed=0
    )
    for width, members in batches.epoch(None):
      options = {
          'max_decode_len': sizes.CONTEXT,
          'temperature': temperature,
          'topk': 0,
      }
      inputs = batches.build(width, members).inputs
      if draft:
        result = decoding.speculative_decode(
            target[0],
            draft[0],
            target[1],
            draft[1],
            inputs,
            gamma=GAMMA,
            **options,
        )
      else:
        result = decoding.autoregressive_decode(
            target[0], target[1], inputs, **options
        )
      rows = np.asarray(result.tokens)[: len(members), 0].tolist()
      for member, ids in zip(members, rows, strict=True):
        self.texts[member] = pieces.decode(_text_ids(ids))
      for name in totals:
        counted = np.asarray(getattr(result.stats, name), np.float64)
        totals[name] += counted[: len(members)].sum()
    judged, rounds = max(totals['judged'], 1.0), max(totals['rounds'], 1.0)
    self.stats = {
        'alpha': totals['overlap'] / judged,
        'accepted': totals['accepted'] / judged,
        'tokens_per_target_call': totals['emitted'] / rounds,
    }


def _text_ids(ids: list[int]) -> list[int]:
  """Returns the ids before EOS, without padding."""
  if vocabulary.EOS_ID in ids:
    ids = ids[: ids.index(vocabulary.EOS_ID)]
  return [i for i in ids if i > vocabulary.UNK_ID]


def bleu(texts: list[str], pairs: list[data.Pair]) -> tuple[float, str]:
  """Returns corpus BLEU against the references, and sacrebleu's signature."""
  metric = sacrebleu.metrics.BLEU()
  score = metric.corpus_score(texts, [[german for _, german in pairs]])
  return score.score, str(metric.get_signature())


def measure(
    work: pathlib.Path, export: pathlib.Path, folders: dict[str, str]
) -> dict:
  """Measures the exported pair on the held-out test set.

  Args:
    work: folder of the training results.
    export: the exported pair.
    folders: folder below `work` of each model's training, by model.

  Returns:
    All the card states, ready for JSON.
  """
  pairs = data.read_pairs(export / 'test.tsv')
  pieces = vocabulary.load(export / 'vocabulary.model')
  models, result = {}, {'test_pairs': len(pairs), 'gamma': GAMMA}
  for name, folder in folders.items():
    models[name], step = load(export / name)
    decodes = Decodes(pairs, pieces, models[name])
    score, result['bleu_signature'] = bleu(decodes.texts, pairs)
    result[name] = {
        'parameters': sizes.count(models[name][0].config),
        'multiplications_per_step': sizes.step_cost(models[name][0].config),
        'step': step,
        'bleu': score,
        **train.record(work / folder),
    }
    if name == 'target':
      alone = decodes.texts
      result['examples'] = _examples(pairs, alone)
  for name, temperature in (('greedy', 0.0), ('sampled', 1.0)):
    decodes = Decodes(
        pairs, pieces, models['target'], models['draft'], temperature
    )
    result[name] = {**decodes.stats, 'bleu': bleu(decodes.texts, pairs)[0]}
    if name == 'greedy':
      same = [a == b for a, b in zip(alone, decodes.texts, strict=True)]
      result[name]['identical'] = sum(same)
  counts = work / 'counts.json'
  result['counts'] = json.loads(counts.read_text())
  return result


def _examples(pairs: list[data.Pair], texts: list[str]) -> list[list[str]]:
  """Draws five pairs at random, the same ones at every call."""
  drawn = np.random.default_rng(0).choice(len(pairs), 5, replace=False)
  return [[*pairs[i], texts[i]] for i in drawn]
