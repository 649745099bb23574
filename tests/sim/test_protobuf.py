"""Bodies in protobuf, as kubectl sends them for built-in kinds; `test_process` has kubectl itself."""

from __future__ import annotations

import pytest

from osb.sim import protobuf
from osb.sim.refusals import Refusal


def text(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2, len(value)]) + value


def envelope(kind: bytes, raw: bytes) -> bytes:
    return b"k8s\0" + text(1, text(1, b"v1") + text(2, kind)) + text(2, raw)


def test_a_config_map_is_read_with_its_empty_values_and_bytes() -> None:
    data = text(2, text(1, b"a") + text(2, b"b")) + text(2, text(1, b"empty") + text(2, b"")) + text(2, text(1, b"no"))
    body = envelope(
        b"ConfigMap", text(1, text(1, b"m") + text(2, b"")) + data + text(3, text(1, b"x") + text(2, b"\xff"))
    )
    assert protobuf.decode(body) == {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
        "data": {"a": "b", "empty": "", "no": ""}, "binaryData": {"x": "/w=="},
    }  # fmt: skip


def test_a_grace_of_zero_is_not_lost_and_fields_of_later_versions_are_passed_over() -> None:
    later = text(15, b"?") + bytes([14 << 3 | 5]) + b"1234" + bytes([13 << 3 | 1]) + b"12345678"
    read = protobuf.decode(envelope(b"DeleteOptions", bytes([1 << 3, 0]) + later))
    assert read == {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


def test_negative_numbers_are_negative() -> None:
    read = protobuf.decode(envelope(b"DeleteOptions", bytes([1 << 3]) + b"\xff" * 9 + b"\x01"))
    assert read["gracePeriodSeconds"] == -1


def test_a_kind_without_a_table_is_refused_by_name() -> None:
    with pytest.raises(
        Refusal, match=r"reads Deployment only as JSON, which kubectl apply -f and create -f send"
    ) as no:
        protobuf.decode(envelope(b"Deployment", b""))
    assert no.value.code == 415


WHOLE = envelope(b"ConfigMap", text(1, text(1, b"m")))
NO_RAW = len(envelope(b"ConfigMap", b"")) - 2  # cut here, it is a whole message of an empty object


@pytest.mark.parametrize("raw", [
    b"", b"{}", b"k8s", *(WHOLE[:at] for at in range(4, len(WHOLE)) if at != NO_RAW),
    envelope(b"ConfigMap", b"\x0b"), envelope(b"ConfigMap", b"\xff" * 11), envelope(b"ConfigMap", b"\x08\x01"),
    envelope(b"ConfigMap", text(2, text(1, b"\xff"))), envelope(b"DeleteOptions", text(1, b"x")),
    envelope(b"ConfigMap", text(1, text(8, b"\x08" + b"\xff" * 8 + b"\x01"))),
], ids=repr)  # fmt: skip
def test_bytes_that_are_no_such_message_are_refused_and_never_a_fault(raw: bytes) -> None:
    with pytest.raises(Refusal) as no:
        protobuf.decode(raw)
    assert no.value.code in (400, 415)
