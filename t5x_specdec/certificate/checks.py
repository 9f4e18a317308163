# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a certificate asks of outputs, and what it says where they fail."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
from typing import Any

import numpy as np
from scipy import special

from t5x_specdec.certificate import reference
from t5x_specdec.certificate import statistics
from t5x_specdec.certificate.reference import Positions
from t5x_specdec.certificate.statistics import Outcome
from t5x_specdec.certificate.subject import Subject

# Merged bins of equal probability that a position's tokens are counted in.
_BINS = 10
# Tokens that a position needs to be tested alone.
_LEAST_TOKENS = 100


@dataclasses.dataclass(frozen=True)
class Check:
  """One thing that must hold.

  Attributes:
    name: what is asked.
    subject: of which pair.
    setting: of which run.
    fault: what is wrong where it does not hold.
    holds: whether it does; None where `outcome` is to be held to a level.
    outcome: of a statistical test, else None.
    details: figures to report.
  """

  name: str
  subject: str
  setting: str
  fault: str
  holds: bool | None = None
  outcome: Outcome | None = None
  details: dict[str, Any] = dataclasses.field(default_factory=dict)


def greedy(
    subject: Subject,
    ours: np.ndarray,
    alone: np.ndarray,
    decodes: int,
    setting: str,
) -> Iterator[Check]:
  """Token equality at temperature 0, and each token the target's best.

  Two decoders of one text may take sides in a tie; what follows a first
  difference is another text, so it is judged by the target's word on it.

  Args:
    subject: the pair.
    ours: int32[inputs * decodes, length], speculative.
    alone: int32[inputs * decodes, length], the target's.
    decodes: of each input.
    setting: for the report.

  Yields:
    'greedy tokens' and 'greedy argmax'.
  """
  differs = ours != alone
  first = np.argmax(differs, axis=1)
  generated = subject.generated(ours)
  margins, worst, worst_at = [], 0.0, None
  start = 0
  for logits in subject.logits(ours, decodes):
    rows = np.arange(start, start + len(logits))
    allowed = reference.tolerance(logits, subject.dtype)
    own = np.take_along_axis(logits, ours[rows][..., None], axis=-1)[..., 0]
    gap = np.where(generated[rows], logits.max(-1) - own, 0.0) / allowed
    # A NaN is as far from the best as can be.
    gap = np.where(np.isfinite(gap), gap, np.inf)
    if gap.max() > worst:
      worst = float(gap.max())
      i, t = np.unravel_index(np.argmax(gap), gap.shape)
      worst_at = int(rows[i]) // decodes, int(t)
    for i, row in enumerate(rows):
      if differs[row].any():
        at = i, first[row]
        other = logits[(*at, alone[row, first[row]])]
        margins.append({
            'input': int(row) // decodes,
            'position': int(first[row]),
            'margin': float(abs(own[at] - other)),
            'tie': bool(abs(own[at] - other) <= allowed[at]),
        })
    start += len(logits)
  faults = [entry for entry in margins if not entry['tie']]
  fault = ''
  if faults:
    fault = (
        f'{len(faults)} of {len(ours)} texts are not those of the target '
        f'alone; the first difference, at input {faults[0]["input"]}, position '
        f'{faults[0]["position"]}, is no tie: its logits are '
        f'{faults[0]["margin"]:.3g} apart'
    )
  yield Check(
      'greedy tokens',
      subject.name,
      setting,
      fault,
      holds=not faults,
      details={
          'inputs': len(ours) // decodes,
          'texts': len(ours),
          'identical': int(np.sum(~differs.any(1))),
          'first_differences': margins,
      },
  )
  yield Check(
      'greedy argmax',
      subject.name,
      setting,
      'a token that is not the most likely one given the text before it, by '
      f'{worst:.3g} times what rounding explains, at (input, position) '
      f'{worst_at}',
      holds=worst <= 1.0,
      details={'worst_gap_in_roundings': worst},
  )


def endings(subject: Subject, tokens: np.ndarray, setting: str) -> Check:
  """A text ends at EOS or at its length, with zeros after it.

  Args:
    subject: the pair.
    tokens: int32[rows, length].
    setting: for the report.

  Returns:
    'text ends'.
  """
  generated = subject.generated(tokens)
  last = tokens.shape[1] - 1 - np.argmax(generated[:, ::-1], axis=1)
  past = np.arange(tokens.shape[1]) > last[:, None]
  wrong = np.flatnonzero(np.any(past & (tokens != 0), axis=1))
  return Check(
      'text ends',
      subject.name,
      setting,
      f'{len(wrong)} of {len(tokens)} texts go on after EOS or their length, '
      f'the first in row {wrong[0] if len(wrong) else None}',
      holds=not len(wrong),
      details={'rows': len(tokens)},
  )


def support(subject: Subject, places: Positions, setting: str) -> Check:
  """No token is one that the target cannot emit, but for rounding.

  Args:
    subject: the pair.
    places: of all generated tokens.
    setting: for the report.

  Returns:
    'possible tokens'.
  """
  wrong = places.outside > 1
  return Check(
      'possible tokens',
      subject.name,
      setting,
      f'{np.sum(wrong)} of {len(wrong)} tokens are outside the top-k or top-p '
      'of the target',
      holds=not wrong.any(),
      details={
          'tokens': len(wrong),
          'outside_by_rounding': int(np.sum(places.outside > 0) - wrong.sum()),
      },
  )


def _uniform(values: np.ndarray) -> Outcome:
  """Test that numbers in [0, 1] are uniform, by bins."""
  bins = np.minimum((values * _BINS).astype(int), _BINS - 1)
  observed = np.bincount(bins, minlength=_BINS)
  return statistics.chi_square(
      observed, np.full(_BINS, len(values) / _BINS)
  )


def law(subject: Subject, places: Positions, setting: str) -> Iterator[Check]:
  """Tests every token's law given the text before it.

  Given that, `rank` and `draft` are uniform whatever came before, so their
  counts over all positions are sums of martingale differences, and those of a
  single position independent between rows.

  Args:
    subject: the pair.
    places: of all generated tokens.
    setting: for the report.

  Yields:
    'likely tokens', 'law at each position', and 'drafted tokens' where a draft
    model is at hand.
  """
  share = np.mean(places.rank < 0.5) - 0.5
  yield Check(
      'likely tokens',
      subject.name,
      setting,
      f'the likelier half of the target\'s mass is drawn {share:+.2%} too '
      'often',
      outcome=_uniform(places.rank),
  )
  by_position = [
      (t, places.rank[places.position == t])
      for t in np.unique(places.position)
  ]
  tested = [(t, ranks) for t, ranks in by_position
            if len(ranks) >= _LEAST_TOKENS]
  if tested:
    outcome, worst = statistics.smallest_of(
        [_uniform(ranks) for _, ranks in tested]
    )
    yield Check(
        'law at each position',
        subject.name,
        setting,
        f'tokens at position {tested[worst][0]} do not have the target\'s law '
        'given the text before them',
        outcome=outcome,
        details={'positions': len(tested)},
    )
  if places.draft is not None:
    share = np.mean(places.draft < 0.5) - 0.5
    yield Check(
        'drafted tokens',
        subject.name,
        setting,
        'the half of the target\'s mass that the draft model overrates is '
        f'drawn {share:+.2%} too often',
        outcome=_uniform(places.draft),
    )


def independence(
    subject: Subject, places: Positions, gamma: int, setting: str
) -> Iterator[Check]:
  """Tests that neither rows nor positions share their noise.

  Args:
    subject: the pair.
    places: of all generated tokens.
    gamma: drafts per round.
    setting: for the report.

  Yields:
    'rows share no noise' and 'positions share no noise'.
  """
  values = places.rank if places.draft is None else places.draft
  noise = special.ndtri(np.clip(values, 1e-12, 1 - 1e-12))
  groups = [noise[places.position == t] for t in np.unique(places.position)]
  outcome = statistics.shared_noise(groups)
  yield Check(
      'rows share no noise',
      subject.name,
      setting,
      f'rows of a batch are correlated, by {outcome.effect:.3f}',
      outcome=outcome,
  )
  table = np.zeros([places.row.max() + 1, places.position.max() + 1])
  table[places.row, places.position] = noise
  # Absent positions are 0 and add to neither sum.
  outcomes = []
  for lag in range(1, min(gamma + 1, table.shape[1] - 1) + 1):
    products = table[:, lag:] * table[:, :-lag]
    count = np.sum(products != 0)
    outcomes.append(
        statistics.normal(float(products.sum()), float(count), int(count))
    )
  if outcomes:
    outcome, worst = statistics.smallest_of(outcomes)
    yield Check(
        'positions share no noise',
        subject.name,
        setting,
        f'tokens {worst + 1} apart are correlated, by {outcome.effect:.3f}',
        outcome=outcome,
    )


def likelihood(
    subject: Subject,
    places: Positions,
    alone: Positions,
    decodes: int,
    setting: str,
) -> Iterator[Check]:
  """Tests sequence log-likelihoods and lengths.

  Args:
    subject: the pair.
    places: of all generated tokens.
    alone: of those of the target alone.
    decodes: of each input.
    setting: for the report.

  Yields:
    'log-likelihood', against its exact expectation, and 'log-likelihood beside
    the target alone' and 'length beside the target alone', by input.
  """
  total = float(places.surprise.sum())
  yield Check(
      'log-likelihood',
      subject.name,
      setting,
      'the log-likelihood of a token is off its expectation by '
      f'{total / len(places.surprise):+.4f} nats',
      outcome=statistics.normal(
          total, float(places.variance.sum()), len(places.surprise)
      ),
  )

  def by_input(places, values):
    sums = np.bincount(
        places.row // decodes, weights=values, minlength=len(subject.text)
    )
    return sums / decodes

  def finite(places):
    return np.where(np.isfinite(places.log_prob), places.log_prob, 0.0)

  for name, ours, theirs in (
      ('log-likelihood', finite(places), finite(alone)),
      ('length', np.ones(len(places.row)), np.ones(len(alone.row))),
  ):
    difference = by_input(places, ours) - by_input(alone, theirs)
    yield Check(
        f'{name} beside the target alone',
        subject.name,
        setting,
        f'the mean {name} of a text is {difference.mean():+.3g} off that of '
        'the target alone',
        outcome=statistics.paired(difference),
    )
