"""What the demo prints as typed works when it is pasted: into a shell, for kubectl, from a narrow terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from osb.kube.install import install_crds
from osb.local.demo import apply_lines, box_body, ones_lines, pool_body, work_body
from osb.local.demoview import Screen
from osb.sim import SimCluster
from tests.doubles.controlplane import kubectl
from tests.doubles.simulated import client_of

PASTED = {
    "pool/warm": apply_lines(pool_body()),
    "batchsandbox/ten": apply_lines(box_body("ten", 10)),
    "batchsandbox/one-9": ones_lines(),
    "batchsandbox/work": apply_lines(work_body()),
}


@pytest.mark.skipif(kubectl() is None, reason="needs kubectl on the PATH, or beside the binaries of KUBEBUILDER_ASSETS")
def test_every_apply_that_is_printed_creates_its_objects_with_kubectl(tmp_path: Path) -> None:
    with SimCluster.start(tmp_path, kubelet=False) as sim:
        with client_of(sim, "opensandbox-system") as kube:
            install_crds(kube)
        folder = str(Path(kubectl() or "").parent)
        env = {**os.environ, "KUBECONFIG": str(sim.kubeconfig), "PATH": f"{folder}:{os.environ['PATH']}",
               "HOME": str(tmp_path)}  # fmt: skip
        for name, lines in PASTED.items():
            pasted = subprocess.run(
                ["bash"], input="\n".join(lines) + "\n", env=env, capture_output=True, text=True, timeout=60
            )
            assert f"{name.partition('/')[2]} created" in pasted.stdout, pasted.stderr


@pytest.mark.parametrize("name", PASTED)
def test_a_document_is_not_taken_for_json(name: str) -> None:
    lines = PASTED[name]
    text = "\n".join(lines[1 : lines.index("EOF")])
    found = json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text)  # as kubectl chooses
    assert found["kind"] in ("Pool", "BatchSandbox")


def test_lines_for_copying_are_never_broken_nor_cut_in_a_narrow_terminal() -> None:
    out = io.StringIO()
    export = f"export KUBECONFIG=/tmp/{'x' * 60}/kubeconfig REDIS_URL=redis://127.0.0.1:40000/0"
    with Screen(Console(file=out, width=80, force_terminal=True, color_system=None)) as screen:
        for style in ("command", "more", "plain"):
            screen.say(style, export)
    lines = [line.strip() for line in out.getvalue().replace("\r", "\n").split("\n")]
    assert len([line for line in lines if line.endswith(export)]) == 3, lines
