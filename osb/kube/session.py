"""What one connection to a cluster consists of: the official client's configuration and its connection pool.

The official client finds and reads the configuration (kubeconfig, in-cluster, exec plugins), sets up TLS and
refreshes tokens; requests then go straight to its urllib3 pool, which saves its own serialising (a third of
the CPU of a write). Proxies and a path in the server's URL are honoured. Next stop: `osb.kube.transport`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import urllib3
from yaml import YAMLError

from osb.config import Settings
from osb.errors import ConfigError, Unavailable
from osb.kube import fastpatch
from osb.obs.log import get_logger

USER_AGENT = "sandbox-k8s-controller/1.0"  # the reference's: audit rules and field managers stay the same
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
DEFAULT_KUBECONFIG = "~/.kube/config"

log = get_logger("kube")


class Timeout(NamedTuple):
    """Seconds until a connection must stand, and of silence while reading."""

    connect: float
    read: float


class Answer(Protocol):
    """What is used of an answer: urllib3's response, or `fastpatch.Reply`."""

    @property
    def status(self) -> int: ...
    @property
    def data(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def drain_conn(self) -> None: ...
    def release_conn(self) -> None: ...


class _Accepted(urllib3.connection.HTTPSConnection):
    """A connection whose certificate the kubeconfig says not to check: accepted, no warning per call."""

    def connect(self) -> None:
        super().connect()
        self.is_verified = True


class Session:
    """A configuration and its pool. Made after fork, never at import; thread-safe."""

    def __init__(self, configuration: Any, *, pool: int) -> None:
        from kubernetes.client import ApiClient

        configuration.connection_pool_maxsize = pool
        configuration.keep_alive = True
        configuration.retries = False
        self.configuration = configuration
        self._client = ApiClient(configuration)
        manager = self._client.rest_client.pool_manager
        self.host: str = configuration.host.rstrip("/")
        self.proxied: bool = manager.proxy is not None
        # A plain-HTTP proxy wants the whole URL in the request line, so requests go through the manager then.
        self._whole_url = self.proxied and self.host.startswith("http://")
        self._authority = urlsplit(self.host).netloc
        self._prefix = self.host if self._whole_url else urlsplit(self.host).path
        self._pool = manager if self._whole_url else manager.connection_from_url(self.host)
        if self.host.startswith("https://") and not configuration.verify_ssl:
            log.warning("the server's certificate is not checked, as the kubeconfig says", host=self.host)
            self._pool.ConnectionCls = _Accepted
        self._fast = not self._whole_url and not self.proxied and fastpatch.usable(self._pool)
        self._token_lock = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None,
        content: str,
        timeout: Timeout,
        stream: bool,
    ) -> Answer:
        """One request, no retries, no redirects. Raises urllib3's HTTPError or OSError without an answer."""
        headers = self.headers(content if body is not None else "")
        if method == "PATCH" and self._fast and body is not None:
            head = self._head(method, path, headers)
            return fastpatch.send(self._pool, head, body, connect=timeout.connect, read=timeout.read)
        extra = {} if self._whole_url else {"assert_same_host": False}
        response: urllib3.BaseHTTPResponse = self._pool.urlopen(
            method,
            self._prefix + path,
            body=body,
            headers=headers,
            retries=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=timeout.connect, read=timeout.read),
            preload_content=not stream,
            **extra,
        )
        return response

    def _head(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a line break in a request header")
        return ("\r\n".join(lines) + "\r\n").encode("latin-1")

    def headers(self, content: str = "") -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        if content:
            headers["Content-Type"] = content
        if token := self.token():
            headers["Authorization"] = token
        return headers

    def token(self) -> str:
        """The Authorization header's value, refreshed by the official client when it is about to expire."""
        from kubernetes.config import ConfigException

        with self._token_lock:  # the refresh hook rewrites the configuration
            try:
                key = self.configuration.get_api_key_with_prefix("BearerToken", "authorization")
            except (ConfigException, OSError) as error:
                failure = Unavailable(f"no token for {self.host}: {error}")
                failure.definite = True
                raise failure from error
        return str(key or "")

    def close(self) -> None:
        self._client.close()


def load(settings: Settings, *, pool: int) -> Session:
    """A session from, in this order: the kubeconfig setting (or KUBECONFIG), in-cluster, ~/.kube/config."""
    from kubernetes import config
    from kubernetes.client import Configuration

    configuration = Configuration()
    try:
        if settings.kubeconfig:
            config.load_kube_config(config_file=settings.kubeconfig, client_configuration=configuration)
        elif os.environ.get(IN_CLUSTER):
            config.load_incluster_config(client_configuration=configuration)
        elif Path(DEFAULT_KUBECONFIG).expanduser().exists():
            config.load_kube_config(config_file=DEFAULT_KUBECONFIG, client_configuration=configuration)
        else:
            raise ConfigError(
                "no cluster configured: set --kubeconfig (OSB_KUBECONFIG, KUBECONFIG), run inside a cluster, "
                f"or put a file at {DEFAULT_KUBECONFIG}"
            )
    except (config.ConfigException, OSError, ValueError, TypeError, AttributeError, LookupError, YAMLError) as error:
        # The client takes the file's structure on trust: what is not a kubeconfig fails in any of these ways.
        source = settings.kubeconfig or ("in-cluster" if os.environ.get(IN_CLUSTER) else DEFAULT_KUBECONFIG)
        told = isinstance(error, (config.ConfigException, OSError, ValueError, YAMLError))
        words = " ".join(str(error).split())[:200] if told else "it has not the structure of a kubeconfig"
        raise ConfigError(f"kubeconfig {source} cannot be used: {words}; set --kubeconfig (KUBECONFIG)") from error
    return Session(configuration, pool=pool)
