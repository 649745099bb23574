"""`osbctl explain`: why is it as it is, where does it stand in the line, what will the next pass do. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from osb.api.problem import Problem
from osb.cli import output as out
from osb.cli import tasklook
from osb.cli.context import UNTOLD, Kind, Kubeconfig, Name, Namespace, Output, Reach, RedisUrl, key_of, reach
from osb.cli.look import Look, as_data, held_pods, look, status_changes, words
from osb.decide.order import effective_priority, waiter
from osb.decide.validate import problems

EXAMPLE = "Example: osbctl explain sandbox default/b7"
LINE_SHOWN = 15
JOURNAL_SHOWN = 6
LINES_SHOWN = 20  # of reasons and of actions; a rollout of thousands has one each


def explain(
    kind: Kind,
    name: Name,
    namespace: Namespace = "default",
    output: Output = "table",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Say why an object is as it is, and what the next reconcile will do about it."""
    out.checked_format(output)
    key = key_of(kind, name, namespace)
    with reach(redis_url, kubeconfig) as one:
        found = look(one, key)
        if output == "table":
            _print(one, found)
            _doubt(one)
        else:
            out.data(_data(one, found), output)


def _doubt(reach: Reach) -> None:
    if reach.told is None:
        out.warn(UNTOLD)


def _data(reach: Reach, found: Look) -> dict[str, Any]:
    p = reach.look(found.key)
    return {
        "kind": found.key.kind, "namespace": found.key.namespace, "name": found.key.name,
        "status": found.raw.get("status"),
        "problems": [{"field": one.field, "message": one.message, "level": one.level} for one in _problems(found)],
        "waiting": None if found.waiting is None else {
            "code": found.waiting.code, "detail": found.waiting.detail, "missing": found.waiting.missing},
        "position": found.position or None, "line": found.line, "pause": found.pause or None,
        "next": {
            "reasons": found.plan.reasons, "again": found.plan.again, "facts": found.plan.facts,
            "actions": [as_data(a) for a in found.plan.actions],
            "status": status_changes(found.raw, found.plan),
        },
        "settings": "installation" if reach.told is not None else "own",
        "queue": _as_dict(reach.store.queue.peek(found.key)),
        "journal": _journal(reach, found),
        "pods": held_pods(p, found.raw) if found.key.kind == "batchsandbox" else None,
        "tasks": tasklook.data(reach, found) if found.key.kind == "batchsandbox" else None,
    }  # fmt: skip


def _as_dict(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _print(reach: Reach, found: Look) -> None:
    meta, status = found.raw["metadata"], found.raw.get("status") or {}
    out.say(f"{found.raw.get('kind')} {found.key.member}  (age {out.age(meta.get('creationTimestamp'))})")
    if found.load is not None:
        _pool_head(found, status)
    elif found.key.kind == "batchsandbox":
        _box_head(reach, found, status)
    else:
        out.fields([("phase", status.get("phase"))])
    _common(reach, found)


def _pool_head(found: Look, status: dict[str, Any]) -> None:
    assert found.load is not None
    counts = ", ".join(f"{state} {n}" for state, n in sorted(found.load.counts.items()) if n)
    out.fields([
        ("ledger", ("ready" if found.load.ready else "NOT READY") + (f"; {counts}" if counts else "; empty")),
        ("ready idle", found.load.ready_idle),
        ("target", f"{status.get('target')} idle ({status.get('targetReason') or '?'})" if "target" in status else ""),
        ("line", f"{found.load.line} sandboxes wait" + (f", {found.dealt.unmet} pods are missing for them"
                 if found.dealt and found.dealt.unmet else "")),
    ])  # fmt: skip
    if found.dealt is not None and found.dealt.grants:
        out.section("the next pass hands out", (f"{g.box} ← {', '.join(pod for _, pod, _ in g.pods)}"
                                                for g in found.dealt.grants[:LINE_SHOWN]))  # fmt: skip
    if not found.load.waiters:
        return
    if found.dealt is None:
        why = "the Pool is being deleted" if found.load.ready else "the ledger is rebuilt by the next pass"
        out.section("waiting", [f"nobody is served: {why}"])
    else:
        out.section("waiting, in the order of service", _line(found))


def _line(found: Look) -> Iterator[str]:
    assert found.load is not None and found.dealt is not None and found.view is not None
    boxes = {box.spec.uid: box.spec for box in found.load.waiters}
    order = sorted(found.dealt.waiting.items(), key=lambda item: item[1].position or len(boxes) + 1)
    for uid, waiting in order[:LINE_SHOWN]:
        box = boxes[uid]
        entry = waiter(box, range(waiting.missing))
        since = out.span(entry.waited(found.view.now))
        priority = effective_priority(entry, found.view.now)
        detail = f": {waiting.detail}" if waiting.detail else ""
        yield (
            f"{waiting.position or '-':>3}. {box.name}  misses {waiting.missing} of {box.replicas}, "
            f"waits {since}, priority {priority}  {waiting.code}{detail}"
        )
    if len(order) > LINE_SHOWN:
        yield f"     and {len(order) - LINE_SHOWN} more"


def _box_head(reach: Reach, found: Look, status: dict[str, Any]) -> None:
    spec = found.raw.get("spec") or {}
    pods = held_pods(reach.look(found.key), found.raw)
    waits = ""
    if found.waiting is not None:
        detail = f": {found.waiting.detail}" if found.waiting.detail else ""
        missing = f"; misses {found.waiting.missing} of {spec.get('replicas')}" if found.waiting.missing else ""
        waits = f"{found.waiting.code}{detail}{missing}"
    out.fields([
        ("phase", status.get("phase") or "not set"),
        ("pool", spec.get("poolRef") or "none (makes its own pods)"),
        ("ready", f"{status.get('ready', 0)} of {spec.get('replicas')}"),
        ("pods", ", ".join(f"{slot}={name}" for slot, name in sorted(pods.items()))),
        ("waits", waits),
        ("position", f"{found.position} of {found.line}" if found.position else ""),
        ("pause", found.pause),
        ("note", found.note),
    ])  # fmt: skip
    out.section("tasks", tasklook.lines(reach, found))


def _common(reach: Reach, found: Look) -> None:
    status = found.raw.get("status") or {}
    out.section("conditions", (
        f"{c['type']}={c.get('status')} {c.get('reason') or ''}  {c.get('message') or ''} "
        f"(for {out.age(c.get('lastTransitionTime'))})" for c in status.get("conditions") or ()))  # fmt: skip
    out.section("wrong in it", _some([str(one) for one in _problems(found)]))
    out.section("why", _some(found.plan.reasons))
    acts = words(found.plan.actions) + [f"status {change}" for change in status_changes(found.raw, found.plan)]
    again = "" if found.plan.again is None else f"then looks again in {out.span(found.plan.again)}"
    acts = _some(acts)
    out.section("the next pass would", [*(acts or ["change nothing"]), *([again] if again else [])])
    out.section("queue", _queue(reach, found))
    out.section("lately", (entry_text(entry) for entry in _journal(reach, found)))


def _problems(found: Look) -> list[Problem]:
    """What cannot be used of the object, and what has no effect."""
    return problems(str(found.raw.get("kind") or found.key.kind), found.raw)


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - LINES_SHOWN
    return [*lines[:LINES_SHOWN], *([f"and {more} more (-o json shows all)"] if more > 0 else [])]


def _queue(reach: Reach, found: Look) -> Iterator[str]:
    seen = reach.store.queue.peek(found.key)
    if seen.running:
        yield "a worker runs it now"
    if seen.dirty_ms is not None:
        cls = "later" if seen.later else "now"
        yield f"asks for a run since {out.span(seen.dirty_ms / 1000)} (class {cls}): {seen.reason or 'no reason kept'}"
    if seen.quarantined_ms is not None:
        yield f"QUARANTINED: {seen.crashes} workers vanished in it; again in {out.span(seen.quarantined_ms / 1000)}"
    elif seen.due_ms is not None:
        yield f"next look in {out.span(max(0, seen.due_ms) / 1000)}"
    if seen.failures:
        yield f"failed {seen.failures} times in a row"
    if seen.dirty_ms is None and seen.due_ms is None and not seen.running:
        yield "idle: runs at the next event or sweep"


def _journal(reach: Reach, found: Look) -> list[dict[str, Any]]:
    which = {"pool": found.key.member} if found.key.kind == "pool" else {"box": found.key.member}
    return reach.store.journal.read(**which, limit=JOURNAL_SHOWN)


def entry_text(entry: dict[str, Any]) -> str:
    """One journal entry as a line."""
    about = " ".join(str(entry[name]) for name in ("pool", "box") if entry.get(name))
    did = ", ".join(f"{word} {count}" for word, count in (entry.get("did") or {}).items() if count)
    pods = entry.get("pods") or []
    shown = f" {', '.join(pods[:6])}{f' and {len(pods) - 6} more' if len(pods) > 6 else ''}" if pods else ""
    why = f"  ({entry['why']})" if entry.get("why") else ""
    return f"{out.clock(entry['at_ms'])}  {entry.get('what', '?')}: {about}{f' {did}' if did else ''}{shown}{why}"
