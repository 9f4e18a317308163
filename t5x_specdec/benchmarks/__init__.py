# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `t5x-specdec bench` does: one sitting, each framework a process.

`workloads` says what is decoded, `worker_*` how, `sitting` when, `results` what
is made of the times. Workers talk to the parent as `protocol` says.
"""
