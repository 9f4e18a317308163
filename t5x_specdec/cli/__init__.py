# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The `t5x-specdec` console script: one module per subcommand."""
