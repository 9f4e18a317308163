# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
"""Install T5X SpecDec."""

import pathlib
import runpy

import setuptools

_ROOT = pathlib.Path(__file__).resolve().parent
_VERSION = runpy.run_path(str(_ROOT / 't5x_specdec' / 'version.py'))[
    '__version__'
]

# Every lower bound below was installed together, exactly, on Python 3.11, and
# the tests pass on it: `make test-lowest` does so again.
_INSTALL_REQUIRES = [
    'flax >= 0.11.0',
    'gin-config >= 0.5.0',
    'jax >= 0.7.0',
    'numpy >= 2.0.0',
    'orbax-checkpoint >= 0.11.20',
    'protobuf >= 6.33.5',
    'rich >= 13.0.0',
    'sentencepiece >= 0.2.0',
    # The first release without the pins protobuf <= 3.20.3 and a tfds-nightly
    # of 2023. It brings TensorFlow, which only models.py and checkpoints.py
    # ever import.
    'seqio >= 0.0.20',
    'tensorstore >= 0.1.74',
]

# What T5X, airio and jestimator import, as far as it is on the package index.
# The three themselves are on GitHub only: see README.md, "T5X". TensorFlow is
# not named: seqio brings it through tensorflow-text, which accepts no other
# distribution, and a `tensorflow-cpu` beside it would write the same files.
_T5X = [
    'absl-py',
    'cached_property',
    'chex',
    'clu',
    'einops',
    'etils',
    'fiddle >= 0.3.0',
    'grain',
    'jaxtyping',
    'ml_collections',
    'optax',
    'scipy',
    'tensorboard',
    'tensorflow-datasets',
    'typing_extensions',
]
_PLOTS = ['matplotlib >= 3.8']
_TRAIN = ['optax >= 0.2.4', 'sacrebleu >= 2.4', 'sentencepiece >= 0.2.0']
_BENCH = [*_PLOTS, 'rouge-score >= 0.1.2', 'sacrebleu >= 2.4']
# What `t5x-specdec bench` compares with; about 1 GB.
_HF = ['torch', 'transformers >= 5.24']
_TEST = [
    *_PLOTS,
    *_TRAIN,
    'beartype',
    'chex',
    'hypothesis',
    'jaxtyping',
    # With [nodejs] both pyright and its runtime come from the package index.
    'pyright[nodejs]',
    'pytest >= 8',
    'pytest-xdist >= 3.6',
    'ruff >= 0.9',
    'scipy',
]

# configs/ stands at the top, as in the other rooms of the repository, and is
# installed inside the package. t5x_specdec/configs is a symbolic link to it,
# for a checkout on the path; it is not followed here, so that a source tree
# that lost its links (a zip archive, say) builds the same wheel.
_CONFIGS = 't5x_specdec.configs'
_PACKAGES = [
    *setuptools.find_packages(
        include=['t5x_specdec', 't5x_specdec.*'],
        exclude=[_CONFIGS, f'{_CONFIGS}.*'],
    ),
    _CONFIGS,
    *(f'{_CONFIGS}.{name}' for name in setuptools.find_packages('configs')),
]

setuptools.setup(
    name='t5x_specdec',
    version=_VERSION,
    description='Lossless speculative decoding for T5X, in JAX',
    long_description=(_ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author='The T5X SpecDec Authors',
    license='Apache-2.0',
    license_files=['LICENSE'],
    python_requires='>=3.11',
    packages=_PACKAGES,
    package_dir={_CONFIGS: 'configs'},
    package_data={
        '': ['*.gin', '*.css', '*.html', '*.js'],
        't5x_specdec.demo_pair': [
            'CARD.md',
            'bigrams.npz',
            'test.tsv',
            'vocabulary.model',
            '*/checkpoint_*/checkpoint',
            '*/checkpoint_*/*/*',
            '*/checkpoint_*/*/.zarray',
        ],
    },
    include_package_data=False,
    install_requires=_INSTALL_REQUIRES,
    extras_require={
        'bench': _BENCH,
        'hf': _HF,
        'plots': _PLOTS,
        't5x': _T5X,
        'test': _TEST,
        'train': _TRAIN,
    },
    entry_points={
        'console_scripts': ['t5x-specdec = t5x_specdec.cli.main:main'],
    },
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Developers',
        'Intended Audience :: Science/Research',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3.11',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
    keywords='speculative decoding t5 t5x jax text nlp machinelearning',
)
