# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the tables of Leviathan et al. (2023) print. Data, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

SETTING = (
    'T5 1.1 XXL (11B) fine-tuned on WMT EnDe and CNN/DM, batch 1, one TPU v4'
)


class Factors(NamedTuple):
  """A row of Table 1, at c = c_hat = 0.

  Attributes:
    alpha: acceptance rate.
    gamma: drafts per round.
    operations: Theorem 3.11.
    speed: Theorem 3.8.
  """

  alpha: float
  gamma: int
  operations: float
  speed: float


TABLE_1 = (
    Factors(0.6, 2, 1.53, 1.96),
    Factors(0.7, 3, 1.58, 2.53),
    Factors(0.8, 2, 1.23, 2.44),
    Factors(0.8, 5, 1.63, 3.69),
    Factors(0.9, 2, 1.11, 2.71),
    Factors(0.9, 10, 1.60, 6.86),
)


class Run(NamedTuple):
  """A row of Tables 2 and 4.

  Attributes:
    task: 'ende' or 'cnndm'.
    draft: 'small' (77M), 'base' (250M) or 'large' (800M).
    temperature: 0 or 1.
    gamma: drafts per round.
    alpha: Corollary 3.6.
    measured: speed-up against T5X; Emp in Table 4.
    expected: Theorem 3.8; Exp in Table 4.
  """

  task: str
  draft: str
  temperature: int
  gamma: int
  alpha: float
  measured: float
  expected: float

  @property
  def c(self) -> float:
    """Time of a draft step over that of a target step."""
    return {'small': 0.02, 'base': 0.04, 'large': 0.11}[self.draft]

  @property
  def name(self) -> str:
    """As configs/table2 calls its gin file."""
    return f'{self.task}_{self.draft}_t{self.temperature}'


TABLE_2 = (
    Run('ende', 'small', 0, 7, 0.75, 3.4, 3.2),
    Run('ende', 'base', 0, 7, 0.80, 2.8, 3.3),
    Run('ende', 'large', 0, 7, 0.82, 1.7, 2.5),
    Run('ende', 'small', 1, 7, 0.62, 2.6, 2.3),
    Run('ende', 'base', 1, 5, 0.68, 2.4, 2.4),
    Run('ende', 'large', 1, 3, 0.71, 1.4, 2.0),
    Run('cnndm', 'small', 0, 5, 0.65, 3.1, 2.4),
    Run('cnndm', 'base', 0, 5, 0.73, 3.0, 2.6),
    Run('cnndm', 'large', 0, 3, 0.74, 2.2, 2.0),
    Run('cnndm', 'small', 1, 5, 0.53, 2.3, 1.9),
    Run('cnndm', 'base', 1, 3, 0.55, 2.2, 1.8),
    Run('cnndm', 'large', 1, 3, 0.56, 1.7, 1.6),
)


class Acceptance(NamedTuple):
  """A row of Table 3.

  Attributes:
    target: M_p.
    draft: M_q.
    greedy: alpha at temperature 0.
    sampled: alpha at temperature 1.
  """

  target: str
  draft: str
  greedy: float
  sampled: float


GPT = 'GPT-like 97M (lm1b)'
ENDE = 'T5 XXL (EnDe)'
CNNDM = 'T5 XXL (CNN/DM)'
LAMDA = 'LaMDA 137B (top-40)'
TABLE_3 = (
    Acceptance(GPT, 'unigram', 0.03, 0.03),
    Acceptance(GPT, 'bigram', 0.05, 0.05),
    Acceptance(GPT, 'GPT-like 6M', 0.88, 0.89),
    Acceptance(ENDE, 'unigram', 0.08, 0.07),
    Acceptance(ENDE, 'bigram', 0.20, 0.19),
    Acceptance(ENDE, 'T5 small', 0.75, 0.62),
    Acceptance(ENDE, 'T5 base', 0.80, 0.68),
    Acceptance(ENDE, 'T5 large', 0.82, 0.71),
    Acceptance(CNNDM, 'unigram', 0.13, 0.08),
    Acceptance(CNNDM, 'bigram', 0.23, 0.16),
    Acceptance(CNNDM, 'T5 small', 0.65, 0.53),
    Acceptance(CNNDM, 'T5 base', 0.73, 0.55),
    Acceptance(CNNDM, 'T5 large', 0.74, 0.56),
    Acceptance(LAMDA, 'LaMDA 100M', 0.61, 0.57),
    Acceptance(LAMDA, 'LaMDA 2B', 0.71, 0.71),
    Acceptance(LAMDA, 'LaMDA 8B', 0.75, 0.74),
)

LENIENCES = (1.0, 0.5, 0.3, 0.1)


class Lenient(NamedTuple):
  """A row of Table 5, of EnDe.

  Attributes:
    draft: M_q.
    temperature: 0 or 1.
    alphas: at each of `LENIENCES`.
  """

  draft: str
  temperature: int
  alphas: tuple[float, float, float, float]


TABLE_5 = (
    Lenient('unigram', 1, (0.07, 0.10, 0.11, 0.16)),
    Lenient('bigram', 1, (0.19, 0.23, 0.25, 0.32)),
    Lenient('T5 small', 1, (0.62, 0.71, 0.76, 0.84)),
    Lenient('T5 base', 1, (0.68, 0.80, 0.83, 0.90)),
    Lenient('T5 small', 0, (0.75, 0.75, 0.80, 0.87)),
)
