# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding for T5X: the same outputs, faster.

Imports neither T5X, seqio nor TensorFlow; `t5x_specdec.models` and
`t5x_specdec.checkpoints`, which do, are for T5X runs.
"""

from t5x_specdec.decoding import autoregressive_decode
from t5x_specdec.decoding import DecodeResult
from t5x_specdec.decoding import speculative_decode
from t5x_specdec.drafts import ModelDraft
from t5x_specdec.network import T5
from t5x_specdec.parameters import T5Config
from t5x_specdec.version import __version__

__all__ = [
    'DecodeResult',
    'ModelDraft',
    'T5',
    'T5Config',
    '__version__',
    'autoregressive_decode',
    'speculative_decode',
]
