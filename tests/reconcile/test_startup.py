"""What a worker warns about when it starts."""

from __future__ import annotations

from osb.config import Settings
from osb.reconcile.startup import problems


def test_good_settings_say_nothing() -> None:
    assert problems(Settings.from_env({"OSB_SNAPSHOT_REGISTRY": "registry.example:5000/saved"})) == []


def test_a_registry_with_a_scheme_is_told_at_start_and_not_at_the_first_pause() -> None:
    (problem,) = problems(Settings.from_env({"OSB_SNAPSHOT_REGISTRY": "https://registry.example"}))
    assert "https://registry.example" in str(problem)


def test_a_template_that_mixes_containers_is_told() -> None:
    template = "{registry}/{namespace}/{sandbox}:{tag}"
    found = problems(Settings.from_env({"OSB_SNAPSHOT_IMAGE_TEMPLATE": template}))
    assert any("{container}" in str(problem) for problem in found)
