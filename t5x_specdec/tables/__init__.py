# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's tables and figures, from its formulas and from our own runs.

Every table is a dict: `table` its number, `title`, `differs`, what its columns
`ours` and `paper` do not share, and `rows`. A row names what it is of, and has
`paper` and `ours`, each a dict of the same figures or None where there is none.
"""
