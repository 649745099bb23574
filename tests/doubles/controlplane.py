"""A real Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager from a folder of binaries.

`find()` looks where the documentation says: KUBEBUILDER_ASSETS, a build script beside the checkout, a kubeconfig of a
disposable cluster. `ControlPlane` starts the binaries on free loopback ports and stops exactly what it started.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from osb.local.redis import die_with_parent

NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager")
SCRIPT = Path(__file__).resolve().parents[3] / "shared" / "tools" / "control-plane"
TOKEN = "admin-token"

_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: local, cluster: {{server: "{url}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: local, context: {{cluster: local, user: admin}}}}]
current-context: local
"""


@dataclass(frozen=True, slots=True)
class Found:
    """Where a real cluster comes from: binaries to start, or the kubeconfig of one that runs."""

    assets: Path | None = None
    kubeconfig: Path | None = None


def find() -> Found | None:
    """The first of the three places that has one; None when there is no real cluster to test on."""
    if (assets := os.environ.get("KUBEBUILDER_ASSETS")) and _complete(Path(assets)):
        return Found(assets=Path(assets))
    if os.access(SCRIPT, os.X_OK):
        asked = subprocess.run([str(SCRIPT), "assets"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and _complete(Path(asked.stdout.strip())):
            return Found(assets=Path(asked.stdout.strip()))
    named = os.environ.get("OSB_TEST_KUBECONFIG")
    if named and os.environ.get("OSB_TEST_CLUSTER_DISPOSABLE") == "1":
        return Found(kubeconfig=Path(named))
    return None


def must_exist() -> bool:
    """In CI a control plane that could be built but is not there is an error, not a reason to test less."""
    return os.environ.get("CI", "").lower() in ("1", "true") and SCRIPT.exists()


def kubectl() -> str | None:
    """A kubectl to test with: on PATH, else beside the control plane's binaries."""
    if path := shutil.which("kubectl"):
        return path
    found = find()
    beside = found.assets / "kubectl" if found and found.assets else None
    return str(beside) if beside and os.access(beside, os.X_OK) else None


def _complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in NEEDED)


@dataclass
class ControlPlane:
    """`start()` returns the path of a kubeconfig with all rights; `stop()` ends what was started."""

    assets: Path
    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> Path:
        """Raises RuntimeError with the last words of the process that did not come up."""
        (self.folder / "pki").mkdir(parents=True, exist_ok=True)
        client, peer, secure = _free_ports(3)
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(_KUBECONFIG.format(url=f"https://127.0.0.1:{secure}", token=TOKEN))
        self._etcd(client, peer)
        self._apiserver(client, secure)
        self._await_ready(secure)
        self._controllers(kubeconfig)
        return kubeconfig

    def stop(self) -> None:
        for process in reversed(self.running):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self.running.clear()

    def _etcd(self, client: int, peer: int) -> None:
        own, other = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._run(
            "etcd", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync",
            f"--listen-client-urls={own}", f"--advertise-client-urls={own}",
            f"--listen-peer-urls={other}", f"--initial-advertise-peer-urls={other}",
            f"--initial-cluster=default={other}",
        )  # fmt: skip

    def _apiserver(self, client: int, secure: int) -> None:
        pki = self.folder / "pki"
        key = pki / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
        self._run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{client}", f"--cert-dir={pki}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={secure}",
            *(["--insecure-port=0"] if self._knows("kube-apiserver", "--insecure-port") else []),
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount", *self._gates("kube-apiserver"),
        )  # fmt: skip

    def _controllers(self, kubeconfig: Path) -> None:
        """Garbage collection, namespaces, Jobs, pods of lost nodes and quotas; no scheduler: the fake kubelet binds."""
        self._run(
            "kube-controller-manager", f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0",
            f"--service-account-private-key-file={self.folder / 'pki' / 'accounts.key'}",
            "--controllers=garbagecollector,namespace,job,ttl,ttl-after-finished,podgc,resourcequota",
            *(["--port=0"] if self._knows("kube-controller-manager", "--port ") else []),
            *self._gates("kube-controller-manager"),
        )  # fmt: skip

    def _gates(self, program: str) -> list[str]:
        """Jobs that delete themselves had to be switched on before 1.21, and the switch is gone today."""
        return ["--feature-gates=TTLAfterFinished=true"] if self._knows(program, "TTLAfterFinished") else []

    def _knows(self, program: str, text: str) -> bool:
        shown = subprocess.run([str(self.assets / program), "--help"], capture_output=True, text=True, check=False)
        return text in shown.stdout + shown.stderr

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.log").open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    [str(self.assets / program), *arguments],
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    preexec_fn=die_with_parent,
                )
            )

    def _await_ready(self, port: int) -> None:
        end, pause = time.monotonic() + 60, threading.Event()
        while not _is_ready(port):
            dead = [p for p in self.running if p.poll() is not None]
            if dead or time.monotonic() > end:
                tail = (self.folder / "kube-apiserver.log").read_text(errors="replace")[-800:]
                self.stop()
                raise RuntimeError(f"the control plane did not become ready: {tail}")
            pause.wait(0.1)


def _is_ready(port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    link = http.client.HTTPSConnection("127.0.0.1", port, timeout=2, context=context)
    try:
        link.request("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        return link.getresponse().status == 200
    except OSError:
        return False
    finally:
        link.close()


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
