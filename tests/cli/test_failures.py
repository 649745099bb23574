"""What goes wrong is one line: what it is, and what to do about it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from osb.cli import look, main
from osb.cli.install import install_definitions
from osb.config import Settings
from osb.kube.client import connect
from osb.local.demo import pool_body
from osb.sim import SimCluster
from osb.store.client import connect as connect_store
from tests.cli.conftest import Called

Osbctl = Callable[..., Called]
AWAY = "redis://127.0.0.1:1/0"


def one_line(said: Called) -> str:
    lines = said.err.strip().splitlines()
    assert len(lines) == 1, said.err
    return lines[0]


@pytest.fixture
def bare(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[Osbctl, SimCluster]]:
    """A cluster with our kinds, one pool in namespace boxes and no controller; the command line points at it."""
    with SimCluster.start(tmp_path / "bare", kubelet=False) as cluster:
        settings = Settings(redis_url=redis_url, kubeconfig=str(cluster.kubeconfig))
        install_definitions(settings)
        kube = connect(settings, pool=2)
        body = pool_body()
        body["metadata"] |= {"name": "py", "namespace": "boxes"}
        kube.create("pool", "boxes", body)
        kube.close()
        monkeypatch.setenv("REDIS_URL", redis_url)
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

        def call(*arguments: str) -> Called:
            code = main.run(list(arguments))
            said = capsys.readouterr()
            return Called(code, said.out, said.err)

        yield call, cluster


class Unauthorised(BaseHTTPRequestHandler):
    """An API server that accepts no credentials."""

    def do_GET(self) -> None:
        body = json.dumps({"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def locked(tmp_path: Path, bare: tuple[Osbctl, SimCluster]) -> Iterator[str]:
    """A kubeconfig for a server that accepts no credentials."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unauthorised)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = tmp_path / "locked"
    path.write_text(bare[1].kubeconfig.read_text().replace(bare[1].url, f"http://127.0.0.1:{server.server_port}"))
    yield str(path)
    server.shutdown()
    server.server_close()


# -- ledger verify looks at every pool ---------------------------------------------------------------------------


def test_the_bare_verify_checks_the_pools_of_all_namespaces(bare: tuple[Osbctl, SimCluster]) -> None:
    said = bare[0]("ledger", "verify", "--settle", "0")
    assert said.code == 1 and "boxes/py" in said.out
    assert [one["pool"] for one in json.loads(bare[0]("ledger", "verify", "--settle", "0", "-o", "json").out)] == [
        "boxes/py"
    ]
    assert bare[0]("ledger", "verify", "-n", "boxes", "--settle", "0").code == 1


def test_verify_keeps_to_the_configured_namespaces_and_says_when_it_looked_at_nothing(
    bare: tuple[Osbctl, SimCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = bare[0]("ledger", "verify", "-n", "default", "-o", "json")
    assert (said.out.strip(), one_line(said)) == ("[]", "nothing was checked: there is no pool in namespace default")
    monkeypatch.setenv("OSB_NAMESPACES", "default,other")
    said = bare[0]("ledger", "verify")
    assert (said.code, said.out) == (0, "") and "no pool in namespaces default, other" in one_line(said)
    monkeypatch.setenv("OSB_NAMESPACES", "default,boxes")
    assert "boxes/py" in bare[0]("ledger", "verify", "--settle", "0").out
    monkeypatch.setenv("OSB_NAMESPACES", "default")
    assert "boxes/py" in bare[0]("ledger", "verify", "-A", "--settle", "0").out


# -- Redis of one cluster, kubeconfig of another -----------------------------------------------------------------

BOTH = [
    ("ledger", "verify"), ("ledger", "verify", "py", "-n", "boxes"), ("reconcile", "pool", "boxes/py"),
    ("explain", "pool", "boxes/py"), ("plan", "sandbox", "boxes/b"), ("explain", "snapshot", "boxes/s"),
    ("hold", "boxes/py"), ("unhold", "boxes/py"), ("release", "boxes/b", "--pod", "p"),
    ("doctor", "--prepare-rollback"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", BOTH, ids=" ".join)
def test_redis_of_another_cluster_is_refused_before_anything_is_done(
    bare: tuple[Osbctl, SimCluster], redis_url: str, arguments: tuple[str, ...]
) -> None:
    store = connect_store(redis_url)
    store.pin("its-uid theirs")
    said = bare[0](*arguments)
    queued = store.redis.llen("osb.pool.now")
    store.close()
    assert (said.code, said.out, queued) == (2, "", 0)
    line = one_line(said)
    assert "Redis is used by cluster its-uid (installation theirs), KUBECONFIG is cluster " in line
    assert "set REDIS_URL or KUBECONFIG to the other's partner" in line


def test_a_redis_that_is_away_does_not_stop_a_hold_nor_its_end(bare: tuple[Osbctl, SimCluster]) -> None:
    said = bare[0]("hold", "boxes/py", "--redis-url", AWAY)
    assert "pool boxes/py is held" in said.out
    # (no controller runs here, and that is said)
    assert said.code == 1 and "no worker has acted on it" in said.err
    assert "goes on" in bare[0]("unhold", "boxes/py", "--redis-url", AWAY).out


# -- the doctor names a cause once -------------------------------------------------------------------------------


def findings(said: Called) -> dict[str, tuple[str, str, str]]:
    return {one["check"]: (one["level"], one["text"], one["fix"]) for one in json.loads(said.out)}


def test_the_doctor_says_once_that_redis_is_away_and_what_to_do(bare: tuple[Osbctl, SimCluster]) -> None:
    found = findings(bare[0]("doctor", "--redis-url", AWAY, "-o", "json"))
    level, text, fix = found["Redis"]
    assert level == "error" and "127.0.0.1:1" in text and fix == "is Redis up, and is --redis-url (REDIS_URL) right?"
    for check in ("cluster", "Lease", "mirror", "beat and queue"):
        assert found[check] == ("warning", "not checked, needs Redis", "")
    assert found["API server"][0] == found["CRDs"][0] == found["permissions"][0] == "ok"
    said = bare[0]("doctor", "--redis-url", AWAY)
    assert said.code == 1 and said.out.count("Connection refused") == 1 and "1 error, " in said.out


def test_the_doctor_says_once_that_the_api_server_is_away_and_what_to_do(
    bare: tuple[Osbctl, SimCluster], tmp_path: Path
) -> None:
    path = tmp_path / "gone"
    path.write_text(bare[1].kubeconfig.read_text().replace(bare[1].url, "http://127.0.0.1:1"))
    found = findings(bare[0]("doctor", "--kubeconfig", str(path), "-o", "json"))
    assert found["API server"][0] == "error" and "--kubeconfig (KUBECONFIG)" in found["API server"][2]
    for check in ("cluster", "permissions", "CRDs", "Lease"):
        assert found[check] == ("warning", "not checked, needs the API server", "")
    both = findings(bare[0]("doctor", "--kubeconfig", str(path), "--redis-url", AWAY, "-o", "json"))
    assert both["Lease"][1] == "not checked, needs Redis and the API server"


def test_the_doctor_tells_of_credentials_that_are_not_accepted_once(
    bare: tuple[Osbctl, SimCluster], locked: str
) -> None:
    found = findings(bare[0]("doctor", "--kubeconfig", locked, "-o", "json"))
    level, text, fix = found["API server"]
    assert (level, text) == ("error", "get /version: 401 Unauthorized") and fix.endswith("not accepted: renew them")
    assert found["permissions"] == ("warning", "not checked, needs the API server", "")


def test_the_doctor_says_what_is_wrong_with_a_kubeconfig(bare: tuple[Osbctl, SimCluster], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    level, text, fix = findings(bare[0]("doctor", "--kubeconfig", str(tmp_path / "text"), "-o", "json"))["API server"]
    assert level == "error" and "it has not the structure of a kubeconfig" in text and fix


# -- one line with a remedy ----------------------------------------------------------------------------------------


def test_credentials_that_are_not_accepted_have_a_remedy(bare: tuple[Osbctl, SimCluster], locked: str) -> None:
    said = bare[0]("get", "pool", "boxes/py", "--kubeconfig", locked)
    assert one_line(said) == (
        "osbctl: get pool boxes/py: 401 Unauthorized; "
        "the credentials of --kubeconfig (KUBECONFIG) are not accepted: renew them"
    )


def test_a_right_that_is_missing_has_a_remedy(bare: tuple[Osbctl, SimCluster]) -> None:
    bare[1].add_fault(deny=True, path="/pools", verbs=["get", "list"])
    line = one_line(bare[0]("get", "pool", "boxes/py"))
    assert "403 Forbidden" in line and line.endswith("; `osbctl doctor` lists which rights this account lacks")


def test_a_kubeconfig_that_is_none_is_called_so(bare: tuple[Osbctl, SimCluster], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    said = bare[0]("get", "pools", "--kubeconfig", str(tmp_path / "text"))
    assert said.code == 2 and "it has not the structure of a kubeconfig; set --kubeconfig" in one_line(said)


def test_a_server_that_is_away_is_named_by_its_address(bare: tuple[Osbctl, SimCluster], tmp_path: Path) -> None:
    path = tmp_path / "gone"
    path.write_text(bare[1].kubeconfig.read_text().replace(bare[1].url, "https://127.0.0.1:1"))
    line = one_line(bare[0]("get", "pools", "--kubeconfig", str(path)))
    assert "127.0.0.1:1: " in line and "(host=" not in line and "is the API server up" in line


@pytest.mark.parametrize(("arguments", "lists"), [
    (("explain", "pool", "boxes/nix"), "there is no pool boxes/nix; `osbctl get pools -A`"),
    (("plan", "sandbox", "boxes/nix"), "there is no sandbox boxes/nix; `osbctl get sandboxes -A`"),
    (("explain", "snapshot", "boxes/nix"), "there is no snapshot boxes/nix; `osbctl get snapshots -A`"),
    (("get", "bsbx", "boxes/nix"), "there is no sandbox boxes/nix; `osbctl get sandboxes -A`"),
    (("hold", "boxes/nix"), "there is no pool boxes/nix; `osbctl get pools -A`"),
    (("reconcile", "recycle", "boxes/nix"), "there is no pod boxes/nix; `kubectl get pods -A`"),
])  # fmt: skip
def test_the_same_command_lists_what_there_is_in_every_hint(
    bare: tuple[Osbctl, SimCluster], arguments: tuple[str, ...], lists: str
) -> None:
    said = bare[0](*arguments)
    assert said.code == 3 and one_line(said).startswith(f"osbctl: {lists}")


@pytest.mark.parametrize("arguments", [
    ("get", "pools", ""), ("ledger", "verify", ""), ("queue", ""), ("journal", "--pool", ""),
    ("get", "pools", "-n", ""),
    ("get", "pools", "--kubeconfig", ""), ("explain", "pool", ""), ("hold", ""),
], ids=" ".join)  # fmt: skip
def test_an_empty_text_is_refused_and_does_not_mean_all(
    bare: tuple[Osbctl, SimCluster], arguments: tuple[str, ...]
) -> None:
    said = bare[0](*arguments)
    assert (said.code, said.out) == (2, "") and "it is empty" in one_line(said)


def test_what_the_parser_refuses_is_one_line_that_says_where_help_is(osbctl: Osbctl) -> None:
    said = osbctl("get", "pools", "--bogus")
    assert (said.code, one_line(said)) == (
        2, "osbctl get: No such option: --bogus; `osbctl get --help` shows what is accepted"
    )  # fmt: skip
    assert "Missing argument 'kind'; `osbctl reconcile --help`" in one_line(osbctl("reconcile"))
    assert one_line(osbctl("nonsense")).startswith("osbctl: No such command 'nonsense'")


def test_a_group_without_a_command_shows_its_help(osbctl: Osbctl) -> None:
    said = osbctl("ledger")
    assert said.code == 2 and "verify" in said.err and "Usage:" in said.err


def test_a_fault_of_ours_is_one_line_and_its_stack_is_shown_on_request(
    osbctl: Osbctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("'str' object\nhas no attribute 'get'")

    monkeypatch.setattr(look, "load", broken)
    said = osbctl("explain", "pool", "warm")
    line = one_line(said)
    assert said.code == 70 and line.startswith("osbctl: a fault of osbctl itself in test_failures.py:")
    assert "AttributeError: 'str' object has no attribute 'get'; OSB_DEBUG=1 shows where" in line
    monkeypatch.setenv("OSB_DEBUG", "1")
    assert "Traceback" in osbctl("plan", "pool", "warm").err
