"""Keras models in: `.keras` archives and `.h5` files → Graph, without Keras and without running anything of theirs."""

from smidgen.frontends.keras.reader import read_keras

__all__ = ["read_keras"]
