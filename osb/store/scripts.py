"""Load `lua/*.lua` and call them by name.

In: a script's name, keys and arguments. Out: its reply, or `StoreDown`. A file may pull library text in with a
line `-- include: NAME.lua`; the libraries are put in front, once each, before hashing. Scripts whose name ends in
`_lib_vN` are libraries and are not loaded by themselves. A changed contract is a new file `..._v2.lua`; the old
one stays for one release, because during a rollout old and new processes share one Redis.

Every script is safe to call again: after `StoreDown` nobody knows whether it ran (spec/protocols.md 3).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import redis

from osb.errors import StoreDown
from osb.store.envelope import DEFAULT

_INCLUDE = re.compile(r"^-- include: (\S+)\s*$", re.MULTILINE)
_LIBRARY = re.compile(r"_lib_v\d+$")

Arg = str | bytes | int | float


class Call(NamedTuple):
    """One script call of a pipeline."""

    name: str
    keys: Sequence[str]
    args: Sequence[Arg]


@contextlib.contextmanager
def redis_errors(what: str) -> Iterator[None]:
    """Turn whatever the client raises into `StoreDown`, which says what was attempted."""
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise StoreDown(f"{what}: {type(error).__name__}: {error}") from error


@cache
def source(name: str) -> str:
    """The text of `lua/NAME.lua` with its libraries in front. Raises FileNotFoundError for an unknown one."""
    return "".join(_with_libraries(f"{name}.lua", set()))


def _with_libraries(file: str, seen: set[str]) -> Iterator[str]:
    if file in seen:
        return
    seen.add(file)
    text = resources.files("osb.store").joinpath("lua", file).read_text(encoding="utf-8")
    for library in _INCLUDE.findall(text):
        yield from _with_libraries(library, seen)
    yield text + "\n"


@cache
def names() -> tuple[str, ...]:
    """Every script that can be called."""
    files = (item.name for item in resources.files("osb.store").joinpath("lua").iterdir())
    stems = (name.removesuffix(".lua") for name in files if name.endswith(".lua"))
    return tuple(sorted(stem for stem in stems if not _LIBRARY.search(stem)))


class Scripts:
    """The scripts of one connection.

    `clock_key` is for tests only: a Redis key whose ms stand for Redis' clock.
    """

    def __init__(self, client: redis.Redis, *, clock_key: str = "") -> None:
        self._redis = client
        clock = repr(clock_key) if clock_key else "false"
        self._prelude = f"local OSB_CLOCK, OSB_ENVELOPE = {clock}, [==[{DEFAULT.decode()}]==]\n"
        self._sha: dict[str, str] = {}

    def load(self) -> None:
        """Load all scripts in one trip; done at connect, and again when Redis has lost them."""
        with redis_errors("load scripts"):
            pipe = self._redis.pipeline(transaction=False)
            for name in names():
                pipe.script_load(self._prelude + source(name))
            pipe.execute()

    def sha(self, name: str) -> str:
        if (sha := self._sha.get(name)) is None:
            text = self._prelude + source(name)
            sha = self._sha[name] = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        return sha

    def call(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        """Run one script. Reloads and repeats once when Redis does not know it (nothing ran then)."""
        sha = self.sha(name)
        with redis_errors(f"script {name}"):
            try:
                return self._redis.evalsha(sha, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:
                return self._redis.eval(self._prelude + source(name), len(keys), *keys, *args)

    def many(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts in one trip, in order, not atomically. Those that Redis does not know are repeated once."""
        if not calls:
            return []
        replies = self._pipeline(calls)
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, redis.exceptions.NoScriptError)]
        if missing:
            self.load()
            again = self._pipeline([calls[i] for i in missing])
            for i, reply in zip(missing, again, strict=True):
                replies[i] = reply
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, Exception):
                raise StoreDown(f"script {call.name}: {reply}") from reply
        return replies

    def _pipeline(self, calls: Sequence[Call]) -> list[Any]:
        with redis_errors(f"{len(calls)} scripts"):
            pipe = self._redis.pipeline(transaction=False)
            for name, keys, args in calls:
                pipe.evalsha(self.sha(name), len(keys), *keys, *args)
            replies: list[Any] = pipe.execute(raise_on_error=False)
            return replies
