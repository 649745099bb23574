"""Which move a pause intent means in which state: the whole table, and that the page shows the same one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from osb.api import names
from osb.decide import pause
from osb.decide.pause import Situation, Step, step

PAGE = Path(__file__).parents[2] / "docs" / "pause-resume.md"
BUSY = ("Pausing", "Resuming")
ALIVE = ("", "Pending", "Succeed")


@pytest.mark.parametrize("phase", ["", *names.BOX_PHASES])
@pytest.mark.parametrize("news", [True, False])
def test_without_an_intent_only_the_generation_is_acknowledged(phase: str, news: bool) -> None:
    expected = Step.GO_ON if phase in BUSY else Step.ACK
    assert step(Situation(phase=phase, pause=None, news=news, running=True)) is expected


@pytest.mark.parametrize("news", [True, False])
def test_any_edit_of_a_paused_sandbox_is_only_acknowledged(news: bool) -> None:
    assert step(Situation(phase="Paused", pause=True, news=news)) is Step.ACK
    assert step(Situation(phase="Paused", pause=True, news=news, single=False, pause_failed=True)) is Step.ACK


@pytest.mark.parametrize("phase", [*ALIVE, "Failed"])
@pytest.mark.parametrize("running", [True, False])
def test_a_sandbox_that_runs_already_is_not_resumed(phase: str, running: bool) -> None:
    assert step(Situation(phase=phase, pause=False, news=True, running=running)) is Step.ACK


@pytest.mark.parametrize("phase", ALIVE)
def test_a_pause_waits_for_a_running_pod_without_being_acknowledged(phase: str) -> None:
    assert step(Situation(phase=phase, pause=True, news=True)) is Step.WAIT
    assert step(Situation(phase=phase, pause=True, news=True, running=True)) is Step.PAUSE


def test_a_failed_pause_is_tried_again_only_for_a_new_generation() -> None:
    failed = Situation(phase="Succeed", pause=True, running=True, pause_failed=True)
    assert step(failed) is Step.IDLE
    assert step(Situation(phase="Succeed", pause=True, running=True, pause_failed=True, news=True)) is Step.PAUSE


def test_a_failed_resume_is_tried_again_only_for_a_new_generation() -> None:
    assert step(Situation(phase="Paused", pause=False)) is Step.RESUME
    assert step(Situation(phase="Paused", pause=False, resume_failed=True)) is Step.IDLE
    assert step(Situation(phase="Paused", pause=False, resume_failed=True, news=True)) is Step.RESUME


def test_a_resume_from_failed_needs_a_failed_resume_and_known_images() -> None:
    wanted = Situation(phase="Failed", pause=False, news=True, resume_failed=True, restorable=True)
    assert step(wanted) is Step.RESUME
    for missing in ({"news": False}, {"resume_failed": False}, {"restorable": False}):
        fields = {f: getattr(wanted, f) for f in Situation.__dataclass_fields__} | missing
        assert step(Situation(**fields)) is Step.ACK


def test_a_failed_sandbox_with_a_running_pod_can_be_paused_and_one_without_is_refused() -> None:
    assert step(Situation(phase="Failed", pause=True, news=True, running=True)) is Step.PAUSE
    assert step(Situation(phase="Failed", pause=True, news=True)) is Step.NO_POD


@pytest.mark.parametrize("phase", [*ALIVE, "Failed"])
def test_a_pause_does_not_wait_for_a_pod_that_cannot_come(phase: str) -> None:
    assert step(Situation(phase=phase, pause=True, news=True, used_up=True)) is Step.NO_POD
    assert step(Situation(phase=phase, pause=True, used_up=True, pause_failed=True)) is Step.IDLE


def test_only_single_sandboxes_are_paused() -> None:
    for phase in (*ALIVE, "Failed"):
        assert step(Situation(phase=phase, pause=True, news=True, running=True, single=False)) is Step.REFUSE


def test_an_operation_in_progress_is_never_interrupted_by_an_intent() -> None:
    for phase, wanted, news in itertools.product(BUSY, (True, False, None), (True, False)):
        assert step(Situation(phase=phase, pause=wanted, news=news, running=True)) is Step.GO_ON


# -- the page --------------------------------------------------------------------------------------------------------


def documented() -> dict[tuple[str, str, str], str]:
    """(pause, phase, facts) -> step, from the page's table."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if len(cells) == 4 and cells[0] in ("true", "false", "null") and cells[1] in ("none", *names.BOX_PHASES):
            rows[cells[0], cells[1], cells[2]] = cells[3]
    return rows


def situation(pause_: str, phase: str, facts: str) -> Situation:
    told = {word.strip() for word in facts.split(",")}
    known = {"new", "running", "PauseFailed", "ResumeFailed", "images", "replicas≠1", "given back", "-"}
    assert told <= known, f"unknown facts {told - known}"
    return Situation(
        phase="" if phase == "none" else phase,
        pause={"true": True, "false": False, "null": None}[pause_],
        news="new" in told,
        running="running" in told,
        pause_failed="PauseFailed" in told,
        resume_failed="ResumeFailed" in told,
        restorable="images" in told,
        single="replicas≠1" not in told,
        used_up="given back" in told,
    )


def test_the_page_shows_what_the_code_does() -> None:
    rows = documented()
    wrong = {row: (said, step(situation(*row)).value) for row, said in rows.items()}
    assert {row: pair for row, pair in wrong.items() if pair[0] != pair[1]} == {}
    # Every state and every answer occurs on the page
    assert {phase for _, phase, _ in rows} == {"none", *names.BOX_PHASES}
    assert set(rows.values()) == {one.value for one in Step}


def test_the_page_names_every_reason_that_pause_and_resume_can_give() -> None:
    text = PAGE.read_text()
    source = "".join(
        Path(module).read_text() for module in (pause.__file__, pause.pausing.__file__, pause.resuming.__file__)
    )
    used = set(re.findall(r"names\.(REASON_\w+)", source))
    assert {getattr(names, name) for name in used if getattr(names, name) not in text} == set()
