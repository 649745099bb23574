"""The real thing, small: `pytest tests/bench -m bench`. Goals are printed, not asserted: machines differ."""

from __future__ import annotations

import orjson
import pytest

from osb.bench import main

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]


def test_every_row_can_be_measured_on_the_simulated_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["--cluster", "sim", "--quick", "-o", "json"])
    (found,) = orjson.loads(capsys.readouterr().out)
    assert found["notMeasured"] == []
    assert {row["row"] for row in found["rows"]} == set(main.ROWS)
    by_key = {row["key"]: row for row in found["rows"]}
    assert by_key["writes"]["value"] == 2
    assert by_key["double"]["value"] == 0
    assert by_key["kill-lost"]["value"] == 0
