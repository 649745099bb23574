"""`osbctl up`: all in one on this machine. Takes every flag of the reference, so that its `args:` work."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from osb.cli import output as out
from osb.cli import preflight
from osb.cli.install import install_definitions, lease_home, release_lease, wait_ready
from osb.config import Settings
from osb.ending import Ending
from osb.errors import ConfigError, OsbError
from osb.flags import FLAGS, to_env
from osb.local.folder import hold
from osb.local.folder import make as make_folder
from osb.local.up import Everything, Options, given_cluster

EXAMPLE = (
    "Own flags: --sim (a simulated cluster, also the default when no kubeconfig is given), --pod-ready 0.5s (in it), "
    "--workers 2, --flower-port 0 (free port), --no-flower, --data-dir DIR (of Redis and logs, kept; "
    "default: temporary). --metrics-bind-address is the watcher's; workers and beat take the ports after it. "
    "All others: " + ", ".join(f"--{flag.name}" for flag in FLAGS) + ". Meanings: docs/settings.md. "
    "Example: osbctl up --sim --zap-log-level debug"
)

_OWN_BOOL = ("sim", "no-flower")
_OWN_VALUE = {"workers": "2", "flower-port": "0", "data-dir": "", "pod-ready": "0.5s"}


@dataclass(frozen=True, slots=True)
class Own:
    """Flags of `up` itself."""

    sim: bool
    flower: bool
    workers: int
    flower_port: int
    data_dir: str
    pod_ready: str


def up(context: typer.Context) -> None:
    """Start Redis, a simulated cluster (or use yours), watcher, workers, beat and Flower; stop with Ctrl-C."""
    own, rest = split(context.args)
    env = to_env(rest)
    folder = Path(own.data_dir) if own.data_dir else make_folder("osb-up")
    try:
        preflight.folder(folder, "--data-dir" if own.data_dir else "TMPDIR")
        if own.data_dir:
            hold(folder, "--data-dir")
        _run(own, env, folder)
    finally:
        if not own.data_dir:
            shutil.rmtree(folder, ignore_errors=True)


def split(arguments: Sequence[str]) -> tuple[Own, list[str]]:
    """Own flags, and the rest in its order. Raises ConfigError."""
    values: dict[str, str] = dict(_OWN_VALUE)
    switches: set[str] = set()
    rest: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in _OWN_BOOL and not equals:
            switches.add(name)
        elif word.startswith("-") and name in _OWN_VALUE:
            if not equals and not words:
                raise ConfigError(f"--{name} needs a value")
            values[name] = value if equals else words.pop(0)
        else:
            rest.append(word)
            if word.startswith("-") and not equals and words and not words[0].startswith("-"):
                rest.append(words.pop(0))  # its value must not be taken for a flag of ours
    return _own(switches, values), rest


def _own(switches: set[str], values: dict[str, str]) -> Own:
    numbers = {}
    for name, low in (("workers", 1), ("flower-port", 0)):
        if not values[name].isdigit() or int(values[name]) < low:
            raise ConfigError(f"--{name}={values[name]}: a whole number from {low} on is accepted")
        numbers[name] = int(values[name])
    return Own("sim" in switches, "no-flower" not in switches, numbers["workers"], numbers["flower-port"],
               values["data-dir"], preflight.pod_ready(values["pod-ready"]))  # fmt: skip


def _run(own: Own, env: dict[str, str], folder: Path) -> None:
    settings = Settings.from_env({**os.environ, **env})  # a bad value ends here, before anything was started
    if own.sim and env.get("OSB_KUBECONFIG"):
        raise ConfigError("--sim simulates a cluster and --kubeconfig names a real one: leave one of them out")
    cluster = "" if own.sim else given_cluster({**os.environ, **env})
    simulate = own.sim or not cluster
    redis_url = _redis(env)
    preflight.ports(
        settings, {**os.environ, **env}, flower=own.flower_port if own.flower else 0, processes=own.workers + 2
    )
    if redis_url:
        preflight.redis(redis_url, out.warn)
    if not simulate:
        preflight.cluster(settings)
    over = Ending(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, hurries=True)
    everything = Everything(
        Options(
            folder=folder, env={"OSB_INSTALLATION": settings.installation, **env}, redis_url=redis_url,
            kubeconfig="" if simulate or cluster == "in-cluster" else cluster, simulate=simulate,
            workers=own.workers, flower=own.flower, flower_port=own.flower_port, pod_ready=own.pod_ready,
            task_events=settings.task_events or own.flower,
        ), say=out.warn, hurry=lambda: over.urgent,
    )  # fmt: skip
    _serve(everything, over, own, simulate=simulate)
    if over.urgent:
        raise KeyboardInterrupt


def _serve(everything: Everything, over: Ending, own: Own, *, simulate: bool) -> None:
    """Start it, look after it until a signal, and end it in any case."""
    settings, mark = Settings(), ""
    try:
        everything.start_servers()
        settings = Settings.from_env({**os.environ, **everything.env})
        mark = preflight.claim(everything, settings, simulate=simulate) or "unknown"
        if simulate:
            install_definitions(settings)
        elif lease_home(settings):
            out.say(f"namespace {settings.lease_home} did not exist: it was created for the installation's Lease")
        if over.is_set():
            return
        everything.start_controller(settings)
        _greet(everything, settings, simulate=simulate, named=own.sim)
        wait_ready(everything, over)
        out.say("ready" if not over.is_set() else "stopping")
        while not over.wait(0.5):
            everything.watch()
    finally:
        # A second Ctrl-C leaves out the Lease: it runs out by itself.
        _end(everything, settings, over, mark=mark, simulate=simulate)


def _end(everything: Everything, settings: Settings, over: Ending, *, mark: str, simulate: bool) -> None:
    """Controller first, then the Lease, while the servers still answer; then those. No mark: nothing was taken."""
    everything.stop_controller()
    try:
        if mark and not over.urgent:
            release_lease(settings, everything.redis_url)
        if mark and simulate and not over.urgent:
            preflight.unclaim(everything.redis_url, mark)
    except OsbError as error:
        out.warn(f"the Lease was not released: {error}")
    finally:
        everything.stop()


def _redis(env: dict[str, str]) -> str:
    """The Redis that somebody named, "" when an own one is to be started."""
    return env.get("OSB_REDIS_URL") or os.environ.get("OSB_REDIS_URL") or os.environ.get("REDIS_URL") or ""


def _greet(everything: Everything, settings: Settings, *, simulate: bool, named: bool) -> None:
    if simulate and not named:
        out.say("no kubeconfig was given: simulating a cluster (--kubeconfig PATH uses a real one)")
    if settings.dry_run:
        out.say("dry run (--dry-run): it watches and decides, and writes nothing but the installation's Lease")
    for warning in settings.warnings:
        out.warn(f"warning: {warning}")
    pairs = [
        ("cluster", everything.kubeconfig or "in-cluster"),
        ("redis", settings.effective()["redis_url"]),
        ("probes", f"http://127.0.0.1:{everything.health_port}/readyz"),
        ("logs", everything.supervisor.folder),
    ]
    if everything.flower_url:
        pairs.append(("flower", f"{everything.flower_url}  user osb, password {everything.flower_password}"))
    out.fields(pairs)
    out.say("in another terminal:")
    out.say(f"  export KUBECONFIG={everything.kubeconfig} REDIS_URL={everything.redis_url}")
    sys.stdout.flush()
