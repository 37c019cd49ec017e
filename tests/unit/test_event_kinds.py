"""Kinds of events are classes: what a class statement registers, and what it refuses."""

from __future__ import annotations

import importlib
import types
from typing import Literal, get_origin, get_type_hints

import pytest

from rmq_actors.tracing import event as event_module
from rmq_actors.tracing.event import COLUMNS, Event, KindRefused, UnknownKind, attribute, event_of, values_of
from rmq_actors.tracing.events import KINDS, OWN_KINDS
from rmq_actors.tracing.events.store import LogAppend, PutBegin, PutEnd

PYTHON_TYPES = {"int8": int, "int16": int, "int32": int, "int64": int, "dictionary": str, "string": str}


class _Job(Event):
    """Without a kind: it lends its fields to others."""

    job_name: str = attribute("my_app.job")


class JobDone(_Job, kind="test_kinds.job_done", emitter="my_app.jobs", actor="Jobs"):
    """A job has ended; status says how."""

    status: str
    file_offset: int = attribute("offset")
    took_s: float | None = None
    was_forced: bool = False


def test_a_kind_of_ones_own_is_registered_and_no_kind_of_the_project() -> None:
    assert KINDS["test_kinds.job_done"] is JobDone
    assert "test_kinds.job_done" not in OWN_KINDS
    assert _Job not in KINDS.values()


def test_an_event_has_its_own_fields_and_none_of_the_other_columns() -> None:
    event = JobDone(job_name="clean", status="ok", file_offset=7)
    assert (event.job_name, event.status, event.file_offset, event.took_s) == ("clean", "ok", 7, None)
    assert (event.offset, event.size, event.msg_id, event.links) == (None, None, None, None)
    assert event.attrs == {"my_app.job": "clean", "offset": "7", "was_forced": "False"}
    assert LogAppend(offset=1, size=2).attrs is None


def test_an_event_can_be_made_from_the_names_of_a_trace() -> None:
    values = {"my_app.job": "clean", "status": "ok", "offset": 7}
    assert event_of("test_kinds.job_done", values) == JobDone(job_name="clean", status="ok", file_offset=7)
    with pytest.raises(UnknownKind, match=r"my_app\.job_failed"):
        event_of("my_app.job_failed", values)
    with pytest.raises(TypeError, match=r"test_kinds\.job_done has no file_offset, size"):
        event_of("test_kinds.job_done", {**values, "file_offset": 1, "size": 1})
    with pytest.raises(TypeError, match=r"[Mm]issing required argument 'status'"):
        event_of("test_kinds.job_done", {"my_app.job": "clean", "offset": 7})


def test_puts_may_be_told_as_ranges() -> None:
    assert list(PutBegin(msg_id=3, offset=0, size=1).msg_ids) == [3]
    assert list(PutEnd(msg_id=3, msg_id_last=5, offset=9, status="PUT_OK").msg_ids) == [3, 4, 5]


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(KindRefused, match=r"LogAppended: rmq_actors\.tracing\.events\.store\.LogAppend is the kind"):

        class LogAppended(Event, kind="log.append"):
            """Another one."""

    assert KINDS["log.append"] is LogAppend


@pytest.mark.parametrize("name", ["started", "My.Started", "my..started", "my.started ", "my-app.started"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(KindRefused, match="Named: a kind's name is lower case words with dots between"):

        class Named(Event, kind=name):
            """Not to be."""

    assert name not in KINDS


@pytest.mark.parametrize("field", ["seq", "node", "kind", "run_id", "attrs"])
def test_what_every_event_has_is_no_field_of_a_kind(field: str) -> None:
    with pytest.raises(KindRefused, match=f"Named: every event has {field} already"):
        types.new_class(
            "Named", (Event,), {"kind": "my_app.named"}, lambda body: body.update(__annotations__={field: "int"})
        )


def test_a_kind_is_no_base_of_another() -> None:
    with pytest.raises(KindRefused, match="Derived: a kind is no base of another"):

        class Derived(JobDone, kind="my_app.derived"):
            """Not to be."""


def test_two_fields_with_one_name_in_traces_are_refused() -> None:
    with pytest.raises(ValueError, match="Multiple fields rename to the same name"):

        class Twice(Event, kind="my_app.twice"):
            """Not to be."""

            offset: int
            file_offset: int = attribute("offset")

    assert "my_app.twice" not in KINDS


def test_a_module_can_be_loaded_again() -> None:
    """As a notebook does: the newer class is the kind then."""
    before = KINDS["log.append"]
    module = importlib.import_module("rmq_actors.tracing.events.store")
    kinds = dict(event_module._kinds)
    names = dict(vars(module))
    try:
        importlib.reload(module)
        assert KINDS["log.append"] is not before
    finally:
        event_module._kinds.update(kinds)
        vars(module).update(names)


def test_every_field_that_is_a_column_has_its_columns_type() -> None:
    columns = {column.name: column.type for column in COLUMNS}
    for kind in OWN_KINDS.values():
        hints = get_type_hints(kind)
        for field in kind.field_names.values():
            if field in columns:
                hint = str if get_origin(hints[field]) is Literal else hints[field]
                expected = PYTHON_TYPES[columns[field]]
                assert hint in (expected, expected | None), (kind.kind, field)


def test_values_are_those_of_the_recorder_and_then_the_kinds() -> None:
    assert values_of(LogAppend(offset=1, size=2)) == (-1, None, 0, "", None, "", 1, 2)
