"""Settings: every name works, every bad value stops the start with one line that says what is accepted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from osb.config import CONCURRENCY, Settings, concurrency, duration, port_of
from osb.errors import ConfigError
from osb.flags import BY_NAME, FLAGS, render_table, to_env

OPERATORS_FLAGS = {
    "kubeconfig",
    "leader-elect",
    "health-probe-bind-address",
    "metrics-bind-address",
    "metrics-secure",
    "metrics-cert-path",
    "metrics-cert-name",
    "metrics-cert-key",
    "webhook-cert-path",
    "webhook-cert-name",
    "webhook-cert-key",
    "enable-http2",
    "allow-weak-tls-keylengths",
    "kube-client-qps",
    "kube-client-burst",
    "concurrency",
    "expectation-timeout",
    "image-committer-image",
    "containerd-socket-path",
    "commit-job-timeout",
    "snapshot-registry",
    "snapshot-registry-insecure",
    "snapshot-push-secret",
    "resume-pull-secret",
    "enable-file-log",
    "log-file-path",
    "log-max-size",
    "log-max-backups",
    "log-max-age",
    "log-compress",
    "zap-devel",
    "zap-encoder",
    "zap-log-level",
    "zap-stacktrace-level",
    "zap-time-encoding",
}


def test_an_empty_environment_gives_the_defaults_of_the_class():
    from_env = Settings.from_env({})
    assert from_env.installation
    assert msgspec.structs.replace(from_env, installation="") == Settings()


def test_every_flag_of_the_reference_is_accepted():
    assert set(OPERATORS_FLAGS) <= set(BY_NAME)


def test_every_setting_has_a_flag_and_the_class_has_every_field():
    fields = {field.name for field in msgspec.structs.fields(Settings)} - {"warnings"}
    assert {flag.field for flag in FLAGS if flag.field} == fields


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("OSB_KUBE_CLIENT_QPS", "12.5", "kube_qps", 12.5),
        ("OSB_EXPECTATION_TIMEOUT", "1m30s", "expectation_timeout", 90.0),
        ("OSB_COMMIT_JOB_TIMEOUT", "1h", "job_timeout", 3600.0),
        ("OSB_SNAPSHOT_REGISTRY_INSECURE", "true", "snapshot_registry_insecure", True),
        ("OSB_ZAP_ENCODER", "console", "log_format", "console"),
        ("OSB_LOG_FORMAT", "console", "log_format", "console"),
        ("OSB_ZAP_LOG_LEVEL", "4", "log_level", "4"),
        ("POD_NAMESPACE", "home", "pod_namespace", "home"),
        ("SYNC_SANDBOX_ALLOC_CONCURRENCY", "7", "alloc_concurrency", 7),
        ("RECYCLE_POD_CONCURRENCY", "8", "recycle_concurrency", 8),
        ("KUBECONFIG", "/k", "kubeconfig", "/k"),
        ("REDIS_URL", "redis://h/1", "redis_url", "redis://h/1"),
        ("OSB_NAMESPACES", "a, b,a,", "namespaces", ("a", "b")),
        ("LEDGER_TRUST_RESTART", "false", "ledger_trust_restart", False),
        ("OSB_TRUST_UNCLAIMED", "true", "trust_unclaimed", True),
        ("OSB_RESYNC_INTERVAL", "5m", "resync_seconds", 300.0),
    ],
)
def test_a_variable_sets_its_field(variable, text, field, value):
    assert getattr(Settings.from_env({variable: text}), field) == value


def test_our_own_name_wins_over_the_older_one():
    env = {"OSB_REDIS_URL": "redis://ours/0", "REDIS_URL": "redis://older/0"}
    assert Settings.from_env(env).redis_url == "redis://ours/0"


def test_an_empty_variable_counts_as_not_set():
    assert Settings.from_env({"OSB_WRITE_THREADS": " "}).write_threads == 8


@pytest.mark.parametrize(
    ("variable", "text", "accepted"),
    [
        ("OSB_EXPECTATION_TIMEOUT", "30", "30s"),
        ("OSB_EXPECTATION_TIMEOUT", "soon", "1h30m"),
        ("OSB_KUBE_CLIENT_QPS", "many", "a number"),
        ("OSB_KUBE_CLIENT_QPS", "nan", "a number"),
        ("OSB_KUBE_CLIENT_QPS", "-1", "at least 0"),
        ("OSB_KUBE_CLIENT_BURST", "1.5", "whole number"),
        ("SYNC_SANDBOX_ALLOC_CONCURRENCY", "0", "at least 1"),
        ("RECYCLE_POD_CONCURRENCY", "lots", "whole number"),
        ("OSB_SNAPSHOT_REGISTRY_INSECURE", "maybe", "true or false"),
        ("OSB_ZAP_ENCODER", "xml", "json, console"),
        ("OSB_ZAP_LOG_LEVEL", "loud", "debug"),
        ("OSB_CONCURRENCY", "pool", "name=N"),
        ("OSB_CONCURRENCY", "tasks=2;pool=x", "'pool=x' is no name=N with N > 0; name=N;name=N is accepted"),
        ("OSB_CONCURRENCY", "pool=0", "N > 0"),
        ("OSB_METRICS_BIND_ADDRESS", "here", ":port"),
        ("OSB_NAMESPACES", "a,B!", "namespace name"),
        ("OSB_TASK_STOP_TIMEOUT", "12s", "at least 12"),
        ("OSB_SNAPSHOT_IMAGE_TEMPLATE", "{registry}/x:{tag}", "{namespace}"),
    ],
)
def test_nonsense_stops_the_start_with_one_line_naming_variable_value_and_what_is_accepted(variable, text, accepted):
    with pytest.raises(ConfigError) as caught:
        Settings.from_env({variable: text})
    message = str(caught.value)
    assert variable in message
    assert accepted in message
    assert text.split(",")[-1] in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("10m", 600),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("2us", 2e-6),
        ("-1s", -1),
        ("1h0m5s", 3605),
    ],
)
def test_durations_are_gos(text, seconds):
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5d", "1m2", "s5"])
def test_other_durations_are_refused(text):
    with pytest.raises(ValueError):
        duration(text)


def test_concurrency_takes_pairs_trims_blanks_and_lets_later_ones_win():
    assert concurrency(" pool = 3 ; batchsandbox=4;pool=5;") == {"pool": 5, "batchsandbox": 4}
    settings = Settings.from_env({"OSB_CONCURRENCY": "pool=3"})
    assert settings.concurrency == {**CONCURRENCY, "pool": 3}


def test_at_least_eight_snapshots_run_at_once_by_default():
    assert Settings.from_env({}).concurrency["snapshot"] >= 8


def test_unknown_concurrency_names_and_flags_without_effect_are_warnings():
    warnings = Settings.from_env({"OSB_CONCURRENCY": "pods=3", "OSB_ENABLE_HTTP2": "true"}).warnings
    assert len(warnings) == 2
    assert any("pods" in warning for warning in warnings)
    assert any("OSB_ENABLE_HTTP2" in warning for warning in warnings)


def test_effective_values_are_shown_without_secrets():
    shown = Settings(redis_url="redis://u:pw@h:6379/0", executor_token="t0p").effective()
    assert shown["redis_url"] == "redis://u:***@h:6379/0"
    assert shown["executor_token"] == "***"
    assert shown["write_threads"] == 8
    assert set(shown) == {field.name for field in msgspec.structs.fields(Settings)}


def test_what_decisions_depend_on_goes_to_another_process_without_secrets():
    theirs = Settings(redis_url="redis://u:pw@h/0", executor_token="t0p", resume_timeout=40.0, job_timeout=40.0)
    told = theirs.deciding()
    assert not {flag.field for flag in FLAGS if flag.secret} & set(told)
    ours = Settings(redis_url="redis://other/1").deciding_as({**told, "max_pods": "many", "unknown": 1})
    assert (ours.resume_timeout, ours.job_timeout, ours.redis_url) == (40.0, 40.0, "redis://other/1")
    assert ours.max_pods == Settings().max_pods, "a value of another type is left out"


def test_the_settings_page_is_the_table():
    page = Path(__file__).parent.parent / "docs" / "settings.md"
    assert render_table() in page.read_text()


@pytest.mark.parametrize(
    ("address", "port"), [("0", 0), (":8080", 8080), ("127.0.0.1:1", 1), ("x", -1), (":70000", -1)]
)
def test_addresses(address, port):
    assert port_of(address) == port


def test_the_references_argument_list_becomes_environment():
    env = to_env(
        [
            "--leader-elect",
            "--health-probe-bind-address=:8081",
            "-zap-log-level",
            "debug",
            "--concurrency=pool=4",
            "--concurrency=batchsandbox=9",
            "--log-compress=false",
        ]
    )
    settings = Settings.from_env(env)
    assert settings.log_level == "debug"
    assert settings.concurrency["pool"] == 4
    assert settings.concurrency["batchsandbox"] == 9
    assert settings.log_compress is False


@pytest.mark.parametrize("arguments", [["--nope"], ["stray"], ["--kubeconfig"]])
def test_an_unknown_flag_or_a_missing_value_is_refused(arguments):
    with pytest.raises(ConfigError):
        to_env(arguments)
