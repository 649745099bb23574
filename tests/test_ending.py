"""A program that was asked to end does, whatever it was doing when the signal came."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from osb.ending import SAME_PRESS
from tests.doubles.waiting import wait_until

# Another process sends one signal a turn, each at a moment of its own, while this one looks again and again.
FLOOD = """
    import os, random, signal, threading
    from osb.ending import Ending
    turns = {turns}
    ask, go = os.pipe()
    me = os.getpid()
    if not os.fork():
        os.close(go)
        while os.read(ask, 1):
            for _ in range(random.randrange(3000)):
                pass
            os.kill(me, signal.SIGTERM)
        os._exit(0)

    for turn in range(turns):
        over = {make}
        os.write(go, b".")
        while not over.wait(0.000001):
            pass
        if hasattr(over, "_reader"):
            os.close(over._reader), os.close(over._writer)
    print("all", turns)
"""


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def test_thousands_of_signals_at_any_moment_of_a_wait_never_hang_the_program() -> None:
    code = FLOOD.format(turns=5000, make="Ending(signal.SIGTERM)")
    ended = subprocess.run(_python(code), capture_output=True, text=True, timeout=60)
    assert ended.stdout == "all 5000\n", ended.stderr


WAITS = """
    import os, signal, sys, time
    from osb.ending import Ending
    over = Ending(signal.SIGTERM, signal.SIGINT, hurries={hurries})
    print("waits", flush=True)
    over.wait()
    print("asked", flush=True)
    while not over.urgent:
        time.sleep(0.01)
    print("urgent", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def program(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    code = _python(WAITS.format(hurries=request.param))
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as running:
        yield running
        running.kill()


def _line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def _press_again(program: subprocess.Popen[str], seen) -> None:  # type: ignore[no-untyped-def]
    """As a person does: once more when nothing happens. What comes within half a second is the same press."""

    def pressed() -> bool:
        if not seen():
            program.send_signal(signal.SIGINT)
        return bool(seen())

    wait_until(pressed, 10)


@pytest.mark.parametrize("program", [False], indirect=True)
def test_the_first_signal_wakes_the_waiter_at_once_and_the_second_ctrl_c_ends_the_program(program) -> None:  # type: ignore[no-untyped-def]
    assert _line(program) == "waits"
    started = time.monotonic()
    program.send_signal(signal.SIGINT)
    assert _line(program) == "asked" and time.monotonic() - started < 5  # not "with the next timeout": there is none
    assert program.poll() is None
    _press_again(program, lambda: program.poll() is not None)
    assert program.returncode == -signal.SIGINT


@pytest.mark.parametrize("program", [True], indirect=True)
def test_a_program_that_hurries_is_told_of_the_second_ctrl_c_and_ended_by_the_third(program) -> None:  # type: ignore[no-untyped-def]
    assert _line(program) == "waits"
    program.send_signal(signal.SIGTERM)
    assert _line(program) == "asked"
    # Half a second later it is another press, and one is enough
    assert program.stdout is not None
    told = select.poll()
    told.register(program.stdout, select.POLLIN)
    assert told.poll(SAME_PRESS * 1000 + 100) == []
    program.send_signal(signal.SIGINT)
    assert _line(program) == "urgent" and program.poll() is None
    # And the third
    program.send_signal(signal.SIGINT)
    assert program.wait(10) == -signal.SIGINT


def test_a_ctrl_c_that_a_launcher_passes_on_too_is_one_press() -> None:
    code = """
        import os, signal
        from osb.ending import Ending
        over = Ending(signal.SIGINT)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
        print(over.is_set(), over.urgent)
    """
    ended = subprocess.run(_python(code), capture_output=True, text=True, timeout=60)
    assert ended.stdout == "True False\n", ended.stderr


def test_a_signal_handler_that_takes_a_lock_of_the_main_thread_does_its_work_aside() -> None:
    code = """
        import os, signal, threading, time
        from osb.ending import aside
        lock, done = threading.Lock(), threading.Semaphore(0)

        def work():
            with lock:
                done.release()

        signal.signal(signal.SIGTERM, lambda *_: aside(work))
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
        print(done.acquire(timeout=20))
    """
    ended = subprocess.run(_python(code), capture_output=True, text=True, timeout=60)
    assert ended.stdout == "True\n", ended.stderr
