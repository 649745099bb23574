"""Pod addresses: unique ones from 127.16.0.0/12, so that a real program can listen on each; reused late."""

from __future__ import annotations

from collections import deque
from ipaddress import IPv4Address

_FIRST = int(IPv4Address("127.16.0.1"))
_COUNT = 2**20 - 2


class Addresses:
    """Hands out addresses in order; a returned one comes again only when all others were used once."""

    def __init__(self) -> None:
        self._next = 0
        self._free: deque[str] = deque()
        self._used: set[str] = set()

    def take(self) -> str:
        while self._next < _COUNT:
            address = str(IPv4Address(_FIRST + self._next))
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
