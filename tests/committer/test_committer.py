"""The committer as a program, with a double of nerdctl that keeps state, records every call and fails on request."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osb.committer import credentials, report
from tests.doubles.waiting import wait_until

NERDCTL = """#!{python}
import json, os, sys, time
folder = os.environ["FAKE_FOLDER"]
words = sys.argv[1:]
assert words[:4] == ["--address", "/sock", "--namespace", "k8s.io"], words
words = words[4:]
command = words[0]
with open(folder + "/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
with open(folder + "/config", "a") as seen:
    config = os.environ.get("DOCKER_CONFIG", "")
    if config:
        seen.write(open(config + "/config.json").read() + "\\n")
count = sum(1 for line in open(folder + "/calls") if json.loads(line)[0] == command)
hang = os.environ.get("FAKE_HANG", "")
fail = os.environ.get("FAKE_FAIL", "")
state_file = folder + "/state"
state = json.load(open(state_file))
def save():
    json.dump(state, open(state_file, "w"))
def hit(spec):
    name, _, number = spec.partition(":")
    return name == command and (not number or int(number) == count)
if hit(fail) and not os.environ.get("FAKE_FAIL_LATE"):
    sys.stderr.write("fake failure\\n"); sys.exit(3)
if command == "ps":
    filters = dict(w.partition("=")[2].split("=", 1) for w in words if w.startswith("label="))
    every = "-a" in words
    for id_, c in state.items():
        labels = {"io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "n",
                  "io.kubernetes.pod.uid": "u", "io.kubernetes.container.name": c["name"]}
        up = c["state"] == "Up"
        if (up or every) and all(labels.get(k) == v for k, v in filters.items()):
            print(id_, c["state"])
elif command == "pause":
    if state[words[1]]["state"] != "Up":
        sys.stderr.write("container is already paused\\n"); sys.exit(1)
    state[words[1]]["state"] = "Paused"; save()
elif command == "unpause":
    if state[words[1]]["state"] != "Paused":
        sys.stderr.write("Container " + words[1] + " is not paused\\n"); sys.exit(1)
    state[words[1]]["state"] = "Up"; save()
elif command == "commit":
    assert words[1] == "--pause=false"
    state[words[2]]["committed_while"] = state[words[2]]["state"]; save()
elif command == "push":
    if not os.environ.get("FAKE_SILENT_PUSH"):
        print("manifest-sha256:" + "d" * 64 + ": done"); print("config-sha256:" + "e" * 64 + ": done")
elif command == "image":
    print('["reg/x@sha256:' + "f" * 64 + '"]' if not os.environ.get("FAKE_NO_DIGEST") else "[]")
if hit(fail):
    sys.stderr.write("fake failure\\n"); sys.exit(3)
if hit(hang):
    open(folder + "/hanging", "w").close()
    time.sleep(60)
"""

PROGRAM = """
import sys
from pathlib import Path
from osb.committer.main import main
raise SystemExit(main(credentials_file=Path(sys.argv.pop(1)), termination_log=Path(sys.argv.pop(1))))
"""


class Node:
    """A folder with the double, its state, and what was recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "nerdctl"
        program.parent.mkdir()
        program.write_text(NERDCTL.replace("{python}", sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.containers({"id-main": "Up", "id-side": "Up"})

    def containers(self, states: dict[str, str]) -> None:
        made = {id_: {"name": id_.partition("-")[2], "state": state} for id_, state in states.items()}
        (self.folder / "state").write_text(json.dumps(made))

    @property
    def states(self) -> dict[str, str]:
        found: dict[str, dict[str, str]] = json.loads((self.folder / "state").read_text())
        return {id_: c["state"] for id_, c in found.items()}

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def commands(self) -> list[str]:
        return [words[0] for words in self.calls if words[0] != "ps"]

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "log").read_text())
        return found

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        environ = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "CONTAINERD_SOCKET": "/sock",
            "FAKE_FOLDER": str(self.folder),
            **env,
        }
        command = [sys.executable, "-c", PROGRAM, str(self.folder / "config.json"), str(self.folder / "log"), *args]
        return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *args: str, **env: str) -> tuple[int, str, str]:
        process = self.start(*args, **env)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


MAIN, SIDE = "main:reg.example/ns/b/main:t", "side:reg.example/ns/b/side:t"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    yield Node(tmp_path)


def test_a_commit_freezes_all_commits_all_pushes_all_and_unfreezes_all(node: Node) -> None:
    code, out, _ = node.run("p", "n", MAIN, SIDE)
    assert code == 0
    assert node.commands == ["pause", "pause", "commit", "commit", "push", "push", "unpause", "unpause"]
    assert node.calls[-2:] == [["unpause", "id-side"], ["unpause", "id-main"]]
    assert node.states == {"id-main": "Up", "id-side": "Up"}
    digest = "sha256:" + "d" * 64
    assert node.report == {
        "v": 1,
        "containers": [
            {"name": "main", "image": "reg.example/ns/b/main:t", "digest": digest},
            {"name": "side", "image": "reg.example/ns/b/side:t", "digest": digest},
        ],
    }
    assert out.splitlines() == [
        f"SNAPSHOT_DIGEST_MAIN={digest}",
        f"SNAPSHOT_DIGEST_SIDE={digest}",
        f"SNAPSHOT_DIGEST={digest}",
    ]


def test_a_pause_leaves_the_containers_frozen_only_after_a_complete_success(node: Node) -> None:
    code, _, _ = node.run("p", "n", MAIN, SIDE, SNAPSHOT_KEEP_FROZEN="true")
    assert code == 0
    assert "unpause" not in node.commands
    assert node.states == {"id-main": "Paused", "id-side": "Paused"}


@pytest.mark.parametrize("keep", ["true", ""])
@pytest.mark.parametrize("fail", ["commit:1", "commit:2", "push:1", "push:2"])
def test_any_failure_unfreezes_everything_and_exits_with_one(node: Node, fail: str, keep: str) -> None:
    code, _, err = node.run("p", "n", MAIN, SIDE, FAKE_FAIL=fail, SNAPSHOT_KEEP_FROZEN=keep)
    assert code == 1
    assert "fake failure" in err
    assert node.states == {"id-main": "Up", "id-side": "Up"}
    step = fail.partition(":")[0]
    assert node.report == {"v": 1, "error": f"nerdctl {step} ended with 3: fake failure"}


def test_a_pause_that_was_made_although_it_failed_is_undone(node: Node) -> None:
    code, _, _ = node.run("p", "n", MAIN, FAKE_FAIL="pause:1", FAKE_FAIL_LATE="1", SNAPSHOT_KEEP_FROZEN="true")
    assert code == 1
    assert node.states["id-main"] == "Up"


def test_a_runtime_that_cannot_freeze_still_saves_a_running_sandbox_but_not_a_pause(node: Node) -> None:
    assert node.run("p", "n", MAIN, FAKE_FAIL="pause")[0] == 0
    assert node.run("p", "n", MAIN, FAKE_FAIL="pause", SNAPSHOT_KEEP_FROZEN="true")[0] == 1


def test_a_container_found_frozen_is_committed_and_unfrozen(node: Node) -> None:
    # Given what a killed attempt leaves behind
    node.containers({"id-main": "Paused", "id-side": "Up"})
    assert node.run("p", "n", MAIN, SIDE)[0] == 0
    assert node.states == {"id-main": "Up", "id-side": "Up"}


def test_an_ended_container_of_an_earlier_restart_is_not_taken(node: Node) -> None:
    states = {"id0-main": "Exited (1) 2 minutes ago", "id-main": "Up 5 minutes"}
    node.containers(states)
    node.run("p", "n", MAIN)
    assert ["pause", "id-main"] in node.calls


def test_a_missing_container_changes_nothing(node: Node) -> None:
    code, _, err = node.run("p", "n", MAIN, "other:reg.example/ns/b/o:t")
    assert (code, node.commands) == (1, [])
    assert "container other of pod n/p is not on this node" in err


def test_another_pod_of_the_same_name_is_not_touched(node: Node) -> None:
    assert node.run("p", "n", MAIN, SNAPSHOT_POD_UID="earlier")[0] == 1
    assert node.commands == []
    assert node.run("p", "n", MAIN, SNAPSHOT_POD_UID="u")[0] == 0


@pytest.mark.parametrize("step", ["pause:2", "commit:1", "push:1"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_any_step_unfreezes_everything(node: Node, step: str, number: signal.Signals) -> None:
    process = node.start("p", "n", MAIN, SIDE, FAKE_HANG=step, SNAPSHOT_KEEP_FROZEN="true")
    wait_until((node.folder / "hanging").exists)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 1
    assert node.states == {"id-main": "Up", "id-side": "Up"}


def test_a_second_signal_does_not_cut_the_unfreezing_short(node: Node) -> None:
    process = node.start("p", "n", MAIN, SIDE, FAKE_HANG="unpause:1", FAKE_FAIL="push:1")
    wait_until((node.folder / "hanging").exists)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: node.commands.count("unpause") >= 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert node.states == {"id-main": "Up", "id-side": "Up"}


def test_unpause_unfreezes_what_is_frozen_and_leaves_the_rest(node: Node) -> None:
    node.containers({"id-main": "Paused", "id-side": "Up"})
    assert node.run("unpause", "p", "n", "main", "side")[0] == 0
    assert node.commands == ["unpause"]
    assert node.states == {"id-main": "Up", "id-side": "Up"}


def test_unpause_tries_all_before_it_fails(node: Node) -> None:
    node.containers({"id-main": "Paused"})
    code, _, err = node.run("unpause", "p", "n", "gone", "main")
    assert code == 1
    assert "gone" in err
    assert node.states == {"id-main": "Up"}


def test_unpause_says_once_that_a_container_stays_frozen(node: Node) -> None:
    node.containers({"id-main": "Paused"})
    code, _, err = node.run("unpause", "p", "n", "main", FAKE_FAIL="unpause")
    assert code == 1
    assert node.commands == ["unpause"] * 3
    assert err.count("fake failure") == 1


def test_a_success_that_could_not_unfreeze_is_reported_as_a_failure(node: Node) -> None:
    code, _, _ = node.run("p", "n", MAIN, FAKE_FAIL="unpause")
    assert code == 1
    assert "could not be unfrozen" in node.report["error"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("nerdctl push ended with 1: 401 Unauthorized", "nerdctl push ended with 1: 401 Unauthorized"),
        ("failed to fetch anonymous token: unexpected status", "failed to fetch anonymous token: unexpected status"),
        ("GET https://bob:pw1@reg/v2/?sig=pw2: 403", "GET https://***@reg/v2/?*** 403"),
        ("Authorization: Basic Ym9iOnB3MTIzNDU2", "Authorization: Basic ***"),
        ("Bearer eyJhbGciOi.J9.pw and password=pw3, so", "Bearer *** and password=***, so"),
        ('{\\"identitytoken\\":\\"pw4\\"}', '{\\"identitytoken\\":\\"***\\"}'),
        ("two\nlines\x00\u00e9", "two lines ?"),
    ],
)
def test_a_failure_is_one_line_without_credentials(said: str, shown: str) -> None:
    assert json.loads(report.failure(said)) == {"v": 1, "error": shown}


def test_a_long_failure_keeps_its_ends_and_fits_into_a_termination_message() -> None:
    text = report.failure("begin " + '"\U0001f512' * 5000 + " end")
    assert len(text.encode()) < report.LIMIT
    error = json.loads(text)["error"]
    assert error.startswith("begin ")
    assert error.endswith(" end")


@pytest.mark.parametrize("args", [(), ("p", "n"), ("unpause", "p", "n"), ("p", "n", "main"), ("p", "n", ":image")])
def test_wrong_arguments_change_nothing(node: Node, args: tuple[str, ...]) -> None:
    assert node.run(*args)[0] == 1
    assert node.commands == []


@pytest.mark.parametrize(
    ("value", "insecure"), [("true", True), ("1", True), ("false", False), ("", False), ("maybe", False)]
)
def test_tls_is_left_out_only_when_told_so_whatever_the_host_is_called(node: Node, value: str, insecure: bool) -> None:
    node.run("p", "n", "main:registry.local:5000/ns/b/main:t", SNAPSHOT_REGISTRY_INSECURE=value)
    push = next(words for words in node.calls if words[0] == "push")
    assert ("--insecure-registry" in push) is insecure


def test_the_digest_is_the_manifests_and_never_the_configs(node: Node) -> None:
    node.run("p", "n", MAIN, FAKE_SILENT_PUSH="1")
    assert node.report["containers"][0]["digest"] == "sha256:" + "f" * 64


def test_an_image_without_a_known_digest_is_no_success(node: Node) -> None:
    assert node.run("p", "n", MAIN, FAKE_SILENT_PUSH="1", FAKE_NO_DIGEST="1")[0] == 1


def test_a_report_that_cannot_be_written_is_no_success(node: Node) -> None:
    (node.folder / "log").mkdir()
    assert node.run("p", "n", MAIN, SNAPSHOT_KEEP_FROZEN="true")[0] == 1
    assert node.states["id-main"] == "Up"


# -- credentials -----------------------------------------------------------------------------------------------------

LOGIN = {"auth": base64.b64encode(b"me:pass-word").decode()}


def test_credentials_reach_nerdctl_in_a_file_and_never_in_its_arguments(node: Node) -> None:
    (node.folder / "config.json").write_text(json.dumps({"auths": {"https://reg.example/v2/": LOGIN, "other": LOGIN}}))
    assert node.run("p", "n", MAIN)[0] == 0
    seen = json.loads((node.folder / "config").read_text().splitlines()[0])
    assert seen == {"auths": {"reg.example": LOGIN}}
    assert "pass-word" not in json.dumps(node.calls)
    assert LOGIN["auth"] not in json.dumps(node.calls)


def test_unreadable_credentials_stop_before_anything_is_frozen(node: Node) -> None:
    (node.folder / "config.json").write_text("{")
    assert node.run("p", "n", MAIN)[0] == 1
    assert node.commands == []


@pytest.mark.parametrize(
    ("key", "host", "applies"),
    [
        ("reg.example", "reg.example", True),
        ("https://reg.example", "reg.example", True),
        ("https://reg.example/v1/", "reg.example", True),
        ("reg.example/team", "reg.example", True),
        ("reg.example:5000", "reg.example:5000", True),
        ("reg.example", "reg.example:5000", False),
        ("reg.example.org", "reg.example", False),
        ("https://index.docker.io/v1/", "docker.io", True),
        ("docker.io", "registry-1.docker.io", True),
        ("https://index.docker.io/v1/", "reg.example", False),
    ],
)
def test_logins_are_matched_as_docker_does(key: str, host: str, applies: bool) -> None:
    assert (credentials.entry_for({key: LOGIN}, host) is not None) is applies


def test_the_exact_key_wins() -> None:
    exact = {"auth": "exact"}
    assert credentials.entry_for({"https://reg.example": LOGIN, "reg.example": exact}, "reg.example") == exact


def test_a_user_name_and_password_become_a_login(tmp_path: Path) -> None:
    source = tmp_path / "source.json"
    source.write_text(json.dumps({"auths": {"reg.example": {"username": "me", "password": "pass-word"}}}))
    folder = credentials.write_config(source, tmp_path / "docker", ["reg.example/a:t"])
    written = Path(folder) / "config.json"
    assert json.loads(written.read_text()) == {"auths": {"reg.example": LOGIN}}
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("reg.example/a:t", "reg.example"),
        ("localhost/a", "localhost"),
        ("reg:5000/a", "reg:5000"),
        ("library/a", "docker.io"),
        ("a", "docker.io"),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str) -> None:
    assert credentials.registry_of(image) == registry


# -- the image -------------------------------------------------------------------------------------------------------


def test_the_program_imports_nothing_but_the_standard_library() -> None:
    check = (
        "import sys; before = set(sys.modules); import osb.committer.main; "
        "extra = {m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names); "
        "print(sorted(extra))"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "['osb']"
