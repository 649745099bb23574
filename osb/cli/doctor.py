"""`osbctl doctor`: look at everything the controller needs, and say what is wrong and how to put it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import typer

from osb.api import names
from osb.api.key import KINDS
from osb.cli import access, rollback
from osb.cli import output as out
from osb.cli.context import FAILED, Kubeconfig, Output, Reach, RedisUrl, quit_with, reach
from osb.cli.failures import advice
from osb.cli.install import LEASE_REMEDY
from osb.cli.pairing import mismatch
from osb.errors import ApiError, ConfigError, NotFound, OsbError, Refused, StoreDown, Unavailable

EXAMPLE = "Example: osbctl doctor"
STALE_MS = 140_000
BEAT_SILENT_MS = 10_000
OLD_KEY_MS = 60_000
LEASE_FRESH_SECONDS = 20.0

REDIS, SERVER = "Redis", "API server"

Level = Literal["error", "warning", "ok"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check: what is, and for anything but `ok` what to do."""

    level: Level
    check: str
    text: str
    fix: str = ""


def doctor(
    prepare_rollback: bool = typer.Option(
        False, "--prepare-rollback", help="remove what the reference's CRDs would refuse (stop the controller first)"
    ),
    force: bool = typer.Option(False, "--force", help="prepare the rollback although the controller runs"),
    output: Output = "table",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Check Redis, the API server, permissions, CRDs, the Lease, freshness and settings."""
    out.checked_format(output)
    with reach(redis_url, kubeconfig) as one:
        if prepare_rollback:
            return rollback.prepare(one, force=force)
        found = list(_examined(one))
    if output != "table":
        out.data([{"level": f.level, "check": f.check, "text": f.text, "fix": f.fix} for f in found], output)
    else:
        _print(found)
    if any(finding.level == "error" for finding in found):
        quit_with(FAILED)
    return None


def _print(found: list[Finding]) -> None:
    marks = {"ok": "ok  ", "warning": "WARN", "error": "FAIL"}
    for finding in found:
        out.say(f"{marks[finding.level]}  {finding.check}: {finding.text}")
        if finding.fix:
            out.say(f"      → {finding.fix}")
    errors = sum(f.level == "error" for f in found)
    warnings = sum(f.level == "warning" for f in found)
    out.say(f"\n{errors} error{'' if errors == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}")


def _examined(reach: Reach) -> Iterator[Finding]:
    """Every check. What is away is told once, with its remedy; checks that need it are told as not made."""
    away: set[str] = set()
    for name, check, needs in CHECKS:
        if not away.intersection(needs):
            try:
                yield from check(reach)
                continue
            except OsbError as error:
                cause = _cause(error)
                if not cause:
                    yield Finding("error", name, f"cannot be checked: {error}", _fix(error))
                    continue
                yield Finding("error", cause, str(error), _fix(error))
                away.add(cause)
        if name not in away:
            lost = " and ".join(f"the {need}" if need == SERVER else need for need in needs if need in away)
            yield Finding("warning", name, f"not checked, needs {lost}")


def _cause(error: OsbError) -> str:
    """What is away altogether, "" when only this check cannot be made."""
    if isinstance(error, StoreDown):
        return REDIS
    refused = isinstance(error, ApiError) and error.status == 401
    return SERVER if refused or isinstance(error, (Unavailable, ConfigError)) else ""


def _fix(error: OsbError) -> str:
    if isinstance(error, ApiError) and error.status == 403:
        return "let the role of this account do that, or look with another account"
    return advice(error) or "check --kubeconfig (KUBECONFIG) and the credentials in it"


def _settings(reach: Reach) -> Iterator[Finding]:
    for warning in reach.settings.warnings:
        yield Finding("warning", "settings", warning, "remove it, or see docs/settings.md for what is known")
    if not reach.settings.warnings:
        yield Finding("ok", "settings", f"the installation acts as {reach.settings.identity}")


def _redis(reach: Reach) -> Iterator[Finding]:
    from osb.store.checks import check

    problems = check(reach.store)
    for problem in problems:
        yield Finding("error" if problem.level == "fatal" else "warning", "Redis", problem.text, problem.fix)
    if not problems:
        yield Finding("ok", "Redis", reach.settings.effective()["redis_url"])


def _cluster(reach: Reach) -> Iterator[Finding]:
    from osb.reconcile import pin

    found = reach.store.pinned()
    if wrong := mismatch(reach):
        yield Finding("error", "cluster", *wrong)
    elif not found:
        mine = pin.mark(reach.kube, reach.settings)
        why = "no watcher has started" if mine else "this account may not read a namespace's UID"
        yield Finding("ok", "cluster", f"Redis is not pinned to a cluster ({why})")
    else:
        yield Finding("ok", "cluster", f"Redis is pinned to {pin.shown(found)}")


def _api_server(reach: Reach) -> Iterator[Finding]:
    yield Finding("ok", "API server", access.version(reach.kube))


def _permissions(reach: Reach) -> Iterator[Finding]:
    count = 0
    for rule, verb, words in access.denied(reach.kube, reach.settings):
        count += 1
        level: Level = "warning" if rule.optional else "error"
        without = f" (without it {rule.optional})" if rule.optional else ""
        yield Finding(level, "permissions", f"may not {verb} {rule.shown} {words}{without}",
                      f"add verb {verb} on {rule.shown} to the role of this account")  # fmt: skip
    if not count:
        yield Finding("ok", "permissions", f"all {sum(len(r.verbs) for r in access.RULES)} that are needed")


def _definitions(reach: Reach) -> Iterator[Finding]:
    from osb.api.crds import lacking

    for kind, plural in names.PLURALS.items():
        try:
            served = reach.kube.get("crd", None, f"{plural}.{names.GROUP}")
        except NotFound:
            yield Finding("error", "CRDs", f"{kind} is not installed", "osbctl crds | kubectl apply -f -")
            continue
        lacks = lacking(kind, served)
        if lacks.fields or lacks.conditions:
            what = ", ".join([*lacks.fields[:6], *(f"condition {c}" for c in lacks.conditions[:6])])
            yield Finding("warning", "CRDs", f"the served {kind} is older: it lacks {what}; these features are off",
                          "osbctl crds | kubectl apply -f -")  # fmt: skip
        else:
            yield Finding("ok", "CRDs", f"{kind} {names.VERSION}")


def _lease(reach: Reach) -> Iterator[Finding]:
    from osb.kube.lease import InstallationLease

    if reach.settings.no_lease:
        yield Finding("warning", "Lease", "not used (--no-lease)", "make sure that no other controller acts")
        return
    state = InstallationLease(reach.kube, reach.settings).observe()
    where = f"in namespace {reach.settings.lease_home}"
    duty = reach.store.duty
    believed_ours = duty.holder_age() < LEASE_FRESH_SECONDS and duty.foreign_holder() is None
    if not state.ours and state.holder.startswith("osb_") and believed_ours:
        yield Finding("ok", "Lease", f"held by {state.holder} {where}, whose processes use this Redis")
        return
    if state.holder and not state.ours:
        yield Finding("error", "Lease", f"held by {state.holder} {where}: nothing of ours is enqueued or written",
                      "stop that controller; if that is this installation, set OSB_INSTALLATION")  # fmt: skip
    elif state.ours:
        yield Finding("ok", "Lease", f"ours {where}, renewed {out.age(state.renewed)} ago")
    elif _lacks_home(reach):
        home = reach.settings.lease_home
        yield Finding("error", "Lease", f"namespace {home} does not exist: no Lease can be taken, no controller runs",
                      LEASE_REMEDY.format(home))  # fmt: skip
    else:
        yield Finding("warning", "Lease", f"free {where}: no controller runs", "start watcher, workers and beat")


def _lacks_home(reach: Reach) -> bool:
    """False also when this account may not look."""
    try:
        reach.kube.get("namespace", None, reach.settings.lease_home)
    except NotFound:
        return True
    except Refused:
        pass
    return False


def _freshness(reach: Reach) -> Iterator[Finding]:
    from osb.store.mirror import KINDS as MIRRORED
    from osb.store.mirror import NODE

    stale = []
    for kind in MIRRORED:
        reading = reach.store.mirror.read(kind, ())
        if not reading.fresh(STALE_MS):
            stale.append(
                f"{kind} ({'never listed' if not reading.known else out.span(reading.age_ms / 1000) + ' old'})"
            )
    if stale:
        yield Finding("error", "mirror", f"not fresh: {', '.join(stale)}; passes read live, slowly",
                      "is a watcher running? look at its log and its /readyz")  # fmt: skip
    else:
        yield Finding("ok", "mirror", f"all {len(MIRRORED)} kinds are fresh")
        if not reach.store.mirror.read(NODE, ()).fresh(STALE_MS):
            yield Finding("warning", "nodes", "not watched: idle pods stay on cordoned nodes",
                          "let the watcher's account list and watch nodes")  # fmt: skip


def _profiles(reach: Reach) -> Iterator[Finding]:
    from osb.decide.assign_profiles import parse_profiles
    from osb.reconcile import profiles

    home = reach.settings.lease_home
    try:
        found = reach.kube.get("configmap", home, profiles.NAME)
    except (NotFound, Refused):
        return  # the built-in profile; that it may not be read is told with the permissions
    if problems := parse_profiles(profiles.text_of(found), None).problems:
        known = reach.store.profiles.last(found["metadata"]["uid"]) is not None
        then = "the last good ones stay in force" if known else "no good ones are known: who names a profile waits"
        yield Finding("warning", "profiles", f"ConfigMap {home}/{profiles.NAME}: {'; '.join(problems)[:300]}; {then}",
                      f"kubectl -n {home} edit configmap {profiles.NAME}")  # fmt: skip
    else:
        yield Finding("ok", "profiles", f"ConfigMap {home}/{profiles.NAME} is in force")


def _time_and_queue(reach: Reach) -> Iterator[Finding]:
    age = reach.store.queue.tick_age_ms()
    if age is None or age > BEAT_SILENT_MS:
        said = "within 10 minutes" if age is None else f"for {out.span(age / 1000)}"
        yield Finding("warning", "beat", f"no sign of life {said}", "start `celery -A beat beat`; workers stand in")
    else:
        yield Finding("ok", "beat", f"alive {out.span(age / 1000)} ago")
    for kind in KINDS:
        stats = reach.store.queue.stats(kind)
        if stats.quarantined:
            yield Finding("error", "queue", f"{stats.quarantined} {kind} keys are in quarantine",
                          f"osbctl queue {kind}; then osbctl reconcile {kind} {_quarantined(reach, kind)}")  # fmt: skip
        if stats.oldest_ms_now > OLD_KEY_MS:
            yield Finding("error", "queue", f"the oldest {kind} key waits {out.span(stats.oldest_ms_now / 1000)}",
                          f"are workers running for osb.{kind}.now?")  # fmt: skip


def _quarantined(reach: Reach, kind: str) -> str:
    """A key to fill into the hint."""
    first = reach.store.queue.listing(kind, "quarantined", 1)
    return first[0].key.member if first else "(the key it shows)"


CHECKS: tuple[tuple[str, Callable[[Reach], Iterator[Finding]], tuple[str, ...]], ...] = (
    ("settings", _settings, ()), (REDIS, _redis, (REDIS,)), (SERVER, _api_server, (SERVER,)),
    ("cluster", _cluster, (REDIS, SERVER)), ("permissions", _permissions, (SERVER,)),
    ("CRDs", _definitions, (SERVER,)), ("Lease", _lease, (REDIS, SERVER)), ("mirror", _freshness, (REDIS,)),
    ("profiles", _profiles, (REDIS, SERVER)), ("beat and queue", _time_and_queue, (REDIS,)),
)  # fmt: skip
"""Name, check, and what it needs."""
