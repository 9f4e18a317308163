# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The version, kept apart so that setup.py reads it without importing JAX."""

__version__ = '0.1.0'
