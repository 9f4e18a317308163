# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Toy decoders, planted pairs and writers: public, users test with them too."""
