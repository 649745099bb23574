"""The command line of the bench: which rows, which cluster, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from osb.bench import main, plane
from osb.errors import ConfigError


def test_unknown_rows_are_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--rows", "single,nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_rows_run_in_their_own_order_whatever_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = main._arguments(["--rows", "cold,single"])
    assert chosen.rows == ["single", "cold"]


def test_without_binaries_only_the_simulated_cluster_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert main._clusters("") == ["sim"]
    assert "KUBEBUILDER_ASSETS" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main._clusters("both")


def test_with_binaries_both_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in plane.NEEDED:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert main._clusters("") == ["sim", "real"]
    assert main._clusters("sim") == ["sim"]


def test_an_incomplete_folder_of_binaries_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(ConfigError, match="missing: kube-apiserver, kube-controller-manager"):
        plane.assets()


def test_a_kubeconfig_that_does_not_exist_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--cluster", "/nowhere/kubeconfig", "--rows", "single"]) == 1
    assert "/nowhere/kubeconfig" in capsys.readouterr().err
