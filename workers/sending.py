"""What cannot be sent by hand is said in one line: `celery -A workers call` shows such an error without its stack.

Other callers (Flower) see the errors that they know, with better words.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.exceptions import CeleryCommandException, QueueNotFound
from kombu.exceptions import OperationalError

from osb.api.key import KINDS
from osb.config import masked_url

TASKS = tuple(f"osb.reconcile.{kind}" for kind in KINDS)
FAILED, USAGE = 1, 2


class BrokerAway(CeleryCommandException, OperationalError):  # type: ignore[misc]  # celery and kombu have no types
    """Redis did not take the message."""


class Unknown(CeleryCommandException, QueueNotFound):  # type: ignore[misc]
    """There is no such task, or no such queue."""


class App(Celery):  # type: ignore[misc]
    """Celery's application with words of ours for a task that cannot be sent."""

    def send_task(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in TASKS and name not in self.tasks:
            raise Unknown(f"{name} is no task; there are {', '.join(TASKS)}", USAGE)
        try:
            return super().send_task(name, *args, **kwargs)
        except QueueNotFound as error:
            queues = ", ".join(self.amqp.queues)
            raise Unknown(f"{name} was not sent, there is no such queue; there are {queues}", USAGE) from error
        except OperationalError as error:
            url, said = masked_url(self.conf.broker_url), str(error).rstrip(".")
            words = f"{name} was not sent: {said}; is Redis up, and is REDIS_URL={url} right?"
            raise BrokerAway(words, FAILED) from error
