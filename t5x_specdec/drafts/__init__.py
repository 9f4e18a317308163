# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sources of drafts: one file each behind the `Draft` protocol."""

from t5x_specdec.drafts.base import Draft
from t5x_specdec.drafts.base import Proposal
from t5x_specdec.drafts.chain import Chain
from t5x_specdec.drafts.lookup import PromptLookup
from t5x_specdec.drafts.model import as_draft
from t5x_specdec.drafts.model import ModelDraft
from t5x_specdec.drafts.ngram import Ngram
from t5x_specdec.drafts.none import NoDraft

__all__ = [
    'Chain',
    'Draft',
    'ModelDraft',
    'Ngram',
    'NoDraft',
    'PromptLookup',
    'Proposal',
    'as_draft',
]
