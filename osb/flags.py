"""Every setting: its flag, its environment variable, its type, its default and what it means. One table.

`osbctl up` takes all flags of the reference (so an existing `args:` list works) and hands them to its processes as
environment; every process reads only the environment: `OSB_` + the flag in capitals with underscores, plus the
older names under `also`. Values use Go's syntax: durations `1h30m`, booleans `--x=false`. `osb.config` turns the
table into the frozen `Settings`; the docs page of settings is printed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from osb.errors import ConfigError

Type = Literal["text", "bool", "int", "float", "duration", "list", "concurrency", "choice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """`field` is the name in `Settings`, "" for a flag of the reference that has no effect here.

    `low` is the smallest value of a number; `secret` values are masked wherever settings are shown.
    """

    name: str
    field: str
    help: str
    type: Type = "text"
    default: str = ""
    also: tuple[str, ...] = ()
    low: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False

    @property
    def env(self) -> str:
        return "OSB_" + self.name.upper().replace("-", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.env, *self.also)


def _flag(name: str, field: str, help: str, **kwargs: object) -> Flag:
    return Flag(name=name, field=field, help=help, **kwargs)  # type: ignore[arg-type]  # checked by Flag's own use


def _unused(name: str, default: str = "", *, boolean: bool = False) -> Flag:
    return Flag(
        name=name,
        field="",
        type="bool" if boolean else "text",
        default=default,
        help="accepted for the reference's argument lists; has no effect here",
    )


_REFERENCE = (
    _flag("kubeconfig", "kubeconfig", "path; empty: in-cluster, then ~/.kube/config", also=("KUBECONFIG",)),
    _flag("health-probe-bind-address", "health_address", "address of /healthz and /readyz", default=":8081"),
    _flag("metrics-bind-address", "metrics_address", "address of /metrics; 0 = no metrics server", default="0"),
    _flag(
        "kube-client-qps",
        "kube_qps",
        "calls a second to the API server, all processes together; 0 = no limit of ours",
        type="float",
        default="0",
        low=0,
    ),
    _flag("kube-client-burst", "kube_burst", "calls at once under that limit", type="int", default="200", low=1),
    _flag(
        "concurrency",
        "concurrency",
        "worker slots: batchsandbox=N;pool=N (also snapshot, recycle, tasks); repeatable, later wins",
        type="concurrency",
    ),
    _flag(
        "expectation-timeout",
        "expectation_timeout",
        "how long a pod that was asked for but not seen blocks scaling before a live read settles it",
        type="duration",
        default="30s",
        low=1,
    ),
    _flag(
        "image-committer-image",
        "committer_image",
        "image of commit and unpause Jobs",
        default="image-committer:dev",
    ),
    _flag(
        "containerd-socket-path",
        "containerd_socket",
        "the node's containerd socket, mounted into those Jobs",
        default="/var/run/containerd/containerd.sock",
    ),
    _flag("commit-job-timeout", "job_timeout", "deadline of those Jobs", type="duration", default="10m", low=1),
    _flag("snapshot-registry", "snapshot_registry", "image prefix; empty: every snapshot fails, saying so"),
    _flag(
        "snapshot-registry-insecure",
        "snapshot_registry_insecure",
        "push over plain HTTP",
        type="bool",
        default="false",
    ),
    _flag("snapshot-push-secret", "snapshot_push_secret", "dockerconfigjson Secret in the sandbox's namespace"),
    _flag("resume-pull-secret", "resume_pull_secret", "pull Secret appended to a resumed pod's template"),
    _flag("enable-file-log", "file_log", "also write a rotated log file", type="bool", default="false"),
    _flag("log-file-path", "log_file", "that file", default="/var/log/sandbox-controller/controller.log"),
    _flag("log-max-size", "log_max_size", "MB until it is rotated", type="int", default="100", low=1),
    _flag("log-max-backups", "log_max_backups", "rotated files kept", type="int", default="10", low=0),
    _flag("log-max-age", "log_max_age", "days rotated files are kept", type="int", default="30", low=0),
    _flag("log-compress", "log_compress", "gzip rotated files", type="bool", default="true"),
    _flag("zap-devel", "log_devel", "console format and debug level unless set", type="bool", default="false"),
    _flag(
        "zap-encoder",
        "log_format",
        "log format",
        type="choice",
        default="json",
        choices=("json", "console"),
        also=("OSB_LOG_FORMAT",),
    ),
    _flag(
        "zap-log-level",
        "log_level",
        "debug, info, warn, error, panic, or a number (more = more verbose)",
        default="info",
        also=("OSB_LOG_LEVEL",),
    ),
    _unused("leader-elect", "false", boolean=True),
    _unused("metrics-secure", "true", boolean=True),
    _unused("metrics-cert-path"),
    _unused("metrics-cert-name", "tls.crt"),
    _unused("metrics-cert-key", "tls.key"),
    _unused("webhook-cert-path"),
    _unused("webhook-cert-name", "tls.crt"),
    _unused("webhook-cert-key", "tls.key"),
    _unused("enable-http2", "false", boolean=True),
    _unused("allow-weak-tls-keylengths", "false", boolean=True),
    _unused("zap-stacktrace-level", "error"),
    _unused("zap-time-encoding", "rfc3339"),
)

_OURS = (
    _flag(
        "redis-url",
        "redis_url",
        "the Redis of the installation",
        default="redis://127.0.0.1:6379/0",
        also=("REDIS_URL",),
        secret=True,
    ),
    _flag("namespaces", "namespaces", "namespaces to watch, separated by commas; empty = all", type="list"),
    _flag("installation", "installation", "identity in the Lease; default the host name"),
    _flag("pod-namespace", "pod_namespace", "our own namespace, of profiles and Lease", also=("POD_NAMESPACE",)),
    _flag(
        "lease-namespace",
        "lease_namespace",
        "namespace of the Lease when pod-namespace is empty",
        default="opensandbox-system",
    ),
    _flag("no-lease", "no_lease", "act without holding the installation's Lease", type="bool", default="false"),
    _flag(
        "resync-interval",
        "resync_seconds",
        "every key is looked at once in this time",
        type="duration",
        default="10m",
        low=10,
    ),
    _flag("write-threads", "write_threads", "API writes of one pass in parallel", type="int", default="8", low=1),
    _flag("serve-batch", "serve_batch", "sandboxes served in one fast pass", type="int", default="200", low=1),
    _flag(
        "sync-sandbox-alloc-concurrency",
        "alloc_concurrency",
        "upper bound of write-threads for allocation writes",
        type="int",
        default="256",
        low=1,
        also=("SYNC_SANDBOX_ALLOC_CONCURRENCY",),
    ),
    _flag(
        "recycle-pod-concurrency",
        "recycle_concurrency",
        "pods of one pool recycled in parallel",
        type="int",
        default="64",
        low=1,
        also=("RECYCLE_POD_CONCURRENCY",),
    ),
    _flag(
        "ledger-trust-restart",
        "ledger_trust_restart",
        "trust a Redis that restarted with its data",
        type="bool",
        default="true",
        also=("LEDGER_TRUST_RESTART",),
    ),
    _flag(
        "trust-unclaimed",
        "trust_unclaimed",
        "first start after a planned migration: unclaimed pods are clean",
        type="bool",
        default="false",
    ),
    _flag(
        "max-pods",
        "max_pods",
        "cap for the pods of all pools together; 0 = none",
        type="int",
        default="0",
        low=0,
    ),
    _flag(
        "task-stop-timeout",
        "task_stop_timeout",
        "how long a task may take to stop",
        type="duration",
        default="60s",
        low=12.001,
    ),
    _flag("executor-token", "executor_token", "bearer token for task executors", secret=True),
    _flag(
        "resume-timeout",
        "resume_timeout",
        "how long a resume may take",
        type="duration",
        default="10m",
        low=1,
    ),
    _flag(
        "snapshot-image-template",
        "snapshot_image_template",
        "image reference of a snapshot; must name {namespace} and {tag}",
        default="{registry}/{namespace}/{sandbox}/{container}:{tag}",
    ),
    _flag("task-events", "task_events", "send task events for Flower", type="bool", default="false"),
    _flag("dry-run", "dry_run", "watch and decide, write nothing", type="bool", default="false"),
)

FLAGS: tuple[Flag, ...] = (*_REFERENCE, *_OURS)
BY_NAME: dict[str, Flag] = {flag.name: flag for flag in FLAGS}


def to_env(arguments: Sequence[str]) -> dict[str, str]:
    """A Go-style argument list (`--x=y`, `-x y`, `--flag`) as environment variables. Raises ConfigError.

    A boolean takes no separate value (`--x false` is an error, as in the reference's parser `--x=false` is meant).
    """
    env: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        flag = BY_NAME.get(name) if word.startswith("-") else None
        if flag is None:
            raise ConfigError(f"unknown flag or argument {word!r}")
        if not equals:
            value = _following(flag, rest)
        if flag.type == "concurrency" and env.get(flag.env):
            value = f"{env[flag.env]};{value}"
        env[flag.env] = value
    return env


def _following(flag: Flag, rest: list[str]) -> str:
    if flag.type == "bool":
        return "true"
    if not rest:
        raise ConfigError(f"--{flag.name} needs a value")
    return rest.pop(0)


def render_table() -> str:
    """The table as Markdown, the content of docs/settings.md."""
    lines = ["| flag | environment | type | default | meaning |", "|---|---|---|---|---|"]
    for flag in FLAGS:
        variables = ", ".join(f"`{name}`" for name in flag.variables)
        default = f"`{flag.default}`" if flag.default else ""
        lines.append(f"| `--{flag.name}` | {variables} | {flag.type} | {default} | {flag.help} |")
    return "\n".join(lines) + "\n"
