"""Runs t5x/infer.py as one process of several on this machine, CPU only.

infer.py itself never joins processes. Arguments: the coordinator's address, how
many processes there are, which this one is; then `-m t5x.infer` and its own.
"""

import runpy
import sys

import jax

if __name__ == '__main__':
  address, count, index, _, module = sys.argv[1:6]
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  jax.distributed.initialize(address, int(count), int(index))
  sys.argv[1:] = sys.argv[6:]
  runpy.run_module(module, run_name='__main__', alter_sys=True)
