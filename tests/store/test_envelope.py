"""Lua publishes the message that the installed kombu would put, and a real worker runs it."""

from __future__ import annotations

import base64
import json
import queue as queues
import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject
from kombu import Queue

from osb.api.key import Key
from osb.errors import ConfigError
from osb.facts.adds import Add
from osb.store.client import Store
from osb.store.envelope import DEFAULT, WAKE_HEADER, checked_template, template_of

POOL = Key("pool", "default", "warm")
REASON = 'sandbox b7 "é" added'
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    made = Celery("test", broker=redis_url, set_as_current=False)
    made.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_queues=[Queue("osb.pool.now", routing_key="osb.pool.now")],
        task_create_missing_queues=False,
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )

    yield made
    made.close()


def never_run(namespace: str, name: str, reason: str = "") -> None:
    """Only its call is looked at."""


def by_kombu(app: Celery, store: Store) -> bytes:
    """What Celery and kombu put on the list for the same call."""
    name = "osb.reconcile.pool"
    task = app.tasks[name] if name in app.tasks else app.task(name=name, shared=False)(never_run)
    task.apply_async([POOL.namespace, POOL.name, REASON], queue="osb.pool.now", headers={WAKE_HEADER: 1})
    raw: bytes = store.redis.rpop("osb.pool.now")
    return raw


def by_lua(store: Store) -> bytes:
    store.queue.forget(POOL)
    store.queue.add([Add(key=POOL, reason=REASON)])
    raw: bytes = store.redis.rpop("osb.pool.now")
    return raw


def comparable(raw: bytes) -> dict[str, Any]:
    """A message with what differs by nature replaced by its type; ids must be uuids."""
    message: dict[str, Any] = json.loads(raw)
    properties, headers = message["properties"], message["headers"]
    body = message.pop("body")
    message["body"] = json.loads(base64.b64decode(body) if properties.pop("body_encoding") == "base64" else body)
    assert headers["id"] == headers["root_id"] == properties["correlation_id"]
    assert headers["id"] != properties["delivery_tag"]
    for place, name in ((headers, "id"), (properties, "delivery_tag"), (properties, "reply_to")):
        assert UUID.fullmatch(place[name]), name
    for name in ("id", "root_id", "origin"):
        headers[name] = type(headers[name])
    for name in ("correlation_id", "delivery_tag", "reply_to"):
        properties[name] = type(properties[name])
    return message


def test_the_built_in_envelope_equals_kombus_message_field_by_field(app: Celery, store: Store) -> None:
    assert comparable(by_lua(store)) == comparable(by_kombu(app, store))


def test_a_template_made_of_kombus_message_publishes_the_same(app: Celery, store: Store) -> None:
    store.queue.use_envelope(template_of(by_kombu(app, store)))
    mine = by_lua(store)
    assert comparable(mine) == comparable(by_kombu(app, store))
    assert json.loads(mine)["headers"]["origin"] == json.loads(by_kombu(app, store))["headers"]["origin"]


def test_the_plain_body_is_what_kombu_itself_puts_when_told_so(app: Celery, store: Store) -> None:
    app.conf.broker_transport_options = {"body_encoding": "utf-8"}
    theirs, ours = json.loads(by_kombu(app, store)), json.loads(by_lua(store))
    assert ours["properties"]["body_encoding"] == theirs["properties"]["body_encoding"] == "utf-8"
    assert json.loads(ours["body"]) == json.loads(theirs["body"])


def test_ids_and_delivery_tags_are_unique(store: Store, broker: Any) -> None:
    for n in range(30):
        store.queue.add([Add(key=Key("pool", f"n{n}", f"p{i}")) for i in range(10)])
    wakes = broker.drain()
    ids = [wake.raw["headers"]["id"] for wake in wakes] + [w.raw["properties"]["delivery_tag"] for w in wakes]
    assert len(ids) == len(set(ids)) == 600


def test_a_real_worker_runs_the_task_redelivers_and_acknowledges(app: Celery, store: Store) -> None:
    # Given a task that hands its first message back, and notes what it was called with
    ran: queues.Queue[tuple[Any, ...]] = queues.Queue()

    @app.task(name="osb.reconcile.pool", bind=True, shared=False)
    def reconcile(self: Any, namespace: str, name: str, reason: str = "") -> None:
        redelivered = bool(self.request.delivery_info.get("redelivered"))
        ran.put((namespace, name, reason, self.request.get(WAKE_HEADER), self.request.id, redelivered))
        if name == "warm" and not redelivered:
            raise Reject("not now", requeue=True)

    keys = [Key("pool", "default", "warm"), Key("pool", "default", "cold")]
    # When Lua publishes two wake-ups, and a person sends a task
    store.queue.add([Add(key=key, reason=REASON) for key in keys])
    with start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, loglevel="error"):
        got = [ran.get(timeout=10) for _ in range(3)]
        reconcile.apply_async(("default", "by-hand"), queue="osb.pool.now")
        by_hand = ran.get(timeout=10)
    # Then each ran with its arguments and the header (the hand-sent without), the rejected one twice
    assert sorted(run[:4] for run in got) == [
        ("default", "cold", REASON, 1),
        ("default", "warm", REASON, 1),
        ("default", "warm", REASON, 1),
    ]
    (first, second) = [run for run in got if run[1] == "warm"]
    assert (first[4], first[5], second[5]) == (second[4], False, True)
    assert by_hand[:4] == ("default", "by-hand", "", None)
    # and everything was acknowledged
    assert store.redis.exists("unacked", "unacked_index", "osb.pool.now") == 0


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (DEFAULT.replace(b"<<tag>>", b"1"), "placeholders"),
        (DEFAULT.replace(b"<<tag>>", b"<<tag>><<more>>"), "placeholders"),
        (DEFAULT + b"}", "not JSON"),
    ],
    ids=["missing", "unknown", "no JSON"],
)
def test_a_template_that_cannot_be_filled_is_refused(store: Store, template: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        store.queue.use_envelope(template)
    assert checked_template(DEFAULT) == DEFAULT


def test_a_message_of_unknown_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match="shape"):
        template_of(orjson.dumps({"body": "x", "properties": {}}))
