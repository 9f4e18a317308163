"""The model card, from what `evaluate.measure` found."""

_CARD = """\
# The demo pair: English to German help texts

A target and a draft trained from scratch on two CPU cores, small enough to
ship, for trying speculative decoding on real text. They translate short
sentences of software help; they are no use as translators.

| | target | draft |
|---|---|---|
| parameters | {target[parameters]:,} | {draft[parameters]:,} |
| multiplications of a decode step | {target[multiplications_per_step]:,} \
| {draft[multiplications_per_step]:,} |
| training steps | {target[step]:,} | {draft[step]:,} |
| training time, minutes | {target[minutes]:.0f} | {draft[minutes]:.0f} |
| dev loss, nats a token | {target[dev_loss]:.3f} | {draft[dev_loss]:.3f} |
| BLEU on held-out pages, greedy | {target[bleu]:.1f} | {draft[bleu]:.1f} |

BLEU is sacrebleu's, `{bleu_signature}`, over {test_pairs} pairs.

| target and draft, gamma {gamma} | T = 0 | T = 1 |
|---|---|---|
| alpha (mean of sum min(p, q)) | {greedy[alpha]:.3f} | {sampled[alpha]:.3f} |
| tokens per target call | {greedy[tokens_per_target_call]:.2f} \
| {sampled[tokens_per_target_call]:.2f} |
| BLEU | {greedy[bleu]:.1f} | {sampled[bleu]:.1f} |
| identical to the target alone | {greedy[identical]} of {test_pairs} | |

## Data

Debian's packages `libreoffice-help-en-us` and `libreoffice-help-de`
(LibreOffice Help, Mozilla Public License 2.0; text and translations by the
LibreOffice contributors), aligned by paragraph id: {counts[aligned]:,} aligned
paragraphs, {counts[distinct pairs that differ]:,} distinct ones that differ.
Pairs of odd length ratio, or of few letters, are left out, and so are pairs of
more than 64 tokens a side (for training, their sentences take their place
where they match in number). Whole pages are held out, and no training pair
shares a side with a held-out one: {counts[train pairs]:,} pairs of
{counts[train pages]:,} pages to train on, {counts[dev pairs]:,} of
{counts[dev pages]:,} for dev, {counts[test pairs]:,} of {counts[test pages]:,}
for test. The weights and `test.tsv` derive from that text; they come under
MPL-2.0 with it.

One SentencePiece vocabulary (unigram, every character covered) serves both
languages. Both models have T5 1.1's layers with tied embeddings, and are stored
in bfloat16 in T5X's layout, so stock T5X restores them. `scripts/train_demo.py`
makes all of it anew.

## Examples

Drawn at random from the held-out pages, not picked; target alone, greedy.

{shown}
"""


def write(found: dict) -> str:
  """Returns the card's markdown.

  Args:
    found: what `evaluate.measure` returned.
  """
  shown = '\n\n'.join(
      f'- {english}\n  - reference: {german}\n  - target: {text}'
      for english, german, text in found['examples']
  )
  return _CARD.format(**found, shown=shown)
