"""`PoolSpec`: a Pool as decisions read it. In: the raw object. Out: safe values and what was wrong with it.

`parse` never raises for what a user wrote: each bad value gets the fallback of spec/pool.md 16 and a Problem,
so that one bad field never stops a pool. The pod template stays raw JSON end to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osb.api import intorstring, names, podtemplate, restart, sizing, times
from osb.api.intorstring import DEFAULT_UNAVAILABLE, IntOrPercent
from osb.api.reading import Reader, part, text, texts
from osb.api.restart import DEFAULT_RESTART, RestartConfig
from osb.api.sizing import NO_SIZING, Fairness, Sizing
from osb.api.spec import Spec
from osb.errors import InvalidInput

MAX_NAME = 63  # the name is a label value of every pool pod
_OFF = ("", "0", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec(Spec):
    template: dict[str, Any] | None = None
    buffer_min: int = 0
    buffer_max: int = 0
    pool_min: int = 0
    pool_max: int = 0
    scale_unavailable: IntOrPercent = DEFAULT_UNAVAILABLE
    update_unavailable: IntOrPercent = DEFAULT_UNAVAILABLE
    recycle: str = names.RECYCLE_DELETE
    placement: str = names.PLACEMENT_PACKED
    fairness: Fairness | None = None
    sizing: Sizing = NO_SIZING
    eviction_handler: str = ""
    restart_config: RestartConfig = DEFAULT_RESTART
    hold: bool = False

    @property
    def creatable(self) -> bool:
        """Whether pods can be made at all: existing ones are served either way."""
        return self.template is not None and len(self.name) <= MAX_NAME

    @property
    def evicts(self) -> bool:
        """False under an unknown eviction handler: then nothing is evicted."""
        return self.eviction_handler in ("", names.EVICTION_HANDLER_DEFAULT)


def parse(obj: Mapping[str, Any]) -> PoolSpec:
    """The Pool with every bad value replaced by its documented fallback. Never raises for user errors."""
    read = Reader()
    meta, spec = part(obj, "metadata"), part(obj, "spec")
    annotations, labels = texts(meta.get("annotations")), texts(meta.get("labels"))
    template = _template(read, spec)
    buffer_min, buffer_max, pool_min, pool_max = _capacity(read, spec)
    _check_name(read, text(meta, "name"))
    return PoolSpec(
        namespace=text(meta, "namespace"),
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        version=text(meta, "resourceVersion"),
        generation=meta.get("generation") or 0,
        deleting=times.parse_or_none(meta.get("deletionTimestamp")),
        created=times.parse_or_none(meta.get("creationTimestamp")) or times.EPOCH,
        template=template,
        buffer_min=buffer_min,
        buffer_max=buffer_max,
        pool_min=pool_min,
        pool_max=pool_max,
        scale_unavailable=_unavailable(read, spec, "scaleStrategy"),
        update_unavailable=_unavailable(read, spec, "updateStrategy"),
        recycle=_recycle(read, spec, template),
        placement=_placement(read, spec),
        fairness=sizing.parse_fairness(read, spec),
        sizing=sizing.parse_sizing(read, spec),
        labels=labels,
        annotations=annotations,
        eviction_handler=_handler(read, labels),
        restart_config=_restart(read, annotations, template),
        hold=parse_hold(annotations.get(names.HOLD, "")),
        status=part(obj, "status"),
        problems=read.found(),
    )


def parse_hold(text: str) -> bool:
    """Whether a value of the annotation `hold` holds the pool: anything but a word for no."""
    return text.lower() not in _OFF


def _capacity(read: Reader, spec: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """The four numbers, a crossed buffer band read the other way round, poolMax winning over poolMin."""
    where = "spec.capacitySpec"
    data = read.mapping(spec, "capacitySpec", at="spec")
    if data is None:
        read.report(where, "is required; the pool is read as empty (all numbers 0)", reason="CapacityMissing")
        data = {}
    buffer_min = read.number(data, "bufferMin", at=where, default=0)
    buffer_max = read.number(data, "bufferMax", at=where, default=0)
    pool_min = read.number(data, "poolMin", at=where, default=0)
    pool_max = read.number(data, "poolMax", at=where, default=0)
    if buffer_min > buffer_max:
        read.report(
            f"{where}.bufferMin",
            f"bufferMin {buffer_min} is above bufferMax {buffer_max}; read as {buffer_max} to {buffer_min}",
            reason="BufferRangeInvalid",
        )
        buffer_min, buffer_max = buffer_max, buffer_min
    if pool_min > pool_max:
        read.report(
            f"{where}.poolMin",
            f"poolMin {pool_min} is above poolMax {pool_max}; poolMax is in force",
            reason="PoolRangeInvalid",
        )
        pool_min = pool_max
    return buffer_min, buffer_max, pool_min, pool_max


def _unavailable(read: Reader, spec: Mapping[str, Any], member: str) -> IntOrPercent:
    data = read.mapping(spec, member, at="spec") or {}
    raw = data.get("maxUnavailable")
    if raw is None:
        return DEFAULT_UNAVAILABLE
    try:
        return intorstring.parse(raw, field=f"spec.{member}.maxUnavailable")
    except InvalidInput as error:
        read.report(error.field, f"{error.message}; 25% is in force", reason="InvalidMaxUnavailable")
        return DEFAULT_UNAVAILABLE


def _recycle(read: Reader, spec: Mapping[str, Any], template: Mapping[str, Any] | None) -> str:
    data = read.mapping(spec, "recycleStrategy", at="spec") or {}
    options = (names.RECYCLE_DELETE, names.RECYCLE_RESTART, names.RECYCLE_NOOP)
    kind = read.choice(data, "type", at="spec.recycleStrategy", options=options, reason="UnknownRecycleType")
    policy = text(part(template or {}, "spec"), "restartPolicy") or "Always"
    if kind == names.RECYCLE_RESTART and policy != "Always":
        read.report(
            "spec.recycleStrategy.type",
            f"Restart needs restartPolicy Always in the template, not {policy}; Delete is in force",
            reason="RestartNeedsAlways",
        )
        return names.RECYCLE_DELETE
    return kind


def _placement(read: Reader, spec: Mapping[str, Any]) -> str:
    options = (names.PLACEMENT_PACKED, names.PLACEMENT_SPREAD)
    return read.choice(spec, "placement", at="spec", options=options, reason="UnknownPlacement")


def _restart(read: Reader, annotations: Mapping[str, str], template: Mapping[str, Any] | None) -> RestartConfig:
    try:
        config = restart.parse(annotations.get(names.RESTART_CONFIG))
    except InvalidInput as error:
        read.caught(error, reason="InvalidRestartConfig", level="warning")
        return DEFAULT_RESTART
    containers = {text(item, "name") for item in part(template or {}, "spec").get("containers") or () if item}
    if containers and containers <= set(config.blacklist):
        read.report(
            f"metadata.annotations[{names.RESTART_CONFIG}]",
            "blacklist names every container, so a restart would do nothing; the defaults are in force",
            reason="InvalidRestartConfig",
            level="warning",
        )
        return DEFAULT_RESTART
    return config


def _handler(read: Reader, labels: Mapping[str, str]) -> str:
    handler = labels.get(names.LABEL_EVICTION_HANDLER, "")
    if handler not in ("", names.EVICTION_HANDLER_DEFAULT):
        read.report(
            f"metadata.labels[{names.LABEL_EVICTION_HANDLER}]",
            f"there is no eviction handler {handler!r}; nothing is evicted until it is removed",
            reason="UnknownEvictionHandler",
            level="warning",
        )
    return handler


def _check_name(read: Reader, name: str) -> None:
    if len(name) > MAX_NAME:
        read.report(
            "metadata.name",
            f"has {len(name)} characters; a label value has at most {MAX_NAME}: no pod can be made",
            reason="NameTooLong",
        )


def _template(read: Reader, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    before = len(read.problems)
    template = podtemplate.parse(read, spec)
    if template is not None and not part(template, "spec").get("containers"):
        read.report(
            "spec.template.spec.containers",
            "names no container: the API server will refuse every pod",
            reason="TemplateInvalid",
        )
    elif template is None and (len(read.problems) == before or not isinstance(spec.get("template"), dict)):
        read.report(
            "spec.template",
            "is missing: pods that exist are served, none can be made",
            reason="TemplateMissing",
        )
    return template
