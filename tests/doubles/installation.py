"""The chart installed on a real API server: its objects applied, its commands run here with its accounts' rights.

No kubelet runs containers there, so each pod's own command and environment become a process of this machine. Its
kubeconfig holds a token of the pod's ServiceAccount: it can do what its Role allows and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from osb.bench.plane import TOKEN
from osb.local.redis import EmbeddedRedis, die_with_parent, wait_or_kill
from tests.doubles import controlplane
from tests.doubles.chart import RELEASE, ROOT, Obj, Values, env, objects

BIN = Path(sys.executable).parent
PROBE = ROOT / "images" / "controller" / "probe.py"
PROCESSES = ("Deployment", "Job")


def kubectl(kubeconfig: Path, *arguments: str, text: str = "") -> str:
    """Its output. Fails with its words."""
    program = controlplane.kubectl()
    assert program is not None, "kubectl is missing"
    done = subprocess.run(
        [program, "--kubeconfig", str(kubeconfig), *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Installation:
    """`start()` applies the chart to `namespace` and runs every Deployment's process; `stop()` ends them."""

    folder: Path
    admin: Path
    namespace: str
    values: Values
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    pods: dict[str, Obj] = field(default_factory=dict)

    def apply(self) -> list[Obj]:
        """The rendered objects on the server, which checks every field."""
        made = objects(self.values, namespace=self.namespace)
        kubectl(self.admin, "apply", "--validate=true", "-f", "-", text=yaml.safe_dump_all(made))
        self.pods = {o["metadata"]["name"]: o["spec"]["template"] for o in made if o["kind"] in PROCESSES}
        return made

    def start(self) -> None:
        self.apply()
        self.redis = EmbeddedRedis(self.folder / "redis")
        self.redis.start()
        for name, pod in self.pods.items():
            if name != "opensandbox-uninstall" and "serviceAccountName" in pod["spec"]:
                self._run(name)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            wait_or_kill(process, 30)
        self.processes.clear()

    def uninstall(self) -> None:
        """What the pre-delete hook runs, with its rights."""
        command = self._command("opensandbox-uninstall")
        done = subprocess.run(
            command, env=self._env("opensandbox-uninstall"), capture_output=True, text=True, check=False, timeout=90
        )
        assert done.returncode == 0, done.stderr

    def heartbeat(self, name: str) -> Path:
        return self.folder / f"{name}.alive"

    def probe(self, name: str, what: str) -> bool:
        """What the kubelet would learn from the container's exec probe."""
        own = {"OSB_HEARTBEAT_FILE": str(self.heartbeat(name)), "OSB_REDIS_URL": self.redis.url}
        return subprocess.run([sys.executable, "-IS", str(PROBE), what], env=own, check=False).returncode == 0

    def logs(self) -> dict[str, str]:
        return {path.stem: path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log"))}

    def _run(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._command(name), env=self._env(name), cwd=self.folder, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
            )  # fmt: skip

    def _command(self, name: str) -> list[str]:
        first, *rest = self.pods[name]["spec"]["containers"][0]["command"]
        program = sys.executable if first == "python" else str(BIN / first)
        return [program, *(part.replace("$(POD_NAME)", name) for part in rest)]

    def _env(self, name: str) -> dict[str, str]:
        """The pod's plain variables; what it takes from Secrets, fields and ports of its own is given here."""
        plain = {key: value for key, value in env(self.pods[name]).items() if isinstance(value, str)}
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OSB_", "PYTEST_"))},
            **plain,
            "KUBECONFIG": str(self._account(self.pods[name]["spec"]["serviceAccountName"])),
            "POD_NAMESPACE": self.namespace,
            "OSB_REDIS_URL": self.redis.url,
            "OSB_HEARTBEAT_FILE": str(self.heartbeat(name)),
            "OSB_HEALTH_PROBE_BIND_ADDRESS": "0",
            "PYTHONUNBUFFERED": "1",
        }

    def _account(self, name: str) -> Path:
        """A kubeconfig with a fresh token of that ServiceAccount."""
        made = self.folder / f"{name}.kubeconfig"
        if not made.exists():
            ask: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
            token = json.loads(kubectl(self.admin, "create", "--raw", path, "-f", "-", text=json.dumps(ask)))
            made.write_text(self.admin.read_text().replace(TOKEN, token["status"]["token"]))
        return made


def identity(namespace: str) -> str:
    """What the Lease of that installation says."""
    return f"osb_{namespace}/{RELEASE}"
