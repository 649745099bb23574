"""The wake-up message as a template, so that Lua can publish it and no process but the workers needs Celery.

In: nothing, since `DEFAULT` equals what the pinned kombu 5.7 makes (a test compares); or one message of another kombu.
Out: JSON with placeholders, which `lua/queue_lib_v1.lua` fills and pushes on the list that a Celery worker pops.

| placeholder    | stands for                                                                 |
|----------------|----------------------------------------------------------------------------|
| `<<task>>`     | task name, `osb.reconcile.<kind>`                                          |
| `<<queue>>`    | the list: `osb.<kind>.now`, `osb.<kind>.later`, `osb.recycle`, `osb.tasks` |
| `<<id>>`       | task id                                                                    |
| `<<tag>>`      | delivery tag: unique per message, or acknowledging one drops another       |
| `<<args>>`     | `["namespace", "name", "reason"]`, escaped for the body's JSON text        |
| `<<argsrepr>>` | the same as Flower and logs show it                                        |

The body travels as plain text (`body_encoding: utf-8`), which kombu accepts as well as its default base64: Lua has
no base64, and `redis-cli lrange` stays readable. A task tells a wake-up from a hand-sent message by the header
`osb-wake`, which Celery gives it as `self.request.get("osb-wake") == 1` (absent when a person sent it).
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import orjson

from osb.errors import ConfigError

WAKE_HEADER: Final = "osb-wake"
_PLACEHOLDERS: Final = ("task", "queue", "id", "tag", "args", "argsrepr")
_PLACEHOLDER: Final = re.compile(rb"<<([a-z]+)>>")
_EMBED: Final = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'

_DEFAULT: Final[dict[str, Any]] = {
    "body": f"[<<args>>, {{}}, {_EMBED}]",
    "content-encoding": "utf-8",
    "content-type": "application/json",
    "headers": {
        "lang": "py", "task": "<<task>>", "id": "<<id>>", "shadow": None, "eta": None, "expires": None,
        "group": None, "group_index": None, "retries": 0, "timelimit": [None, None], "root_id": "<<id>>",
        "parent_id": None, "argsrepr": "<<argsrepr>>", "kwargsrepr": "{}", "origin": "osb@redis",
        "ignore_result": True, "replaced_task_nesting": 0, "stamped_headers": None, "stamps": {},
        WAKE_HEADER: 1,
    },
    "properties": {
        "correlation_id": "<<id>>", "reply_to": "00000000-0000-0000-0000-000000000000", "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": "<<queue>>"}, "priority": 0,
        "body_encoding": "utf-8", "delivery_tag": "<<tag>>",
    },
}  # fmt: skip

DEFAULT: Final = orjson.dumps(_DEFAULT)


def template_of(message: bytes) -> bytes:
    """Make a template of one message that kombu put on a list for a task with three text arguments.

    Everything that is not particular to the one message stays as kombu wrote it. Raises ConfigError when the
    message has another shape than this release knows.
    """
    try:
        made = orjson.loads(message)
        body = made["body"]
        if made["properties"]["body_encoding"] == "base64":
            body = base64.b64decode(body)
        _, kwargs, embed = orjson.loads(body)
        rest = b", ".join([orjson.dumps(kwargs), orjson.dumps(embed)]).decode()
        made["body"] = f"[<<args>>, {rest}]"
        made["headers"] |= {
            "task": "<<task>>",
            "id": "<<id>>",
            "root_id": "<<id>>",
            "argsrepr": "<<argsrepr>>",
        }
        made["headers"] |= {WAKE_HEADER: 1}
        made["properties"] |= {
            "correlation_id": "<<id>>",
            "delivery_tag": "<<tag>>",
            "body_encoding": "utf-8",
        }
        made["properties"]["delivery_info"]["routing_key"] = "<<queue>>"
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"kombu's message has a shape that osb.store.envelope does not know: {error!r}") from error
    return checked_template(orjson.dumps(made))


def hand_message(template: bytes, *, kind: str, queue: str, task_id: str, args: tuple[str, str, str]) -> bytes:
    """A message as a person's `celery call` makes it: no wake-up header, so `begin` counts it as an event."""
    made = orjson.loads(template)
    made["body"] = made["body"].replace("<<args>>", orjson.dumps(args).decode())
    made["headers"] |= {"task": f"osb.reconcile.{kind}", "id": task_id, "root_id": task_id, "argsrepr": repr(args)}
    made["headers"].pop(WAKE_HEADER, None)
    made["properties"] |= {"correlation_id": task_id, "delivery_tag": task_id}
    made["properties"]["delivery_info"]["routing_key"] = queue
    return orjson.dumps(made)


def checked_template(template: bytes) -> bytes:
    """The template, if the scripts can fill it. Raises ConfigError that names what is missing or unknown."""
    found = {name.decode() for name in _PLACEHOLDER.findall(template)}
    if found != set(_PLACEHOLDERS):
        raise ConfigError(f"envelope: placeholders {sorted(found)}, expected {sorted(_PLACEHOLDERS)}")
    try:
        orjson.loads(template)
    except ValueError as error:
        raise ConfigError(f"envelope: not JSON: {error}") from error
    return template
