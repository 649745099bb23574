"""A real control plane for benchmarks and acceptance tests.

It is the etcd, kube-apiserver and kube-controller-manager of KUBEBUILDER_ASSETS. In: a folder with the binaries
and an empty folder. Out: a kubeconfig with all rights, until `stop`. Data is not synced to disk, and nodes are
played by the fake kubelet: the API server is measured, no disk and no container runtime.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from osb.errors import ConfigError
from osb.local.redis import die_with_parent, free_ports, wait_or_kill

NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager")
TOKEN = "admin-token"
# garbage collection, namespaces, Jobs, pods of lost nodes and quotas; no scheduler: the fake kubelet binds
CONTROLLERS = "garbagecollector,namespace,job,ttl,ttl-after-finished,podgc,resourcequota"
JOBS_END = "TTLAfterFinished"  # Jobs that delete themselves had to be switched on before 1.21; the switch is gone today

_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: bench, cluster: {{server: "{url}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: bench, context: {{cluster: bench, user: admin}}}}]
current-context: bench
"""


def assets() -> Path:
    """The folder of KUBEBUILDER_ASSETS. Raises ConfigError when it is not set or incomplete."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    missing = [name for name in NEEDED if not os.access(folder / name, os.X_OK)]
    if not folder.name or missing:
        raise ConfigError(
            f"KUBEBUILDER_ASSETS={folder if folder.name else ''}: a folder with {', '.join(NEEDED)} is needed "
            f"for --cluster real{'; missing: ' + ', '.join(missing) if folder.name else ''}"
        )
    return folder


@dataclass(slots=True)
class Plane:
    """`start` gives the kubeconfig; `stop` ends what was started."""

    assets: Path
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, *, timeout: float = 90.0) -> Path:
        """Raises ConfigError with the API server's last words when it does not become ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        client, peer, secure = free_ports(3)
        url = f"https://127.0.0.1:{secure}"
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(_KUBECONFIG.format(url=url, token=TOKEN))
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        self._etcd(f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}")
        self._apiserver(f"http://127.0.0.1:{client}", secure, key)
        self._until_ready(url, timeout)
        self._run(
            "kube-controller-manager", f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0",
            f"--service-account-private-key-file={key}", f"--controllers={CONTROLLERS}",
            *self._if_known("kube-controller-manager", "--port ", "--port=0"),
            *self._if_known("kube-controller-manager", JOBS_END, f"--feature-gates={JOBS_END}=true"),
        )  # fmt: skip
        return kubeconfig

    def stop(self) -> None:
        for process in reversed(self.running.values()):
            process.terminate()
            wait_or_kill(process, 10)
        self.running.clear()

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.running.items()}

    def _etcd(self, own: str, other: str) -> None:
        self._run(
            "etcd", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", f"--listen-client-urls={own}",
            f"--advertise-client-urls={own}", f"--listen-peer-urls={other}",
            f"--initial-advertise-peer-urls={other}", f"--initial-cluster=default={other}",
        )  # fmt: skip

    def _apiserver(self, etcd: str, port: int, key: Path) -> None:
        self._run(
            "kube-apiserver", f"--etcd-servers={etcd}", f"--cert-dir={self.folder / 'pki'}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}",
            *self._if_known("kube-apiserver", "--insecure-port", "--insecure-port=0"),
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
            *self._if_known("kube-apiserver", JOBS_END, f"--feature-gates={JOBS_END}=true"),
        )  # fmt: skip

    def _if_known(self, program: str, word: str, flag: str) -> list[str]:
        """A flag that only older versions have."""
        shown = subprocess.run([str(self.assets / program), "--help"], capture_output=True, text=True, check=False)
        return [flag] if word in shown.stdout + shown.stderr else []

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.log").open("ab") as log:
            self.running[program] = subprocess.Popen(
                [str(self.assets / program), *arguments], cwd=self.folder, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
            )  # fmt: skip

    def _until_ready(self, url: str, timeout: float) -> None:
        end = time.monotonic() + timeout
        while not _ready(url):
            if any(process.poll() is not None for process in self.running.values()) or time.monotonic() > end:
                tail = (self.folder / "kube-apiserver.log").read_text(errors="replace")[-800:]
                self.stop()
                raise ConfigError(f"the control plane did not become ready: {tail}")
            time.sleep(0.1)


def _ready(url: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    asked = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(asked, timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
