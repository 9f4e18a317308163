"""Runs t5x/infer.py as one process of several on this machine, CPU only.

infer.py itself never joins processes. Arguments: the coordinator's address, how
many processes there are, which this one is; then infer.py's own.
"""

import runpy
import sys

import jax

if __name__ == '__main__':
  address, count, index = sys.argv[1:4]
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  jax.distributed.initialize(address, int(count), int(index))
  sys.argv[1:] = sys.argv[4:]
  runpy.run_module('t5x.infer', run_name='__main__', alter_sys=True)
