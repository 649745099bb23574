"""One method per `nerdctl` command that the committer needs. In: words. Out: text, or `CommandFailed`.

Arguments are lists and never pass a shell; credentials never stand among them, because every process of the
node can read a command line.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

TIMEOUT = 900  # seconds for one command; the Job's deadline is what normally ends a slow push
_DIGEST = re.compile(r"\b(index|manifest)-(sha256:[0-9a-f]{64})")
_REPO_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})")


class CommandFailed(Exception):
    """A nerdctl command ended with an error; the message names it and the last line it said."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container that runs or is frozen."""

    id: str
    frozen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Nerdctl:
    """`socket` and `namespace` of containerd. `config` is a Docker configuration directory, "" for none."""

    socket: str
    namespace: str
    config: str = ""
    program: str = "nerdctl"
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def find(self, pod: str, pod_namespace: str, container: str, *, pod_uid: str = "") -> Container | None:
        """The container by its Kubernetes labels, running or frozen; ended ones of earlier restarts do not count.

        `-a` because a frozen container is not listed otherwise.
        """
        labels = {"pod.name": pod, "pod.namespace": pod_namespace, "container.name": container}
        if pod_uid:
            labels["pod.uid"] = pod_uid
        filters = [w for key, value in labels.items() for w in ("--filter", f"label=io.kubernetes.{key}={value}")]
        listed = self._run("ps", "-a", "--no-trunc", "--format", "{{.ID}} {{.Status}}", *filters)
        for line in listed.splitlines():
            id_, _, status = line.strip().partition(" ")
            state = status.strip().lower()
            if id_ and state.startswith(("up", "paused")):
                return Container(id_, state.startswith("paused") or "(paused)" in state)
        return None

    def pause(self, id_: str) -> None:
        self._run("pause", id_)

    def unpause(self, id_: str) -> None:
        self._run("unpause", id_)

    def commit(self, id_: str, image: str) -> None:
        """Commit as it is: the freezer has frozen it, and nerdctl must not unfreeze it."""
        self._run("commit", "--pause=false", id_, image)

    def push(self, image: str, *, insecure: bool) -> str:
        """Push, and return the manifest digest that the registry now has under the tag; "" when it is not told."""
        said = self._run("push", *(["--insecure-registry"] if insecure else []), image)
        found = dict(reversed(_DIGEST.findall(said)))
        return found.get("index") or found.get("manifest") or ""

    def repo_digest(self, image: str) -> str:
        """The manifest digest that containerd knows for an image, "" when it knows none."""
        said = self._run("image", "inspect", "--format", "{{json .RepoDigests}}", image)
        found = _REPO_DIGEST.search(said)
        return found.group(1) if found else ""

    def _run(self, *words: str) -> str:
        command = [self.program, "--address", self.socket, "--namespace", self.namespace, *words]
        environ = {**self.environ, **({"DOCKER_CONFIG": self.config} if self.config else {})}
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                env=environ,
                check=False,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandFailed(f"nerdctl {words[0]}: {error}") from error
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            why = lines[-1] if lines else "no output"
            raise CommandFailed(f"nerdctl {words[0]} ended with {done.returncode}: {why}")
        return f"{done.stdout}\n{done.stderr}" if words[0] == "push" else done.stdout
