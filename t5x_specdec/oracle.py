# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Section 3.5's oracle, which knows the next rejection, on recorded rounds.

What no choice of gamma can beat; `theory.oracle_improvement` has its mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def runs(rounds: Iterable[tuple[int, int]]) -> list[int]:
  """Accepted drafts between one rejection and the next, along a text.

  A round whose drafts were all accepted ends where it had no more of them and
  not at a rejection. The oracle is given the benefit of the doubt: the target's
  own token after them counts as one more draft that would have stood.

  Args:
    rounds: drafted and accepted drafts of each round of one text, in order, as
      in `trace.Trace.rounds`.

  Returns:
    The length of each run; after it the target's own token stands. A run may be
    0 long. They and one token each make up the text, except that EOS may have
    ended it with an accepted draft.
  """
  ended, run = [], 0
  for drafted, accepted in rounds:
    run += accepted
    if accepted < drafted:
      ended.append(run)
      run = 0
    else:
      run += 1
  # What is left ends with the target's own token of the last round.
  return [*ended, run - 1] if run else ended


def walltime(runs: Sequence[int], c: float) -> float:
  """Time in which the oracle of Section 3.5 decodes a recorded text.

  Args:
    runs: from the function of that name.
    c: time of one draft step over time of one target step; from 1 on drafts
      never pay, and the oracle has none.

  Returns:
    In target steps: one per run, and c per draft.
  """
  return len(runs) + min(c, 1.0) * sum(runs)
