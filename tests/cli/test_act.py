"""Commands that act: by hand, on the same paths as everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from osb.api import names
from osb.api.key import POOL, Key
from osb.local.demo import box_body
from osb.store.client import connect
from tests.cli.conftest import Called, Installation

Osbctl = Callable[..., Called]


def test_a_hand_sent_reconcile_runs_once_and_waits_for_its_end(osbctl: Osbctl) -> None:
    said = osbctl("reconcile", "pool", "default/warm", "--reason", 'it\'s "me"', "--wait")
    assert said.code == 0
    assert "sent osb.reconcile.pool for default/warm" in said.out and re.search(r"done after \S+: \w", said.out), (
        said.out
    )


def test_a_hand_sent_reconcile_is_what_celery_itself_would_have_sent(osbctl: Osbctl, redis_url: str) -> None:
    # Given a queue without workers
    store = connect(redis_url)
    task_id = store.queue.send_hand(Key(POOL, "ns", "a"), "look\nhere")
    message = json.loads(store.redis.rpop("osb.pool.now"))
    store.close()
    # Then it lies on the kind's now queue without the wake-up header, with its arguments in both forms
    assert "osb-wake" not in message["headers"]
    assert message["headers"]["id"] == task_id == message["properties"]["correlation_id"]
    assert message["headers"]["task"] == "osb.reconcile.pool"
    assert json.loads(message["body"])[0] == ["ns", "a", "look here"]
    assert message["properties"]["delivery_info"]["routing_key"] == "osb.pool.now"


def test_reconciling_what_does_not_exist_sends_nothing(osbctl: Osbctl) -> None:
    said = osbctl("reconcile", "pool", "default/nix")
    assert (said.code, said.out) == (3, "")


def test_release_takes_only_pods_of_that_sandbox(osbctl: Osbctl, installation: Installation) -> None:
    said = osbctl("release", "default/pair", "--pod", "warm-zzzzz")
    assert said.code == 2 and "not a pod of default/pair" in said.err
    annotations = installation.kube.get("batchsandbox", "default", "pair")["metadata"]["annotations"]
    assert names.ALLOC_RELEASE not in annotations


def test_a_released_pod_goes_back_and_its_slot_stays_empty(osbctl: Osbctl, installation: Installation) -> None:
    # Given a sandbox of two
    installation.kube.create("batchsandbox", "default", box_body("gives", 2))
    installation.until("it is served", lambda: installation.status("batchsandbox", "gives").get("ready") == 2)
    record = installation.kube.get("batchsandbox", "default", "gives")["metadata"]["annotations"][names.ALLOC_STATUS]
    pod = json.loads(record)["pods"][1]
    # When one pod is released by force
    assert osbctl("release", "gives", "--pod", pod, "--force").code == 0
    # Then the pool acknowledges it
    installation.until("it is acknowledged", lambda: pod in installation.kube.get(
        "batchsandbox", "default", "gives")["metadata"]["annotations"].get(names.ALLOC_RELEASED, ""))  # fmt: skip
    installation.until("one is left", lambda: installation.status("batchsandbox", "gives").get("allocated") == 1)
    # And the sandbox's journal tells who took it
    told = osbctl("journal", "--box", "gives").out
    (line,) = [one for one in told.splitlines() if "takes back" in one]
    assert pod in line and "given back by its sandbox" in line
    installation.kube.delete("batchsandbox", "default", "gives")


def test_a_held_pool_hands_out_nothing_until_it_is_unheld(osbctl: Osbctl, installation: Installation) -> None:
    assert "osbctl unhold" in osbctl("hold", "warm", "--reason", "maintenance").out
    installation.kube.create("batchsandbox", "default", box_body("held-back", 1))
    osbctl("reconcile", "pool", "warm", "--wait")
    assert not installation.status("batchsandbox", "held-back").get("allocated")
    assert "maintenance: nothing is" in osbctl("explain", "pool", "warm").out
    # A second hold keeps the reason, or replaces it, and says which
    assert "its reason is kept (maintenance)" in osbctl("hold", "warm").out
    assert "(fire); the reason was: maintenance" in osbctl("hold", "warm", "--reason", "fire").out
    osbctl("unhold", "warm")
    installation.until("it is served", lambda: installation.status("batchsandbox", "held-back").get("ready") == 1)
    installation.kube.delete("batchsandbox", "default", "held-back")


def test_a_sandbox_deleted_while_its_pool_is_held_says_what_it_stays_for(
    osbctl: Osbctl, installation: Installation
) -> None:
    installation.kube.create("batchsandbox", "default", box_body("leaving", 1))
    installation.until("it is served", lambda: installation.status("batchsandbox", "leaving").get("ready") == 1)
    osbctl("hold", "warm")
    installation.kube.delete("batchsandbox", "default", "leaving")
    said = osbctl("explain", "sandbox", "leaving").out
    assert "pool warm, which is on hold; `osbctl unhold default/warm`" in said
    assert f"finalizer {names.FINALIZER_POOL} holds it" in said and "nothing of ours" not in said
    osbctl("unhold", "warm")
    installation.until("it is gone", lambda: "leaving" not in osbctl("get", "sandboxes").out)


@pytest.mark.parametrize("arguments", [
    ("get", "nonsense"), ("get", "pools", "-o", "xml"), ("explain", "tasks", "default/a"), ("explain", "pool", "A/b"),
    ("queue", "pool", "--limit", "-5"), ("journal", "--limit", "0"), ("journal", "--box", "a/b/c"),
    ("reconcile", "pool", "warm", "--timeout", "nan"), ("ledger", "verify", "--settle", "-1"),
    ("queue", "--redis-url", "nonsense"), ("queue", "--redis-url", "redis://h:port/0"),
    ("get", "pools", "--kubeconfig", "/dev/null"), ("hold", "warm", "--reason", "no"),
    ("get", "pools", "-n", "A/B"), ("demo", "--pod-ready", "soon"),
    ("executor", "--data-dir", "/proc/no"), ("executor", "--data-dir", "/tmp", "--listen-addr", ":99999"),
    ("completion", "csh"), ("get", "pools", "--bogus"), ("reconcile",),
])  # fmt: skip
def test_wrong_usage_ends_with_two_and_says_what_is_accepted(osbctl: Osbctl, arguments: tuple[str, ...]) -> None:
    said = osbctl(*arguments)
    assert said.code == 2
    assert len(said.err.strip().splitlines()) == 1, said.err


def test_an_unreachable_redis_ends_with_one_and_names_it(osbctl: Osbctl) -> None:
    said = osbctl("queue", "--redis-url", "redis://127.0.0.1:1/0")
    assert said.code == 1 and "Redis" in said.err and len(said.err.strip().splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(osbctl: Osbctl, shell: str) -> None:
    said = osbctl("completion", shell)
    assert said.code == 0 and "_OSBCTL_COMPLETE" in said.out
