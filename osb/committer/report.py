"""What the committer tells the controller: a small JSON object as the container's termination message.

`{"v":1,"containers":[{"name":…,"image":…,"digest":"sha256:…"}]}`. The kubelet cuts a message at 4096 bytes, so a
longer one names the images by one checksum instead: `{"v":1,"of":"<checksum>","digests":{"name":"sha256:…"}}`. A
failure: `{"v":1,"error":"…"}`, one bounded ASCII line without credentials.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

FORMAT = 1
LIMIT = 4096
ERROR_LIMIT = 600  # characters of a failure's reason
HIDDEN = "***"

# what a registry's answer may repeat of a login: user and query of an address, a header, a named value
_SECRETS = (
    (re.compile(r"(?<=://)[^/\s@]+@"), f"{HIDDEN}@"),
    (re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']+"), rf"\1?{HIDDEN}"),
    (re.compile(r"(?i)\b(basic|bearer)\s+[\w+/=.~-]{12,}"), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"(?i)(\b\w*(?:password|passwd|token|secret|auth|credential|signature))"
            r"(\\?[\"']?\s*=\s*\\?[\"']?|\\?[\"']\s*:\s*\\?[\"'])[^\s\"'\\,;&]+"
        ),
        rf"\1\2{HIDDEN}",
    ),
)


def message(saved: Sequence[tuple[str, str, str]]) -> str:
    """The termination message for (container, image, digest). Raises ValueError when no form fits."""
    rows = [{"name": name, "image": image, "digest": digest} for name, image, digest in saved]
    text = _compact({"v": FORMAT, "containers": rows})
    if len(text.encode()) > LIMIT:
        digests = {name: digest for name, _, digest in saved}
        text = _compact({"v": FORMAT, "of": checksum((n, i) for n, i, _ in saved), "digests": digests})
    if len(text.encode()) > LIMIT:
        raise ValueError(f"the result of {len(saved)} containers does not fit into {LIMIT} bytes")
    return text


def failure(why: str) -> str:
    """The termination message of a failed commit; the middle of a long reason is left out."""
    text = " ".join("".join(c if c.isprintable() else " " for c in why).split())
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    text = text.encode("ascii", "replace").decode()
    if len(text) > ERROR_LIMIT:
        text = f"{text[: ERROR_LIMIT // 2 - 5]} ... {text[-ERROR_LIMIT // 2 :]}"
    return _compact({"v": FORMAT, "error": text})


def checksum(pairs: Iterable[tuple[str, str]]) -> str:
    """A checksum of (container, image) pairs in their order, 16 hex digits."""
    joined = "\n".join(f"{name}:{image}" for name, image in pairs)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def lines(saved: Sequence[tuple[str, str, str]]) -> list[str]:
    """The lines for people and old readers of the log."""
    shown = [f"SNAPSHOT_DIGEST_{name.upper().replace('-', '_')}={digest}" for name, _, digest in saved]
    return [*shown, f"SNAPSHOT_DIGEST={saved[0][2]}"] if saved else []


def write(path: Path, text: str) -> None:
    path.write_text(text + "\n")


def _compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))
