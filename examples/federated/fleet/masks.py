"""Masks in pairs: two devices agree on numbers that one adds and the other subtracts, so that the sum has none left.

X25519 for the agreement, HKDF and ChaCha20 for the numbers, all by the package `cryptography`, which Flower brings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from smidgen.errors import InputError
from smidgen.ir import Array


def new_keys() -> tuple[bytes, bytes]:
    """Draw a private key, for one round, and return it with its public one."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def masked(vector: Array, private: bytes, everyone: Sequence[bytes]) -> Array:
    """Mask a vector of uint32 against all others of a round, of whom these are the public keys, one's own included."""
    key = X25519PrivateKey.from_private_bytes(private)
    own = key.public_key().public_bytes_raw()
    if own not in everyone or len(set(everyone)) < max(2, len(everyone)):
        raise InputError("there is nobody to mask sums with; a round takes two devices or more, each key once")
    for other in set(everyone) - {own}:
        numbers = _numbers(key.exchange(X25519PublicKey.from_public_bytes(other)), vector.size)
        vector = vector + numbers if own < other else vector - numbers
    return vector


def _numbers(shared: bytes, count: int) -> Array:
    seed = HKDF(SHA256(), 32, salt=None, info=b"smidgen sums").derive(shared)
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(4 * count))
    return np.frombuffer(stream, "<u4")
