# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""A trained pair, English to German help texts: see CARD.md."""
