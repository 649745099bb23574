"""`Freezer`: which containers may be frozen, and how all of them come back.

It tracks the wanted end (running), not its own actions: a container is tracked before it is paused, and one found
frozen, left by a killed attempt, is tracked too. So no signal between two lines leaks a frozen container.
"""

from __future__ import annotations

import logging

from osb.committer.nerdctl import CommandFailed, Container, Nerdctl

TRIES = 3
log = logging.getLogger("image-committer")


class Freezer:
    """Freezes containers of one pod and unfreezes all of them, the last first."""

    def __init__(self, nerdctl: Nerdctl) -> None:
        self._nerdctl = nerdctl
        self._tracked: list[str] = []

    def freeze(self, container: Container) -> bool:
        """Freeze it; True when it is frozen now. A runtime that cannot freeze is not an error by itself."""
        self._tracked.append(container.id)
        if container.frozen:
            return True
        try:
            self._nerdctl.pause(container.id)
        except CommandFailed as error:
            log.warning("container %s could not be frozen: %s", container.id[:12], error)
            return False
        return True

    def unfreeze_all(self) -> bool:
        """Unfreeze every tracked container, trying each a few times; True when none is left."""
        left = [id_ for id_ in reversed(self._tracked) if not unfreeze(self._nerdctl, id_)]
        self._tracked = list(reversed(left))
        return not left


def unfreeze(nerdctl: Nerdctl, id_: str) -> bool:
    """True when the container is not frozen any more. Only the last of the tries says why it failed."""
    why = ""
    for _ in range(TRIES):
        try:
            nerdctl.unpause(id_)
        except CommandFailed as error:
            why = str(error)
            if "not paused" in why.lower():
                return True
        else:
            return True
    log.warning("container %s could not be unfrozen in %d tries: %s", id_[:12], TRIES, why)
    return False
