"""`osbctl up`: all in one on this machine. Takes every flag of the reference, so that its `args:` work."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from osb.cli import output as out
from osb.cli import preflight
from osb.cli.install import install_definitions, lease_home, release_lease, wait_ready
from osb.config import Settings, duration
from osb.errors import ConfigError, OsbError
from osb.flags import FLAGS, to_env
from osb.local.folder import make as make_folder
from osb.local.up import Everything, Options, given_cluster

EXAMPLE = (
    "Own flags: --sim (a simulated cluster, also the default when no kubeconfig is given), --pod-ready 0.5s (in it), "
    "--workers 2, --flower-port 0 (free port), --no-flower, --data-dir DIR (kept; default: temporary). "
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
    try:
        duration(values["pod-ready"])
    except ValueError as error:
        raise ConfigError(f"--pod-ready={values['pod-ready']}: {error} is accepted") from error
    return Own("sim" in switches, "no-flower" not in switches, numbers["workers"], numbers["flower-port"],
               values["data-dir"], values["pod-ready"])  # fmt: skip


def _run(own: Own, env: dict[str, str], folder: Path) -> None:
    settings = Settings.from_env({**os.environ, **env})  # a bad value ends here, before anything was started
    cluster = "" if own.sim else given_cluster({**os.environ, **env})
    simulate = own.sim or not cluster
    redis_url = _redis(env)
    preflight.ports(
        settings, {**os.environ, **env}, flower=own.flower_port if own.flower else 0, processes=own.workers + 2
    )
    if not simulate:
        preflight.cluster(settings)
    everything = Everything(
        Options(
            folder=folder, env={"OSB_INSTALLATION": settings.installation, **env}, redis_url=redis_url,
            kubeconfig="" if simulate or cluster == "in-cluster" else cluster, simulate=simulate,
            workers=own.workers, flower=own.flower, flower_port=own.flower_port, pod_ready=own.pod_ready,
            task_events=settings.task_events or own.flower,
        ), say=out.warn,
    )  # fmt: skip
    over, mark = _until_signal(), ""
    try:
        everything.start_servers()
        settings = Settings.from_env({**os.environ, **everything.env})
        mark = preflight.claim(everything, settings, simulate=simulate) or "unknown"
        if simulate:
            install_definitions(settings)
        elif lease_home(settings):
            out.say(f"namespace {settings.lease_home} did not exist: it was created for the installation's Lease")
        everything.start_controller(settings)
        _greet(everything, settings, simulate=simulate, named=own.sim)
        wait_ready(everything, over)
        out.say("ready" if not over.is_set() else "stopping")
        while not over.wait(0.5):
            everything.watch()
    finally:
        _end(everything, settings, mark=mark, simulate=simulate)


def _end(everything: Everything, settings: Settings, *, mark: str, simulate: bool) -> None:
    """Controller first, then the Lease, while the servers still answer; then those. No mark: nothing was taken."""
    everything.stop_controller()
    try:
        if mark:
            release_lease(settings, everything.redis_url)
        if mark and simulate:
            preflight.unclaim(everything.redis_url, mark)
    except OsbError as error:
        out.warn(f"the Lease was not released: {error}")
    finally:
        everything.stop()


def _redis(env: dict[str, str]) -> str:
    """The Redis that somebody named, "" when an own one is to be started."""
    return env.get("OSB_REDIS_URL") or os.environ.get("OSB_REDIS_URL") or os.environ.get("REDIS_URL") or ""


def _until_signal() -> threading.Event:
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: over.set())
    return over


def _greet(everything: Everything, settings: Settings, *, simulate: bool, named: bool) -> None:
    if simulate and not named:
        out.say("no kubeconfig was given: simulating a cluster (--kubeconfig PATH uses a real one)")
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
