"""A digest of bytes that is as fast as reading them: to tell states apart, not against those who want two alike."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import READ_UINT64, WRITE_UINT64, compiled

_LANES = np.array([0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89], np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@compiled((READ_UINT64, WRITE_UINT64))
def _mix(words: NDArray[np.uint64], lanes: NDArray[np.uint64]) -> None:
    """Take words into four lanes in turn. Each step is a bijection of the word and of the lane."""
    a, b, c, d = lanes[0], lanes[1], lanes[2], lanes[3]
    for i in range(0, len(words), 4):
        a = (a ^ words[i]) * _ODD
        b = (b ^ words[i + 1]) * _ODD
        c = (c ^ words[i + 2]) * _ODD
        d = (d ^ words[i + 3]) * _ODD
        a ^= a >> _HALF
        b ^= b >> _HALF
        c ^= c >> _HALF
        d ^= d >> _HALF
    lanes[0], lanes[1], lanes[2], lanes[3] = a, b, c, d


def digest(data: bytes) -> bytes:
    """16 bytes; the same in every process. Bytes that differ have different ones but for a chance of about 2^-64.

    >>> digest(b"rows" * 9) == digest(b"rows" * 9), digest(b"rows" * 9) == digest(b"rows" * 8 + b"row\\0")
    (True, False)
    >>> len({digest(bytes(n)) for n in range(100)})
    100
    """
    lanes, whole = _LANES.copy(), len(data) & -32
    _mix(np.frombuffer(data, np.uint64, whole // 8), lanes)
    rest = b"%d " % len(data) + data[whole:]
    return hashlib.blake2b(lanes.tobytes() + rest, digest_size=16).digest()
