"""`Settings`: read from the environment once, checked, frozen. A bad value stops the start with one line.

The names, defaults and meanings are the table in `osb.flags`; here are only their types and how text becomes
a value. Effective values are logged at start (`Settings.effective`), secrets masked.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from osb.errors import ConfigError
from osb.flags import FLAGS, Flag

CONCURRENCY = {"batchsandbox": 32, "pool": 16, "snapshot": 8, "recycle": 16, "tasks": 8}
MASK = "***"

DECIDING = (
    "expectation_timeout", "ledger_trust_restart", "trust_unclaimed", "max_pods", "recycle_concurrency",
    "task_stop_timeout", "job_timeout", "resume_timeout", "resume_pull_secret", "snapshot_registry",
    "snapshot_registry_insecure", "snapshot_push_secret", "snapshot_image_template", "committer_image",
    "containerd_socket", "pod_namespace",
)  # fmt: skip
"""What decisions depend on: workers tell it, so that `osbctl explain` decides as they do. No secret is among it."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_URL_SECRET = re.compile(r"(://[^/@:]*:)[^/@]*@")
_DNS = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LEVELS = ("debug", "info", "warn", "error", "panic")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings; times in seconds. Tests make one with `Settings(redis_url=..., ...)`."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    kubeconfig: str = ""
    namespaces: tuple[str, ...] = ()
    installation: str = ""
    pod_namespace: str = ""
    lease_namespace: str = "opensandbox-system"
    no_lease: bool = False
    health_address: str = ":8081"
    metrics_address: str = "0"
    kube_qps: float = 0.0
    kube_burst: int = 200
    concurrency: Mapping[str, int] = msgspec.field(default_factory=lambda: dict(CONCURRENCY))
    write_threads: int = 8
    serve_batch: int = 200
    alloc_concurrency: int = 256
    recycle_concurrency: int = 64
    resync_seconds: float = 600.0
    expectation_timeout: float = 30.0
    ledger_trust_restart: bool = True
    trust_unclaimed: bool = False
    max_pods: int = 0
    task_stop_timeout: float = 60.0
    executor_token: str = ""
    committer_image: str = "image-committer:dev"
    containerd_socket: str = "/var/run/containerd/containerd.sock"
    job_timeout: float = 600.0
    snapshot_registry: str = ""
    snapshot_registry_insecure: bool = False
    snapshot_push_secret: str = ""
    snapshot_image_template: str = "{registry}/{namespace}/{sandbox}/{container}:{tag}"
    resume_pull_secret: str = ""
    resume_timeout: float = 600.0
    task_events: bool = False
    dry_run: bool = False
    log_format: str = "json"
    log_level: str = "info"
    log_devel: bool = False
    file_log: bool = False
    log_file: str = "/var/log/sandbox-controller/controller.log"
    log_max_size: int = 100
    log_max_backups: int = 10
    log_max_age: int = 30
    log_compress: bool = True
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Settings from `env` (default os.environ). ConfigError names variable, value, what is accepted."""
        env = os.environ if env is None else env
        values: dict[str, Any] = {}
        warnings: list[str] = []
        for flag in FLAGS:
            variable, text = _given(flag, env)
            if not flag.field:
                if variable and text != flag.default:
                    warnings.append(f"{variable}={text} has no effect here")
                continue
            values[flag.field] = _value(flag, variable or flag.env, text)
        values["concurrency"] = _with_defaults(values["concurrency"], warnings)
        values["installation"] = values["installation"] or socket.gethostname()
        settings = cls(**values, warnings=tuple(warnings))
        settings._check()
        return settings

    @property
    def metrics_port(self) -> int:
        """Port of the metrics server, 0 = none."""
        return port_of(self.metrics_address)

    @property
    def health_port(self) -> int:
        """Port of the probes, 0 = none."""
        return port_of(self.health_address)

    @property
    def lease_home(self) -> str:
        """Namespace of the installation's Lease."""
        return self.pod_namespace or self.lease_namespace

    @property
    def identity(self) -> str:
        """Holder identity of the installation: the same for all its processes."""
        return f"osb_{self.installation or socket.gethostname()}"

    def effective(self) -> dict[str, Any]:
        """All values for a log line or `osbctl doctor`: secrets and URL passwords masked."""
        secret = {flag.field for flag in FLAGS if flag.secret}
        shown = msgspec.structs.asdict(self)
        for field in secret:
            if shown[field]:
                masked = _URL_SECRET.sub(rf"\1{MASK}@", shown[field])
                shown[field] = masked if "://" in masked else MASK
        return shown

    def deciding(self) -> dict[str, Any]:
        """The values that decisions depend on."""
        return {name: getattr(self, name) for name in DECIDING}

    def deciding_as(self, told: Mapping[str, Any]) -> Settings:
        """These settings with what another process tells about decisions.

        What it does not tell, or in another type (another release), stays.
        """
        fitting = {n: told[n] for n in DECIDING if n in told and type(told[n]) is type(getattr(self, n))}
        return msgspec.structs.replace(self, **fitting)

    def _check(self) -> None:
        """What no single value shows."""
        checked_redis(self.redis_url)
        template = self.snapshot_image_template
        missing = [part for part in ("{namespace}", "{tag}") if part not in template]
        if missing:
            raise ConfigError(
                f"OSB_SNAPSHOT_IMAGE_TEMPLATE={template}: {' and '.join(missing)} must be in it, "
                "otherwise sandboxes overwrite each other's images"
            )
        for name in self.namespaces:
            if not _DNS.fullmatch(name):
                raise ConfigError(f"OSB_NAMESPACES: {name!r} is not a namespace name")
        if self.log_level not in _LEVELS and not self.log_level.isdigit():
            raise ConfigError(f"OSB_ZAP_LOG_LEVEL={self.log_level}: one of {', '.join(_LEVELS)} or a number")
        for variable, address in (
            ("OSB_METRICS_BIND_ADDRESS", self.metrics_address),
            ("OSB_HEALTH_PROBE_BIND_ADDRESS", self.health_address),
        ):
            if port_of(address) < 0:
                raise ConfigError(f"{variable}={address}: host:port, :port or 0 is accepted")


def masked_url(url: str) -> str:
    """A URL without its password, for messages."""
    return _URL_SECRET.sub(rf"\1{MASK}@", url)


def checked_redis(url: str) -> str:
    """The URL, when a Redis can be meant. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
        fits = fits or (parts.scheme == "unix" and bool(parts.path))
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"REDIS_URL={masked_url(url)}: redis://[:password@]host:port/database is accepted "
                          "(rediss:// with TLS)")  # fmt: skip
    return url


def duration(text: str) -> float:
    """Seconds of a Go duration: `10m`, `1h30m`, `500ms`, `0`. Raises ValueError."""
    if text in ("0", "+0", "-0"):
        return 0.0
    sign, rest = (-1.0, text[1:]) if text[:1] == "-" else (1.0, text.removeprefix("+"))
    parts = _PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError("a duration such as 500ms, 30s, 10m or 1h30m")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)


def concurrency(text: str) -> dict[str, int]:
    """`batchsandbox=32;pool=16` as a dict; later pairs win. Raises ValueError."""
    pairs: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(";"))):
        name, _, number = (part.strip() for part in pair.partition("="))
        if not name or not number.isdigit() or int(number) <= 0:
            raise ValueError(f"{pair!r} is no name=N with N > 0; name=N;name=N")
        pairs[name] = int(number)
    return pairs


def boolean(text: str) -> bool:
    """Go's spellings of true and false. Raises ValueError."""
    if text.lower() in ("1", "t", "true"):
        return True
    if text.lower() in ("0", "f", "false"):
        return False
    raise ValueError("true or false")


def port_of(address: str) -> int:
    """The port of `:8081`, `127.0.0.1:8081` or `8081`; 0 = off, -1 = not an address."""
    text = address.rpartition(":")[2]
    return int(text) if text.isdigit() and int(text) < 65536 else -1


def _given(flag: Flag, env: Mapping[str, str]) -> tuple[str, str]:
    """(variable that sets it, its text), or ("", default). An empty variable counts as not set."""
    for variable in flag.variables:
        if env.get(variable, "").strip():
            return variable, env[variable].strip()
    return "", flag.default


def _value(flag: Flag, variable: str, text: str) -> Any:
    try:
        value = _PARSERS[flag.type](text)
    except ValueError as error:
        accepted = str(error) if flag.type in _OWN_WORDS else f"{_WORDS[flag.type]}"
        raise ConfigError(f"{variable}={_masked(flag, text)}: {accepted} is accepted") from error
    if flag.low is not None and value < flag.low:
        raise ConfigError(f"{variable}={text}: at least {flag.low:g} is accepted")
    if flag.choices and value not in flag.choices:
        raise ConfigError(f"{variable}={text}: one of {', '.join(flag.choices)} is accepted")
    return value


def _masked(flag: Flag, text: str) -> str:
    return MASK if flag.secret else text


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _finite(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _with_defaults(given: dict[str, int], warnings: list[str]) -> dict[str, int]:
    unknown = sorted(set(given) - set(CONCURRENCY))
    if unknown:
        warnings.append(f"OSB_CONCURRENCY: {', '.join(unknown)} unknown; known: {', '.join(CONCURRENCY)}")
    return {**CONCURRENCY, **{name: number for name, number in given.items() if name in CONCURRENCY}}


_PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "choice": str,
    "bool": boolean,
    "int": int,
    "float": _finite,
    "duration": duration,
    "list": _names,
    "concurrency": concurrency,
}
_WORDS = {"int": "a whole number", "float": "a number"}
_OWN_WORDS = ("bool", "duration", "concurrency")
