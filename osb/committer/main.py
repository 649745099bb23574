"""Arguments, environment, signals and exit code of the committer. Next: `osb.committer.commit`.

    image-committer <pod> <namespace> <container:image>…
    image-committer unpause <pod> <namespace> <container>…

==========================  =========================================================================
variable                    meaning
==========================  =========================================================================
CONTAINERD_SOCKET           default /run/containerd/containerd.sock
CONTAINERD_NAMESPACE        default k8s.io
SNAPSHOT_POD_UID            the pod must have this UID; not checked when empty
SNAPSHOT_REGISTRY_INSECURE  `true` allows plain HTTP and unknown certificates; anything else does not
SNAPSHOT_KEEP_FROZEN        `true` leaves the containers frozen after a complete success
==========================  =========================================================================

Exit code 0: all saved (or all unfrozen); 1: not, and the log says why, as does the termination message of a
commit. A SIGTERM or SIGINT ends it with 1 after everything is unfrozen.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from osb.committer import commit as steps
from osb.committer import credentials, report
from osb.committer.commit import CommitFailed, Target
from osb.committer.nerdctl import Nerdctl

CREDENTIALS = Path("/var/run/opensandbox/registry/config.json")
TERMINATION_LOG = Path("/dev/termination-log")
USAGE = "usage: image-committer <pod> <namespace> <container:image>... | unpause <pod> <namespace> <container>..."
log = logging.getLogger("image-committer")


class Interrupted(BaseException):
    """A signal asked the program to end; not an error of any step, so no step may catch it."""


def main(
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    credentials_file: Path = CREDENTIALS,
    termination_log: Path = TERMINATION_LOG,
) -> int:
    """Run it; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    words = list(sys.argv[1:] if argv is None else argv)
    env = dict(os.environ if environ is None else environ)
    unpausing = words[:1] == ["unpause"]
    words = words[1:] if unpausing else words
    if len(words) < 3:
        log.error(USAGE)
        return 1
    _watch_signals()
    why = "interrupted; everything is unfrozen"
    target = Target(pod=words[0], namespace=words[1], uid=env.get("SNAPSHOT_POD_UID", ""))
    try:
        if unpausing:
            return 1 if steps.unpause(_nerdctl(env), target, words[2:]) else 0
        return _commit(env, target, words[2:], credentials_file, termination_log)
    except CommitFailed as error:
        why = str(error)
    except Interrupted:
        pass
    _fail(why, termination_log)
    return 1


def _fail(why: str, termination_log: Path) -> None:
    """Say why in the log and in the termination message, which replaces that of an incomplete success."""
    log.error("%s", why)
    try:
        report.write(termination_log, report.failure(why))
    except OSError as error:
        log.warning("the termination message cannot be written: %s", error)


def _commit(
    env: Mapping[str, str],
    target: Target,
    specs: Sequence[str],
    credentials_file: Path,
    termination_log: Path,
) -> int:
    images = [parse_spec(spec) for spec in specs]
    with tempfile.TemporaryDirectory() as folder:
        try:
            config = credentials.write_config(credentials_file, Path(folder) / "docker", (i for _, i in images))
        except (OSError, ValueError) as error:
            raise CommitFailed(f"registry credentials cannot be read: {error}") from error

        def told(saved: Sequence[steps.Saved]) -> None:
            sys.stdout.write("".join(f"{line}\n" for line in report.lines(saved)))
            report.write(termination_log, report.message(saved))

        steps.commit(
            _nerdctl(env, config),
            target,
            images,
            insecure=_flag(env, "SNAPSHOT_REGISTRY_INSECURE"),
            keep_frozen=_flag(env, "SNAPSHOT_KEEP_FROZEN"),
            report=told,
        )
    return 0


def parse_spec(spec: str) -> tuple[str, str]:
    """`container:image`, split at the first colon. Raises CommitFailed when a half is empty."""
    name, _, image = spec.partition(":")
    if not name or not image:
        raise CommitFailed(f"{spec!r} is not container:image")
    return name, image


def _nerdctl(env: Mapping[str, str], config: str = "") -> Nerdctl:
    return Nerdctl(
        socket=env.get("CONTAINERD_SOCKET") or "/run/containerd/containerd.sock",
        namespace=env.get("CONTAINERD_NAMESPACE") or "k8s.io",
        config=config,
        environ=env,
    )


def _flag(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").strip().lower() in ("true", "1", "t")


def _watch_signals() -> None:
    """The first signal interrupts the step in progress; later ones are ignored while unfreezing."""

    def interrupt(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
