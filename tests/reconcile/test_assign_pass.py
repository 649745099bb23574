"""poolRef `*`: whole passes over a sandbox that asks for any pool."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from osb.api import names
from osb.config import Settings
from osb.errors import Conflict, Unavailable
from osb.kube.client import Kube
from osb.reconcile import profiles
from osb.sim import SimCluster
from osb.store.client import Store
from tests.doubles.passworld import Passes

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "img"}]}}
PACK = {
    "name": "pack",
    "plugins": {"predicate": ["image"], "score": [{"name": "resbalance", "weight": 1}]},
    "pluginConf": [{"name": "resbalance", "args": {"strategy": "MostAllocated"}}],
}


def configured(passes: Passes, *table: object) -> None:
    """The ConfigMap under the name and key that the reference's code reads."""
    data = {"profiles": orjson.dumps(list(table)).decode()}
    body = {"metadata": {"name": "pool-assign-profiles"}, "data": data}
    passes.kube.create("configmap", passes.ns, body)


def chosen(passes: Passes, name: str = "b") -> str:
    return str(passes.get("batchsandbox", name)["spec"]["poolRef"])


def test_a_sandbox_with_a_template_as_hint_is_assigned_and_then_served(passes: Passes) -> None:
    passes.warm()
    passes.box(poolRef="*", template=TEMPLATE)
    passes.box_pass()
    assert chosen(passes) == "warm"
    passes.pool_pass()
    assert len(passes.record()) == 1
    passes.box_pass()
    assert passes.get("batchsandbox", "b")["status"]["phase"] == names.SUCCEED


def test_a_burst_spreads_over_equal_pools_before_any_status_shows_it(passes: Passes) -> None:
    for name in ("a", "z"):
        passes.pool(name, 4, 4, 0, 9)
        passes.pool_pass(name)
        passes.ready()
        passes.pool_pass(name)
    for number in range(4):
        passes.box(f"b{number}", poolRef="*")
        passes.box_pass(f"b{number}")
    assert sorted(chosen(passes, f"b{number}") for number in range(4)) == ["a", "a", "z", "z"]


def test_a_users_edit_meanwhile_wins_over_the_choice(passes: Passes) -> None:
    passes.warm()
    passes.box(poolRef="*")

    def meanwhile(step: str) -> None:
        if step == "assign":
            passes.patch("batchsandbox", "b", {"spec": {"poolRef": "mine"}})

    passes.sync()
    with pytest.raises(Conflict):
        passes.run("batchsandbox", "b", step=meanwhile)
    assert chosen(passes) == "mine"


def test_a_terminating_sandbox_is_assigned_to_nothing(passes: Passes) -> None:
    passes.warm()
    passes.box(poolRef="*", meta={"finalizers": ["else/keep"]})
    passes.delete("batchsandbox", "b")
    passes.box_pass()
    assert chosen(passes) == "*"


def test_an_annotation_selects_the_profile(home: Passes) -> None:
    home.box("spread", poolRef="*")
    named(home)
    home.box_pass("spread")
    home.box_pass("packed")
    assert chosen(home, "spread") == "idle"
    assert chosen(home, "packed") == "busy"


def test_nobody_is_assigned_before_the_profiles_were_read_once(
    store: Store, client: Kube, simulated: SimCluster
) -> None:
    passes = Passes(store, client, pod_namespace="elsewhere")
    passes.warm()
    passes.box(poolRef="*")
    simulated.add_fault(path="/configmaps/pool-assign-profiles", status=503)
    with pytest.raises(Unavailable):
        passes.box_pass()
    assert chosen(passes) == "*"
    simulated.clear_faults()
    passes.box_pass()
    assert chosen(passes) == "warm"
    passes.close()


def test_profiles_stay_in_force_while_their_config_map_cannot_be_read(
    store: Store, client: Kube, simulated: SimCluster
) -> None:
    passes = Passes(store, client)
    settings = Passes(store, client, pod_namespace=passes.ns).settings
    configured(passes, PACK)
    known = profiles.Profiles()
    assert known.table(store, client, settings).find("pack").name == "pack"
    simulated.add_fault(path="/configmaps/pool-assign-profiles", status=503)
    assert known.table(store, client, settings).find("pack").name == "pack"
    simulated.clear_faults()
    client.delete("configmap", passes.ns, "pool-assign-profiles")
    assert known.table(store, client, settings).find("pack").name == "default"
    passes.close()


def test_what_is_in_force_is_logged_once(passes: Passes, capsys: pytest.CaptureFixture[str]) -> None:
    configured(passes, PACK)
    settings = Settings(pod_namespace=passes.ns)
    known = profiles.Profiles()
    for _ in range(3):
        known.table(passes.store, passes.kube, settings)
    written = capsys.readouterr()
    assert (written.out + written.err).count("assign profiles in force") == 1


@pytest.fixture
def home(store: Store, client: Kube, simulated: SimCluster) -> Iterator[Passes]:
    """Passes whose own namespace has the ConfigMap: a full pool and an empty one, and `pack` means the full one."""
    first = Passes(store, client)
    one = Passes(store, client, pod_namespace=first.ns)
    configured(first, PACK)
    for name, taken in (("busy", 3), ("idle", 0)):
        one.pool(name, 4, 4, 0, 9)
        one.pool_pass(name)
        one.ready()
        if taken:
            one.box(f"in-{name}", replicas=taken, poolRef=name)
        one.pool_pass(name, times=2)
    yield one
    simulated.clear_faults()
    one.close()
    first.close()


def rewrite(home: Passes, text: str) -> None:
    """What the operator does with the ConfigMap."""
    home.kube.patch("configmap", home.settings.pod_namespace, profiles.NAME, {"data": {"profiles": text}})


def named(home: Passes, name: str = "packed") -> None:
    """A sandbox that asks for profile `pack`."""
    home.box(name, poolRef="*", meta={"annotations": {names.ASSIGN_PROFILE: "pack"}})


def follow(home: Passes) -> None:
    """What a watcher does for the ConfigMap."""
    namespace, only = home.settings.pod_namespace, f"metadata.name={profiles.NAME}"
    for obj in home.kube.all("configmap", namespace, fields=only)[0]:
        profiles.remember(home.store, obj)
    home.world.forward.relist("configmap", home.kube.list("configmap", namespace, fields=only))


@pytest.mark.parametrize("watched", [True, False])
def test_a_worker_that_starts_after_the_config_map_broke_decides_as_those_before_it(
    home: Passes, watched: bool
) -> None:
    home.world.profiles.table(home.store, home.kube, home.settings)
    if watched:
        follow(home)
    rewrite(home, "{")
    if watched:
        follow(home)
    home.world.profiles = profiles.Profiles()
    named(home)
    home.box_pass("packed")
    assert chosen(home, "packed") == "busy"
    assert failures(home) == []


def test_who_names_a_profile_that_nobody_can_read_waits_and_others_do_not(home: Passes, store: Store) -> None:
    # Given a ConfigMap that broke, and a Redis that was flushed
    rewrite(home, "{")
    store.redis.delete("osb:profiles")
    # When one sandbox names a profile, and another names none
    named(home)
    home.box("plain", poolRef="*")
    home.box_pass("packed", turn=2)
    home.box_pass("plain")
    # Then only the second is placed, and the first says why it waits
    assert (chosen(home, "packed"), chosen(home, "plain")) == ("*", "idle")
    told = home.condition("batchsandbox", "packed", names.PROGRESSING)
    assert told is not None
    assert told["message"].startswith("NoPoolFits: what profile pack means is not known (profiles: not JSON")
    assert len(failures(home)) == 1
    # And it is placed once the ConfigMap is good again
    rewrite(home, orjson.dumps([PACK]).decode())
    home.box_pass("packed")
    assert chosen(home, "packed") == "busy"


def test_a_profile_that_was_added_a_moment_ago_is_found_before_the_watch_shows_it(home: Passes) -> None:
    rewrite(home, "[]")
    follow(home)
    rewrite(home, orjson.dumps([PACK]).decode())
    named(home)
    home.box_pass("packed")
    assert chosen(home, "packed") == "busy"


def test_a_forbidden_config_map_holds_only_those_back_who_name_a_profile(home: Passes, simulated: SimCluster) -> None:
    home.store.redis.delete("osb:profiles")
    simulated.add_fault(path="/configmaps/pool-assign-profiles", status=403)
    named(home)
    home.box("plain", poolRef="*")
    home.box_pass("packed", turn=2)
    home.box_pass("plain")
    assert (chosen(home, "packed"), chosen(home, "plain")) == ("*", "idle")


def test_an_unknown_profile_is_told_with_the_pool_that_the_default_chose(passes: Passes) -> None:
    unknown = "profile nope is not defined; the built-in default is used"
    passes.warm()
    passes.box(poolRef="*", meta={"annotations": {names.ASSIGN_PROFILE: "nope"}})
    passes.box_pass()
    passes.box_pass()
    assert chosen(passes) == "warm"
    said = [event for event in passes.told.events if event[0].endswith(("Assigned", "Assign"))]
    assert said == [(names.EVENT_POOL_ASSIGNED, f"Assigned to pool warm; {unknown}")]
    # One that finds no pool tells it with its reasons
    passes.box("big", poolRef="*", replicas=99, meta={"annotations": {names.ASSIGN_PROFILE: "nope"}})
    passes.box_pass("big", turn=5.0)
    told = passes.condition("batchsandbox", "big", names.PROGRESSING)
    assert (
        told is not None and f"NoPoolFits: {unknown}; no pool is large enough; pool warm: poolMax 9" in told["message"]
    )


def failures(passes: Passes) -> list[str]:
    return [text for reason, text in passes.told.events if reason == names.EVENT_FAILED_ASSIGN]


def test_why_no_pool_fits_is_told_once_while_only_the_room_in_the_pools_changes(passes: Passes) -> None:
    # Given a pool of four that has given one pod, and a sandbox that finds no room in it
    passes.pool("warm", 0, 4, 0, 4)
    passes.box("b0")
    passes.pool_pass(times=2)
    passes.box("all", poolRef="*", replicas=4)
    passes.sync()
    for _ in range(3):
        passes.box_pass("all", turn=2)
    told = passes.condition("batchsandbox", "all", names.PROGRESSING)
    assert told is not None and told["message"].startswith("NoPoolFits: pool warm: poolMax 4 leaves 3 of the 4 asked")
    # When another takes a pod
    version = passes.get("batchsandbox", "all")["metadata"]["resourceVersion"]
    passes.box("b1")
    passes.pool_pass(times=2)
    for _ in range(3):
        passes.box_pass("all")
    # Then nothing is written at once, the number later, and no second Event
    assert passes.get("batchsandbox", "all")["metadata"]["resourceVersion"] == version
    passes.store.redis.delete(*passes.store.redis.keys("osb:duty:positions:*"))
    passes.box_pass("all")
    told = passes.condition("batchsandbox", "all", names.PROGRESSING)
    assert told is not None and "poolMax 4 leaves 2 of the 4 asked" in told["message"]
    assert failures(passes) == ["Failed to assign pool: pool warm: it has no room"]


def test_another_cause_is_told_again(passes: Passes) -> None:
    passes.pool("warm", 0, 4, 0, 4)
    passes.box("big", poolRef="*", replicas=9)
    passes.box_pass("big", turn=2)
    passes.annotate("pool", "warm", hold=True)
    passes.box_pass("big")
    assert len(failures(passes)) == 2


def test_a_sandbox_that_gave_up_waiting_for_any_pool_gets_none(passes: Passes) -> None:
    passes.box(poolRef="*", allocationTimeoutSeconds=30)
    passes.box_pass(turn=2)
    passes.box_pass(turn=31)
    assert passes.condition("batchsandbox", "b", names.POD_FAILED) is not None
    passes.warm()
    passes.box_pass()
    assert chosen(passes) == "*"
    passes.patch("batchsandbox", "b", {"spec": {"replicas": 2}})
    passes.box_pass()
    assert chosen(passes) == "warm"
