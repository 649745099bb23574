"""Which pods of a sandbox count as failing, and since when it matters.

In: pods, phase, now. Out: a summary for conditions, and when to look again because a grace ends. Terminating pods
never count. Image and configuration reasons must have lasted a while, because a Secret may follow its sandbox and
an image its push; crash loops, unusable image names and terminal phases count at once (spec/batchsandbox.md 10.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from osb.api import names, times
from osb.facts.pod import PodFact

AT_ONCE = frozenset({"CrashLoopBackOff", "InvalidImageName"})
AFTER_GRACE = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
GRACE = 30.0  # seconds since the pod was scheduled
RESUME_GRACE = 120.0  # the same while resuming: pulls right after a push often fail once


@dataclass(frozen=True, slots=True)
class Failing:
    """`reasons` by pod name, in pod order; `observed` pods were looked at; `again`: seconds until a grace ends."""

    reasons: tuple[tuple[str, str], ...] = ()
    observed: int = 0
    again: float | None = None

    def __bool__(self) -> bool:
        return bool(self.reasons)

    @property
    def primary(self) -> str:
        """The most frequent reason; the first to reach that count wins."""
        best, seen = "", Counter[str]()
        for _, reason in self.reasons:
            seen[reason] += 1
            if not best or seen[reason] > seen[best]:
                best = reason
        return best

    def message(self, *, resuming: bool = False) -> str:
        """`3/4 observed pods failed; primary reason=ErrImagePull; sample pod=box-0`."""
        during = " during resume" if resuming else ""
        sample = next((pod for pod, reason in self.reasons if reason == self.primary), "")
        return (
            f"{len(self.reasons)}/{self.observed} observed pods failed{during}; "
            f"primary reason={self.primary}; sample pod={sample}"
        )


def failing(pods: Iterable[PodFact], *, phase: str, now: datetime) -> Failing:
    """The failing ones among `pods`."""
    grace = RESUME_GRACE if phase == names.RESUMING else GRACE
    found: list[tuple[str, str]] = []
    waits: list[float] = []
    observed = 0
    for pod in pods:
        if pod.deleting:
            continue
        observed += 1
        reason, wait = _reason(pod, grace=grace, now_ms=times.to_ms(now))
        if reason and wait <= 0:
            found.append((pod.name, reason))
        elif reason:
            waits.append(wait)
    return Failing(tuple(found), observed, min(waits, default=None))


def _reason(pod: PodFact, *, grace: float, now_ms: int) -> tuple[str, float]:
    """Why the pod fails ("" if it does not), and how many seconds until that counts."""
    if pod.terminal:
        return f"Pod{pod.phase}", 0.0
    reasons = [reason for _, reason in pod.waiting]
    for reason in reasons:
        if reason in AT_ONCE:
            return reason, 0.0
    for reason in reasons:
        if reason in AFTER_GRACE:
            lasted = (now_ms - (pod.scheduled or pod.created)) / 1000
            return reason, grace - lasted
    return "", 0.0
