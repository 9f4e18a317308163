# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gin files of T5X SpecDec, installed as `t5x_specdec/configs`."""
