# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model card, from what `evaluate.measure` found."""

import pathlib
import platform
import textwrap
from typing import Any

_CARD = """\
# The demo pair: English to German help texts

A target and a draft trained from scratch on two CPU cores, small enough to
ship, for trying speculative decoding on real text. They translate sentences of
software help. Short ones come out fluent and mostly right; long ones, and
names of functions or menus that were rare in training, often do not. They are
no use as translators, and neither is their BLEU comparable with that of models
tested on general text.

| | target | draft |
|---|---|---|
| parameters | {target[parameters]:,} | {draft[parameters]:,} |
| multiplications of a decode step | {target[multiplications_per_step]:,} \
| {draft[multiplications_per_step]:,} |
| training steps | {target[steps]:,} | {draft[steps]:,} |
| step kept, of the last training | {target[step]:,} | {draft[step]:,} |
| training time, minutes | {target[minutes]:.0f} | {draft[minutes]:.0f} |
| seed | {target[recipe][seed]} | {draft[recipe][seed]} |
| dev loss, nats a token | {target[dev_loss]:.3f} | {draft[dev_loss]:.3f} |
| BLEU on held-out pages, greedy | {target[bleu]:.1f} {target[shown]} \
| {draft[bleu]:.1f} {draft[shown]} |

BLEU is sacrebleu's, `{bleu_signature}`, over {test_pairs} pairs; in brackets
the 95% interval, by resampling the pairs. {learned}
Trained and measured on {machine}, which other work shared: alone, the
target would have trained in about half the time.

## Speculation

The target alone and with the draft, on the same {test_pairs} pairs. At
temperature 1 the law itself is sampled, {samples} times for each source; the
last column is the 95% interval of the difference in BLEU from the target alone.

| temperature | gamma | alpha | tokens per target call | BLEU | identical \
| difference |
|---|---|---|---|---|---|---|
{speculation}

alpha is the mean of sum(min(p, q)) over the drafts that were judged
(Corollary 3.6); identical counts the translations equal, token by token, to the
target's own.

## Data

Debian's packages `libreoffice-help-en-us` and `libreoffice-help-de`, version
4:7.4.7-1+deb12u14: LibreOffice Help, aligned by paragraph id,
{counts[aligned]:,} aligned paragraphs, {counts[distinct pairs that differ]:,}
distinct ones that differ. Pairs of odd length ratio, or of few letters, are
left out, and so are pairs of more than 64 tokens a side (for training, their
sentences take their place where they match in number). Whole pages are held
out, and no training pair shares a side with a held-out one, case, digits and
punctuation apart: {counts[train pairs]:,} pairs of {counts[train pages]:,}
pages to train on, {counts[dev pairs]:,} of {counts[dev pages]:,} for dev,
{counts[test pairs]:,} of {counts[test pages]:,} for test. Pages on one subject
still resemble each other, so the test is of help texts like those trained on.

One SentencePiece vocabulary (unigram, every character covered) serves both
languages. Both models have T5 1.1's layers with tied embeddings, and are stored
in bfloat16 in T5X's layout, so stock T5X restores them. `scripts/train_demo.py`
makes all of it anew. The rate of these trainings followed the clock, so a
second run gives other weights; one with `--steps` gives the same ones each time
on one machine.

`bigrams.npz` is a draft without a model (`--draft bigram`, and its shorter half
`--draft unigram`): every unigram and bigram of the German side of the training
pairs, none left out, each text after the start token and with EOS. `python
scripts/train_demo.py bigrams` writes it, and so does

```sh
cut -f 2 train.tsv > german.txt
t5x-specdec ngram build --input german.txt --order 2 \\
  --vocabulary vocabulary.model --output bigrams.npz
```

## Licence

LibreOffice Help is Copyright 2000, 2010 Oracle and/or its affiliates and
Copyright 2000, 2010 LibreOffice contributors and/or their affiliates, under the
Mozilla Public License 2.0 (https://mozilla.org/MPL/2.0/). `test.tsv` is an
excerpt of it and stays under MPL-2.0, as do `vocabulary.model`, learned from
it, and `bigrams.npz`, counted in it. Whether weights trained on a text derive
from it is not settled; these are offered under MPL-2.0 too, which asks of
whoever passes them on, changed or not, to keep them under that licence and to
say where the source is: the packages named above and `scripts/train_demo.py`.
The code of this project, with which they are only packed together, is under
Apache-2.0.

## Examples

Drawn at random from the held-out pages, not picked; target alone, greedy.

{examples}
"""


def machine() -> str:
  """Returns this machine in words."""
  info = pathlib.Path('/proc/cpuinfo')
  lines = info.read_text().splitlines() if info.exists() else []
  names = [line.split(':')[1].strip() for line in lines if 'model name' in line]
  if not names:
    return platform.platform()
  return f'{len(names)} cores of an {names[0]} ({platform.machine()})'


def _interval(values: tuple[float, float], form: str = '.1f') -> str:
  low, high = values
  return f'[{low:{form}}, {high:{form}}]'


def _learned(draft: dict[str, Any]) -> str:
  recipe = draft['recipe']
  text = 'The target learned from the training pairs'
  if not recipe['teacher']:
    return f'{text}, and so did the draft.'
  first = ' at first from the pairs too, then' if recipe['start'] else ''
  return f"{text}, the draft{first} from the target's law on them."


def write(found: dict[str, Any]) -> str:
  """Returns the card's markdown.

  Args:
    found: what `evaluate.measure` returned, and the `machine` it ran on.
  """
  rows = []
  for temperature in (0, 1):
    group = found[f'T={temperature}']
    alone = group['alone']['bleu']
    rows.append(f'| {temperature} | alone | | 1 | {alone:.1f} | | |')
    for name, row in group.items():
      if name == 'alone':
        continue
      same = f'{row["identical"]} of {found["test_pairs"]}'
      rows.append(
          f'| {temperature} | {name.removeprefix("gamma=")} '
          f'| {row["alpha"]:.3f} | {row["tokens_per_target_call"]:.2f} '
          f'| {row["bleu"]:.1f} | {"" if temperature else same} '
          f'| {_interval(row["bleu_difference_interval"], "+.1f")} |'
      )
  models = {
      name: {**found[name], 'shown': _interval(found[name]['bleu_interval'])}
      for name in ('target', 'draft')
  }
  examples = '\n\n'.join(
      f'- {english}\n  - reference: {german}\n  - target: {text}'
      for english, german, text in found['examples']
  )
  text = _CARD.format(**{
      **found,
      **models,
      'speculation': '\n'.join(rows),
      'learned': _learned(found['draft']),
      'examples': examples,
  })
  blocks = text.rstrip().split('\n\n')
  return '\n\n'.join(map(_filled, blocks)) + '\n'


def _filled(block: str) -> str:
  if block.startswith(('#', '|', '-', '```')):
    return block
  return textwrap.fill(
      block, 80, break_long_words=False, break_on_hyphens=False
  )
