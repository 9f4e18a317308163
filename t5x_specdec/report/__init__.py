# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""One page that shows what happened in a run: `t5x-specdec report`."""
