"""Assign profiles: which checks and which score choose a pool for `poolRef: "*"` (spec/pool.md 12.2).

In: the text of ConfigMap `pool-assign-profiles`, key `profiles`. Out: a `Table`. A text with any mistake
changes nothing: the last good table stays and the mistakes are listed; a ConfigMap that is gone means
the built-in default. When nobody knows the last good table, nobody knows what a name means: whoever names a profile
waits, and whoever names none gets the built-in default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from osb.errors import InvalidInput

PREDICATES = ("image", "resource", "nodeselector", "labelselector", "capacity")
SCORERS = ("resbalance",)
LEAST, MOST = "LeastAllocated", "MostAllocated"
DEFAULT = "default"
MAX_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`label_keys`: arguments of labelselector. `strategy`: argument of resbalance."""

    name: str
    predicates: tuple[str, ...] = ("image", "resource", "nodeselector")
    scores: tuple[tuple[str, int], ...] = (("resbalance", 100),)
    label_keys: tuple[str, ...] = ()
    strategy: str = LEAST


BUILT_IN = Profile(name=DEFAULT)


@dataclass(frozen=True, slots=True)
class Table:
    """Profiles by name, and what is wrong with the text they were to be read from.

    `known`: False when that text cannot be read and no earlier one is known.
    """

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    known: bool = True

    def find(self, name: str) -> Profile:
        """The profile of that name; an unknown name means the built-in default."""
        return self.profiles.get(name or DEFAULT, BUILT_IN)

    def defines(self, name: str) -> bool:
        """Whether that name, or its absence, means something of its own."""
        return not name or name == DEFAULT or name in self.profiles

    def problem(self, name: str) -> str:
        """What to tell about a sandbox that asks for this name; "" when it is known."""
        if self.defines(name):
            return ""
        if not self.known:
            return f"what profile {name[:63]} means is not known ({'; '.join(self.problems)[:300]})"
        return f"profile {name[:63]} is not defined; the built-in default is used"

    def waits(self, name: str) -> bool:
        """True while nobody can say what this profile is: any other might choose a pool that it never would."""
        return not self.known and not self.defines(name)


def parse_profiles(text: str | None, last: Table | None) -> Table:
    """The table that a text gives, or the last good one with its mistakes named. None: there is no ConfigMap."""
    if text is None or not text.strip():
        return Table()
    found, problems = _parsed(text)
    if not problems:
        return Table(found)
    if last is None:
        return Table({}, problems, known=False)
    return Table(last.profiles, problems)


def _parsed(text: str) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """The profiles by name, and every mistake."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return {}, (f"profiles: not JSON ({error})",)
    if not isinstance(data, list):
        return {}, ("profiles: must be a list",)
    found: dict[str, Profile] = {}
    problems: list[str] = []
    for index, item in enumerate(data):
        try:
            profile = _profile(item, f"profiles[{index}]")
        except InvalidInput as error:
            problems.append(str(error))
            continue
        if profile.name in found:
            problems.append(f"profiles[{index}].name: {profile.name!r} occurs twice")
        found[profile.name] = profile
    return found, tuple(problems)


def _profile(item: object, at: str) -> Profile:
    data = _object(item, at)
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{at}.name", "must be a text")
    plugins = _object(data.get("plugins") or {}, f"{at}.plugins")
    conf = _conf(data.get("pluginConf"), f"{at}.pluginConf")
    return Profile(
        name=name,
        predicates=_predicates(plugins.get("predicate"), f"{at}.plugins.predicate"),
        scores=_scores(plugins.get("score"), f"{at}.plugins.score"),
        label_keys=_keys(conf.get("labelselector", {}).get("keys"), f"{at}.pluginConf[labelselector].args.keys"),
        strategy=_strategy(conf.get("resbalance", {}).get("strategy"), f"{at}.pluginConf[resbalance].args.strategy"),
    )


def _object(value: object, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(at, "must be an object")
    return value


def _list(value: object, at: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(at, "must be a list")
    return value


def _predicates(value: object, at: str) -> tuple[str, ...]:
    found = _list(value, at)
    for name in found:
        if name not in PREDICATES:
            raise InvalidInput(at, f"{name!r} is not one of {', '.join(PREDICATES)}")
    return tuple(found)


def _scores(value: object, at: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for index, item in enumerate(_list(value, at)):
        data = _object(item, f"{at}[{index}]")
        name, weight = data.get("name"), data.get("weight", 1)
        if name not in SCORERS:
            raise InvalidInput(f"{at}[{index}].name", f"{name!r} is not one of {', '.join(SCORERS)}")
        if type(weight) is not int or not 0 <= weight <= MAX_WEIGHT:
            raise InvalidInput(f"{at}[{index}].weight", f"{weight!r} is not a number from 0 to {MAX_WEIGHT}")
        found.append((str(name), weight))
    return tuple(found)


def _conf(value: object, at: str) -> dict[str, dict[str, Any]]:
    """Arguments by plugin; the first entry of a plugin counts."""
    found: dict[str, dict[str, Any]] = {}
    for index, item in enumerate(_list(value, at)):
        data = _object(item, f"{at}[{index}]")
        name = data.get("name")
        if name not in PREDICATES + SCORERS:
            raise InvalidInput(f"{at}[{index}].name", f"{name!r} is not a plugin")
        found.setdefault(str(name), _object(data.get("args") or {}, f"{at}[{index}].args"))
    return found


def _keys(value: object, at: str) -> tuple[str, ...]:
    """One key may be given as plain text."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,) if value else ()
    if isinstance(value, list) and all(isinstance(key, str) and key for key in value):
        return tuple(value)
    raise InvalidInput(at, "must be a label key or a list of them")


def _strategy(value: object, at: str) -> str:
    if value is None or value == "":
        return LEAST
    if value in (LEAST, MOST):
        return str(value)
    raise InvalidInput(at, f"{value!r} is not {LEAST} or {MOST}")
