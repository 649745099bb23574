"""How a commit Job ended, and the digests that its pod reported.

In: raw Job and pods. Out: facts, or `Unreadable`. A Job counts only if this snapshot's UID controls it, a pod
only if that Job's UID does: names and labels are those of any earlier incarnation too
(spec/pause-resume-snapshot.md 8.5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from osb.decide.commitjob import CONTAINER

Raw = Mapping[str, Any]
FORMAT = 1  # what our committer writes; without it a digest is no registry manifest digest
ERROR_SHOWN = 700  # characters of a committer's error; ours writes fewer


class Unreadable(Exception):
    """The Job succeeded, but what it saved cannot be told."""


def controller_uid(obj: Raw) -> str:
    """UID of the controller owner, "" when there is none."""
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return next((str(o.get("uid") or "") for o in owners if o.get("controller")), "")


def succeeded(job: Raw) -> bool:
    return bool((job.get("status") or {}).get("succeeded"))


def failure(job: Raw, pods: Iterable[Raw] = ()) -> str | None:
    """The message of the Job's Failed condition with what the committer said; None while it has not failed."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            told, said = str(condition.get("message") or "Commit job failed"), why(job, pods)
            return f"{told}: {said}" if said else told
    return None


def why(job: Raw, pods: Iterable[Raw]) -> str:
    """What the Job's pod that failed last said about it, one bounded line; "" when none said anything."""
    found = [ended for pod in pods_of(job, pods) if (ended := _ended(pod)) and ended.get("exitCode")]
    for ended in sorted(found, key=lambda e: str(e.get("finishedAt") or ""), reverse=True):
        said = _error(str(ended.get("message") or ""))
        if said:
            return said
    return ""


def finished(job: Raw) -> bool:
    return succeeded(job) or failure(job) is not None


def pods_of(job: Raw, pods: Iterable[Raw]) -> list[Raw]:
    """Those of `pods` that this very Job controls."""
    uid = (job.get("metadata") or {}).get("uid")
    return [pod for pod in pods if uid and controller_uid(pod) == uid]


def running(pods: Iterable[Raw]) -> bool:
    """True while the committer may still work in one of `pods`."""
    return any((pod.get("status") or {}).get("phase") in (None, "", "Pending", "Running") for pod in pods)


def result(job: Raw, pods: Iterable[Raw], requested: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Container -> manifest digest ("" when unknown), complete for `requested` (container, image).

    Raises Unreadable when no pod of the Job reports every container with the image that was asked for.
    """
    wanted = dict(requested)
    why = "no pod of the Job has reported"
    for pod in pods_of(job, pods):
        message = _message(pod)
        if message is None:
            continue
        try:
            found = _entries(message, wanted)
        except (orjson.JSONDecodeError, TypeError, AttributeError, KeyError, ValueError):
            why = f"its report is not readable: {message[:60]!r}"
            continue
        off = [name for name, image in wanted.items() if found.get(name, ("", ""))[0] != image]
        if not off:
            return {name: found[name][1] for name in wanted}
        why = f"its report lacks container {off[0]} with the image asked for"
    raise Unreadable(why)


def _message(pod: Raw) -> str | None:
    """The termination message of the commit container that exited with 0."""
    ended = _ended(pod)
    return str(ended.get("message") or "") if ended and ended.get("exitCode") == 0 else None


def _ended(pod: Raw) -> Raw | None:
    """How the commit container ended, None while it has not."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended: Raw | None = (status.get("state") or {}).get("terminated")
        if status.get("name") == CONTAINER and ended:
            return ended
    return None


def _error(message: str) -> str:
    """The error in a termination message of our format.

    Any other text is not repeated: nobody has promised that it holds no secret.
    """
    try:
        data = orjson.loads(message)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(data, dict) or data.get("v") != FORMAT or not isinstance(data.get("error"), str):
        return ""
    text = " ".join(data["error"].split())
    return text if len(text) <= ERROR_SHOWN else f"{text[: ERROR_SHOWN - 3]}..."


def _entries(message: str, wanted: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """name -> (image, digest). A committer that does not state our format knows no manifest digest.

    The short form carries a checksum of the images asked for instead of repeating them.
    """
    data = orjson.loads(message)
    ours = data.get("v") == FORMAT
    if ours and "digests" in data:
        same = data.get("of") == checksum(wanted.items())
        return {str(n): (wanted.get(n, "") if same else "", _digest(d)) for n, d in data["digests"].items()}
    return {
        str(item["name"]): (str(item["image"]), _digest(item.get("digest")) if ours else "")
        for item in data["containers"]
    }


def checksum(pairs: Iterable[tuple[str, str]]) -> str:
    """The committer's checksum of (container, image) pairs in their order, 16 hex digits."""
    joined = "\n".join(f"{name}:{image}" for name, image in pairs)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def _digest(value: object) -> str:
    return value if isinstance(value, str) and value.startswith("sha256:") else ""
