"""Scripts with one line replaced, to show that a test would notice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from osb.store.client import Store
from osb.store.scripts import Arg, Scripts, source


class Mutant(Scripts):
    """All scripts as they are, but `old` of script `name` (its libraries included) replaced by `new`."""

    def __init__(self, store: Store, name: str, old: str, new: str) -> None:
        super().__init__(store.redis)
        whole = source(name)
        assert old in whole, f"{name} has no {old!r} any more"
        self._mutant, self._text = name, self._prelude + whole.replace(old, new)

    def call(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        if name != self._mutant:
            return super().call(name, keys, args)
        return self._redis.eval(self._text, len(keys), *keys, *args)
