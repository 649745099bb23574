"""Which login of a Docker configuration applies to a registry, and a configuration that holds only that one.

In: the mounted `config.json`. Out: a directory for `DOCKER_CONFIG`. Keys of `auths` are matched as Docker
does: with or without a scheme, `/v1` or `/v2` endings, a path; Docker Hub has several names. The password
stays in a file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HUB = "docker.io"
HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})


def registry_of(image: str) -> str:
    """Host (and port) of an image reference; Docker Hub when it names none."""
    first, slash, _ = image.partition("/")
    named = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if named else HUB


def entry_for(auths: Mapping[str, Any], host: str) -> Mapping[str, Any] | None:
    """The login for a host: the exact key first, then any key that means the host."""
    if isinstance(auths.get(host), Mapping):
        return auths[host]  # type: ignore[no-any-return]  # JSON of the user
    wanted = _canonical(host)
    for key, value in auths.items():
        if isinstance(value, Mapping) and _canonical(key) == wanted:
            return value
    return None


def write_config(source: Path, target: Path, images: Iterable[str]) -> str:
    """Write `target`/config.json with the logins `images` need; returns the directory, "" when none applies."""
    if not source.is_file():
        return ""
    auths = json.loads(source.read_text()).get("auths")
    if not isinstance(auths, Mapping):
        return ""
    kept = {}
    for host in sorted({registry_of(image) for image in images}):
        entry = entry_for(auths, host)
        if entry is not None:
            kept[HUB_KEY if host in _HUB_NAMES else host] = _with_auth(entry)
    if not kept:
        return ""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = target / "config.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({"auths": kept}))
    return str(target)


def _canonical(key: str) -> str:
    text = key.partition("://")[2] if "://" in key else key
    host = text.partition("/")[0]
    return HUB if host in _HUB_NAMES else host


def _with_auth(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with `auth`, made from user name and password when it has only those."""
    if entry.get("auth") or not entry.get("username"):
        return dict(entry)
    pair = f"{entry['username']}:{entry.get('password', '')}"
    return {"auth": base64.b64encode(pair.encode()).decode()}
