"""Pod addresses: unique ones from 127.16.0.0/12, so that a real program can listen on each; reused late.

Where they begin is drawn by lot unless said: two simulations on one machine, each with task executors on the one
port that these must have, then hardly ever meet.
"""

from __future__ import annotations

import random
from collections import deque
from ipaddress import IPv4Address

_FIRST = int(IPv4Address("127.16.0.1"))
_COUNT = 2**20 - 2
_BLOCK = 4096


class Addresses:
    """Hands out addresses in order from `first` on; a returned one comes again only when all others were used once."""

    def __init__(self, first: str = "") -> None:
        lot = random.randrange(_COUNT // _BLOCK) * _BLOCK
        self._start = int(IPv4Address(first)) - _FIRST if first else lot
        if not 0 <= self._start < _COUNT:
            raise ValueError(f"{first} is not in 127.16.0.0/12")
        self._next = 0
        self._free: deque[str] = deque()
        self._used: set[str] = set()

    def take(self) -> str:
        while self._next < _COUNT:
            address = str(IPv4Address(_FIRST + (self._start + self._next) % _COUNT))
            self._next += 1
            if address not in self._used:
                self._used.add(address)
                return address
        address = self._free.popleft()
        self._used.add(address)
        return address

    def claim(self, address: str) -> None:
        """An address that a pod already has (after a restart of the kubelet)."""
        self._used.add(address)

    def give(self, address: str) -> None:
        if address in self._used:
            self._used.discard(address)
            self._free.append(address)
