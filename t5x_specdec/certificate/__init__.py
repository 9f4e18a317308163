# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a pair's speculative outputs have the target's own law, tested.

What is tested is judged from outside: `reference` scores whole texts with the
target in one block from position 0, where no loop, no rollback and no position
but the first has a say, and shapes its law with `testing.toys`, not `sampling`.
"""
