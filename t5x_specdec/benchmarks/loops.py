# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops that differ in how tokens are chosen and judged, to be timed in turns.

What a round costs beyond the models is what they differ in, so they are told
apart by their time per round, on the same models and inputs.
"""

from __future__ import annotations

from typing import Any

_SAMPLED = {'temperature': 1.0, 'topk': 0, 'topp': 0.0}

# Arguments of `speculative_decode` by a loop's name, over those of the job.
LOOPS: dict[str, dict[str, Any]] = {
    'greedy': {'temperature': 0.0, 'topk': 0, 'topp': 0.0},
    'full': _SAMPLED,
    'topk': {**_SAMPLED, 'topk': 40},
    'topp': {**_SAMPLED, 'topp': 0.9},
    'token': {**_SAMPLED, 'verification': 'token'},
    'block': {**_SAMPLED, 'verification': 'block'},
}
