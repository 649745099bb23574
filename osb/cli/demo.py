"""`osbctl demo`: the whole system on this machine for a first look; the story is in `osb.local.demo`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import typer

from osb.cli import preflight
from osb.cli.context import FAILED, quit_with
from osb.cli.demoworld import DemoWorld
from osb.cli.install import install_definitions, release_lease, wait_ready
from osb.config import Settings
from osb.ending import Ending
from osb.errors import OsbError
from osb.flags import BY_NAME
from osb.local.demo import Story, StoryFailed
from osb.local.demoview import Screen
from osb.local.folder import make as make_folder
from osb.local.up import FLOWER_USER, Everything, Options

EXAMPLE = "Example: osbctl demo   (in a terminal it goes on after the story, until Ctrl-C)"
EXECUTORS = 250  # more addresses than the story uses pods; other systems have only one loopback address


class _Stopped(Exception):
    """Ctrl-C or SIGTERM arrived."""


def demo(
    pod_ready: str = typer.Option("2s", "--pod-ready", help="how long a simulated pod takes to become Ready"),
    stay: bool = typer.Option(None, "--stay/--no-stay", help="go on after the story (default: only in a terminal)"),
    keep: bool = typer.Option(False, "--keep-logs", help="leave the logs of all processes behind"),
) -> None:
    """Run everything on an embedded Redis and a simulated cluster, and show what it does. Touches nothing else."""
    seconds = preflight.pod_ready(pod_ready)
    folder = make_folder("osb-demo")
    code = 0
    try:
        code = _play(folder, seconds=seconds, pod_ready=pod_ready, stay=stay)
    finally:  # also when nobody reads the output any more
        if keep:
            folder = folder.rename(folder.with_name(folder.name.replace("osb-demo-", "osb-demo-kept-")))
        if keep or code == FAILED:
            typer.echo(f"logs: {folder / 'logs'}", err=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    quit_with(code)


def _play(folder: Path, *, seconds: str, pod_ready: str, stay: bool | None) -> int:
    over = Ending(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, hurries=True)
    _forget_settings()
    env = {"OSB_INSTALLATION": "demo", "OSB_HEALTH_PROBE_BIND_ADDRESS": "0"}
    options = Options(folder=folder, env=env, simulate=True, threads=16, pod_ready=seconds, task_events=True,
                      executors=EXECUTORS if sys.platform == "linux" else 0)  # fmt: skip
    screen = Screen()
    everything = Everything(options, say=lambda line: screen.say("plain", line), hurry=lambda: over.urgent)
    with screen:
        try:
            return _tell(
                everything, screen, over, pod_ready=pod_ready, stay=screen.live is not None if stay is None else stay
            )
        except _Stopped:
            screen.say("plain", "stopping")
            return 0 if screen.live is not None else 130
        except (StoryFailed, OsbError) as error:
            screen.say("error", f"the demo failed: {error}")
            return FAILED
        finally:
            _end(everything, over)


def _tell(everything: Everything, screen: Screen, over: Ending, *, pod_ready: str, stay: bool) -> int:
    started = time.monotonic()
    screen.say("plain", "starting: Redis, a simulated cluster, 1 watcher, 2 workers, beat, Flower ...")
    everything.start_servers()
    settings = Settings.from_env({**os.environ, **everything.env})
    install_definitions(settings)
    everything.start_controller(settings)
    _tell_addresses(everything, screen)
    wait_ready(everything, over)
    screen.say("plain", f"everything runs after {time.monotonic() - started:.1f} s")

    def look_after() -> None:
        if over.is_set():
            raise _Stopped
        everything.watch()

    world = DemoWorld(settings, on_tick=look_after)
    world.show = screen.show
    try:
        begun = time.monotonic()
        Story(world, screen.say, tasks=everything.options.executors > 0, pod_ready=pod_ready).run()
        screen.say("title", f"done: the story took {time.monotonic() - begun:.0f} s")
        if stay:
            screen.say("plain", "everything goes on until Ctrl-C")
            _tell_addresses(everything, screen)
        while stay and not over.wait(0.2):
            world.tick()
    except _Stopped:
        if not stay:
            raise
    finally:
        world.close()
    return 0


def _tell_addresses(everything: Everything, screen: Screen) -> None:
    """As lines of the story: in the table a narrow terminal would break them, and half a line would be copied."""
    screen.say("plain", "for kubectl and osbctl in another terminal:")
    screen.say("plain", f"export KUBECONFIG={everything.kubeconfig} REDIS_URL={everything.redis_url}")
    if everything.flower_url:
        password = everything.flower_password
        screen.say("plain", f"Flower: {everything.flower_url}   user {FLOWER_USER}, password {password}")


def _forget_settings() -> None:
    """The demo is the same everywhere: settings of the caller's environment must not reach its processes."""
    for flag in BY_NAME.values():
        for variable in flag.variables:
            os.environ.pop(variable, None)


def _end(everything: Everything, over: Ending) -> None:
    everything.stop_controller()
    try:
        if not over.urgent and everything.redis_url and everything.kubeconfig:
            release_lease(Settings.from_env({**os.environ, **everything.env}), everything.redis_url)
    except OsbError:
        pass  # the cluster that kept it goes away with the demo
    finally:
        everything.stop()
