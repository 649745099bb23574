"""The order of a commit: find all, freeze all, commit all, push all, report, unfreeze all.

Whatever fails or interrupts, every container is unfrozen before the program ends; only a complete success of
a pause (`keep_frozen`) leaves them frozen, because their pod is removed next and nothing written after the
commit may be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from osb.committer.freezer import Freezer, unfreeze
from osb.committer.nerdctl import CommandFailed, Container, Nerdctl

log = logging.getLogger("image-committer")

Saved = tuple[str, str, str]  # container, image, manifest digest


class CommitFailed(Exception):
    """The images are not all saved; everything is running again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The pod; `uid` "" when the caller does not know it."""

    pod: str
    namespace: str
    uid: str = ""


def commit(
    nerdctl: Nerdctl,
    target: Target,
    images: Sequence[tuple[str, str]],
    *,
    insecure: bool,
    keep_frozen: bool,
    report: Callable[[Sequence[Saved]], None],
) -> None:
    """Save `images` (container, image).

    Raises CommitFailed, or whatever interrupted it, with nothing left frozen.
    """
    found = [(_found(nerdctl, target, name), name, image) for name, image in images]
    freezer = Freezer(nerdctl)
    try:
        try:
            saved = _save(nerdctl, freezer, found, insecure=insecure, must_freeze=keep_frozen)
            report(saved)
            if not keep_frozen and not freezer.unfreeze_all():
                raise CommandFailed("the images are saved, but a container could not be unfrozen")
        except BaseException:
            freezer.unfreeze_all()
            raise
    except (CommandFailed, OSError, ValueError) as error:
        raise CommitFailed(str(error)) from error
    except BaseException:
        # A first signal may have cut the unfreezing above short; no second one can (see main).
        freezer.unfreeze_all()
        raise


def _save(
    nerdctl: Nerdctl,
    freezer: Freezer,
    found: Sequence[tuple[Container, str, str]],
    *,
    insecure: bool,
    must_freeze: bool,
) -> list[Saved]:
    _freeze(freezer, found, must=must_freeze)
    for container, _, image in found:
        nerdctl.commit(container.id, image)
    return [(name, image, _push(nerdctl, image, insecure=insecure)) for _, name, image in found]


def unpause(nerdctl: Nerdctl, target: Target, containers: Sequence[str]) -> list[str]:
    """Unfreeze the containers; returns those that could not be, after trying all."""
    left = []
    for name in containers:
        try:
            container = _found(nerdctl, target, name)
        except CommitFailed as error:
            log.error("%s", error)
            left.append(name)
            continue
        if container.frozen and not unfreeze(nerdctl, container.id):
            left.append(name)
    return left


def _found(nerdctl: Nerdctl, target: Target, name: str) -> Container:
    try:
        container = nerdctl.find(target.pod, target.namespace, name, pod_uid=target.uid)
    except CommandFailed as error:
        raise CommitFailed(str(error)) from error
    if container is None:
        raise CommitFailed(f"container {name} of pod {target.namespace}/{target.pod} is not on this node")
    return container


def _freeze(freezer: Freezer, found: Sequence[tuple[Container, str, str]], *, must: bool) -> None:
    for container, name, _ in found:
        if not freezer.freeze(container) and must:
            raise CommandFailed(f"container {name} cannot be frozen; what it writes after the commit would be lost")


def _push(nerdctl: Nerdctl, image: str, *, insecure: bool) -> str:
    digest = nerdctl.push(image, insecure=insecure) or nerdctl.repo_digest(image)
    if not digest:
        raise CommandFailed(f"{image} was pushed, but its manifest digest is not known")
    return digest
