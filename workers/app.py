"""The Celery application and its settings.

A message is only a wake-up (osb.store.queue holds the truth), so Celery needs little: late acknowledgement, one
message at a time, no results, no gossip. Late messages and repeated ones end harmlessly at `begin`.

Why these numbers (spec/pitfalls.md E): the visibility timeout (120 s) lies above the hard limit of a reconcile
(60 s), so that a message is not repeated while its task still runs; restored messages are swept often, since the
default of 100 s would leave a dead worker's wake-up lying, though `rescue` has long published another.

Next: `workers.tasks` turns a message into a key for `osb.reconcile.handle`.
"""

from __future__ import annotations

import os
import sys

from celery import Celery
from kombu import Queue

from osb.config import Settings
from osb.errors import ConfigError
from workers import broker
from workers.routes import all_queues, queue_name
from workers.sending import App

VISIBILITY_TIMEOUT = 120
HARD_LIMIT = 60


def make_app(settings: Settings) -> Celery:
    """The application of workers, beat and Flower. Opens no connection (clients are made after fork)."""
    made = App("osb", broker=settings.redis_url, include=["workers.tasks", "workers.signals"])
    made.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_serializer="json",
        accept_content=["json"],
        task_time_limit=HARD_LIMIT,
        task_default_queue="osb.pool.now",
        task_create_missing_queues=False,
        task_queues=[Queue(name, routing_key=name) for name in all_queues()],
        task_send_sent_event=False,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=False,
        worker_enable_remote_control=True,
        worker_pool=os.environ.get("OSB_WORKER_POOL", "threads"),
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_max_tasks_per_child=5000,
        worker_send_task_events=os.environ.get("OSB_TASK_EVENTS", "") in ("1", "true"),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": 5,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 25,
            "queue_order_strategy": "priority",
            "sep": ":",
        },
    )
    made.conf.task_routes = (route_by_kind,)
    return made


def route_by_kind(name: str, args: object, kwargs: object, options: object, **_: object) -> dict[str, str] | None:
    """Hand-sent tasks of a kind go to its *now* queue, so that `celery call` and Flower need no queue name."""
    prefix, _dot, kind = name.rpartition(".")
    return {"queue": queue_name(kind)} if prefix == "osb.reconcile" else None


def _settings() -> Settings:
    """A bad value ends `celery` with one line, not with the stack of an import."""
    try:
        return Settings.from_env()
    except ConfigError as error:
        sys.stderr.write(f"osb: {error}\n")
        raise SystemExit(2) from None


broker.install()
app = make_app(_settings())
