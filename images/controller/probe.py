#!/usr/local/bin/python3 -IS
"""`osb-probe alive|ready`: the probes of workers and beat. Standard library only, so that it starts in milliseconds.

alive: OSB_HEARTBEAT_FILE was touched in the last 60 s, by the process's own loop. ready: that, and the Redis of
OSB_REDIS_URL accepts a connection within a second. Exit code 0 or 1; the reason goes to stderr.
"""

import os
import socket
import sys
import time
from urllib.parse import SplitResult, urlsplit

FRESH_SECONDS = 60.0
CONNECT_SECONDS = 1.0


def alive() -> str:
    """Empty, or what is wrong."""
    path = os.environ.get("OSB_HEARTBEAT_FILE", "")
    try:
        age = time.time() - os.stat(path).st_mtime
    except OSError as error:
        return f"no heartbeat: {error}"
    return "" if age < FRESH_SECONDS else f"the last heartbeat is {age:.0f} s old"


def reachable() -> str:
    """Empty, or what is wrong."""
    try:
        link = _connect(urlsplit(os.environ.get("OSB_REDIS_URL") or os.environ.get("REDIS_URL", "")))
    except (OSError, ValueError) as error:
        return f"Redis cannot be reached: {error}"
    link.close()
    return ""


def _connect(url: SplitResult) -> socket.socket:
    if url.scheme in ("unix", "redis+socket"):
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(CONNECT_SECONDS)
        link.connect(url.path)
        return link
    return socket.create_connection((url.hostname or "127.0.0.1", url.port or 6379), timeout=CONNECT_SECONDS)


def main(arguments: list[str]) -> int:
    if arguments not in (["alive"], ["ready"]):
        sys.stderr.write("usage: osb-probe alive|ready\n")
        return 2
    problem = alive() or (reachable() if arguments == ["ready"] else "")
    if problem:
        sys.stderr.write(problem + "\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
