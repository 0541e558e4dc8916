"""Files of requests: all faults at once, by line and field, and no value in any message."""

from __future__ import annotations

import datetime as dt
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from audit.erasure.model import Request, Subject
from audit.erasure.requests.read import month_after, read_requests
from cdf.errors import ConfigError

TODAY = dt.date(2026, 1, 31)
CUSTOMER = {"customer": Subject("customer", {"email": "email", "customer_id": "exact"})}
TWO = {**CUSTOMER, "employee": Subject("employee", {"id": "exact"})}
CANARY = "anna.canary@example.org"


def read(folder: Path, text: str | bytes, name: str = "r.csv", **more: Any) -> tuple[Request, ...]:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_requests(file, **{"subjects": CUSTOMER, "today": TODAY, **more})


def refused(folder: Path, text: str | bytes, name: str = "r.csv", **more: Any) -> list[str]:
    """Each fault as `place: field: message`, where nothing shows a value."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text, name, **more)
    error = caught.value
    told = "".join(traceback.format_exception(error)) + json.dumps(error.to_dict())
    told = told.replace(str(folder), "")
    assert not any(word in told.lower() for word in ("canary", "anna", "4711")), told
    causes = [error.__cause__, error.__context__]
    assert not any(isinstance(cause, ValueError) for cause in causes)  # they keep the file's text
    found = error.fields.get("problems")
    if found is None:
        return [error.message.removeprefix(str(folder / name)).strip(": ")]
    return [": ".join(part for part in (one["place"], one["field"], one["message"]) if part) for one in found]


def test_a_csv_with_all_and_with_the_least(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    requests = read(
        tmp_path,
        b"\xef\xbb\xbfid,email,customer_id,subject,received,due,legal_basis,requester,approver\r\n"
        b'R-1, Anna.Canary@example.org ,"47,11",customer,2026-01-02,2026-01-20,"Art. 17(1)(b), as asked",desk,boss\r\n'
        b"\r\n"
        b"R-2,,4711,,,,,desk,\r\n",
    )
    assert requests == (
        Request(
            "R-1",
            "customer",
            {"email": "Anna.Canary@example.org", "customer_id": "47,11"},
            dt.date(2026, 1, 2),
            dt.date(2026, 1, 20),
            "Art. 17(1)(b), as asked",
            "desk",
            "boss",
        ),
        Request("R-2", "customer", {"customer_id": "4711"}, TODAY, dt.date(2026, 2, 28), "GDPR Art. 17", "desk"),
    )
    assert "4711" not in repr(requests)
    assert not caplog.records


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("name", ["r.json", "requests"])
def test_json(tmp_path: Path, wrap: bool, name: str) -> None:
    entries = [
        {"id": "R-1", "email": CANARY, "customer_id": 4711, "requester": "desk", "approver": None},
        {"id": "R-2", "identifiers": {"customer_id": " as it is "}, "requester": "desk", "due": "2026-03-01"},
    ]
    first, second = read(tmp_path, json.dumps({"requests": entries} if wrap else entries), name)
    assert first.identifiers == {"email": CANARY, "customer_id": "4711"}
    assert second.identifiers == {"customer_id": " as it is "}
    assert second.due == dt.date(2026, 3, 1)


def test_an_identifier_that_is_called_like_a_field_has_a_prefix(tmp_path: Path) -> None:
    (request,) = read(tmp_path, "id,subject,identifiers.id,requester\nR-1,employee,77,desk\n", subjects=TWO)
    assert request.identifiers == {"id": "77"}
    (request,) = read(
        tmp_path,
        '[{"id": "R-1", "subject": "employee", "identifiers": {"id": 77}, "requester": "d"}]',
        "r.json",
        subjects=TWO,
    )
    assert request.identifiers == {"id": "77"}


@pytest.mark.parametrize(
    ("day", "due"),
    [
        ("2026-01-31", "2026-02-28"),
        ("2028-01-30", "2028-02-29"),
        ("2026-12-31", "2027-01-31"),
        ("2026-02-28", "2026-03-28"),
    ],
)
def test_a_month_is_a_calendar_month(day: str, due: str) -> None:
    assert month_after(dt.date.fromisoformat(day)) == dt.date.fromisoformat(due)


def test_one_id_twice(tmp_path: Path) -> None:
    text = f"id,email,requester\nR-1,{CANARY},desk\nR-2,b@x.de,desk\nR-1,{CANARY},desk\n"
    assert [one.id for one in read(tmp_path, text)] == ["R-1", "R-2"]
    assert refused(tmp_path, text + "R-2,c@x.de,desk\n") == [
        "line 5: id: occurs twice with other content; the first is in line 3"
    ]
    # the same person under two ids is no fault
    assert len(read(tmp_path, f"id,email,requester\nR-1,{CANARY},desk\nR-2,{CANARY},desk\n")) == 2


def test_all_faults_of_a_csv_are_told_at_once(tmp_path: Path) -> None:
    assert refused(
        tmp_path,
        f"""\
id,email,customer_id,subject,received,due,requester,approver
,{CANARY},,,,,desk,
a b,{CANARY},,,,,desk,
R-3,,,,,,,
R-4,{CANARY},,custmer,2026-02-30,20260201,desk,
R-5,{CANARY},,,2026-01-10,2026-01-09,desk,
R-6,{CANARY},4711
R-7,"{CANARY}
",,,,,"de
sk",
R-8,{CANARY},,,,,{CANARY.upper()},for {CANARY}
anna.canary-9,{CANARY},,,,,desk,
R-4711,,4711,,,,desk,
R-0007,,7,,,,desk 7,
""",
    ) == [
        "line 2: id: is missing",
        "line 3: id: may have letters, digits, dots, dashes and underscores, up to 64 of them",
        "line 4: identifies no person: give email or customer_id",
        "line 4: requester: is missing: who has received the request",
        "line 5: subject: is not configured; configured subjects: customer",
        "line 5: received: must be a date such as 2026-01-31",
        "line 5: due: must be a date such as 2026-01-31",
        "line 6: due: is before `received`",
        "line 7: has fewer fields than the header (3, not 8)",
        "line 8: requester: holds a control character, such as a line break",
        "line 11: requester: contains an identifier of the request, and this field is shown to others",
        "line 11: approver: contains an identifier of the request, and this field is shown to others",
        "line 12: id: contains an identifier of the request, and this field is shown to others",
        "line 13: id: contains an identifier of the request, and this field is shown to others",
        "line 14: requester: contains an identifier of the request, and this field is shown to others",
    ]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["is empty"]),
        (b"\xef\xbb\xbf \n", ["is empty"]),
        ("id,email,requester\n\n", ["holds no request"]),
        (b"id,email,requester\nR-1,anna.can\xe4ry,desk\n", ["line 2 is not UTF-8 text"]),
        ("id,email\n".encode("utf-16"), ["line 1 is not UTF-8 text"]),
        (f"R-1,{CANARY},desk\n", ["line 1: is not a header with a column `id`"]),
        ("id;email;requester\n", ["line 1: is separated by semicolons or tabs; save the file with commas"]),
        (
            f"id,emial,email,email,,{CANARY}\nR-1,{CANARY},,,,\n",
            [
                "line 1: emial: is unknown; did you mean `email`?",
                "line 1: email: is the name of two columns",
                "line 1: column 5 has no name",
                "line 1: column 6 has an unknown name; known names: id, subject, received, due, legal_basis, "
                "requester, approver, email, customer_id, identifiers.email, identifiers.customer_id",
            ],
        ),
        (
            f'id,email,requester\nR-1,{CANARY},\nR-2,"{CANARY},desk\nR-3,{CANARY},desk\n',
            [
                "line 2: requester: is missing: who has received the request",
                "line 3: is not valid CSV: a quote or a field does not end",
            ],
        ),
        (
            f'id,email,requester\nR-2,"{CANARY}"x,desk\n',
            ["line 2: is not valid CSV: a quote or a field does not end"],
        ),
        (
            f"id,email,identifiers.email,requester\nR-1,{CANARY},{CANARY},d\n",
            ["line 2: identifiers.email: occurs twice"],
        ),
    ],
)
def test_malformed_csv(tmp_path: Path, text: str | bytes, faults: list[str]) -> None:
    assert refused(tmp_path, text) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (f'[{{"email": "{CANARY}"\n "id": 1}}]', ["line 2 is not JSON"]),
        ("[" * 100_000, ["line 1 is not JSON"]),
        ('"anna"', ["must be a list of requests"]),
        ('{"id": "R-1"}', ["must be a list of requests, or an object with only `requests` in it"]),
        ('{"requests": {"id": "R-1"}}', ["must be a list of requests"]),
        ("[]", ["holds no request"]),
        (
            f'["{CANARY}", {{"id": "R-2", "email": "b@x.de", "email": "{CANARY}", "requester": "d"}},'
            f' {{"id": "R-3", "email": ["{CANARY}"], "customer_id": 4711.0, "requester": "d", "identifiers": "{CANARY}"}},'
            f' {{"id": "R-4", "mail": "{CANARY}", "{CANARY}": 1, "customer_id": "x", "requester": true}}]',
            [
                "entry 1: must be an object",
                "entry 2: email: occurs twice",
                "entry 3: email: must be text or a whole number",
                "entry 3: customer_id: must be text or a whole number",
                "entry 3: identifiers: must be an object, identifier and value",
                "entry 3: identifies no person: give email or customer_id",
                "entry 4: mail: is unknown; did you mean `email`?",
                "entry 4: a field has an unknown name; known names: id, subject, received, due, legal_basis, "
                "requester, approver, email, customer_id, identifiers.email, identifiers.customer_id",
                "entry 4: requester: must be text or a whole number",
                "entry 4: requester: is missing: who has received the request",
            ],
        ),
    ],
)
def test_malformed_json(tmp_path: Path, text: str, faults: list[str]) -> None:
    assert refused(tmp_path, text, "r.json") == faults


def test_several_subjects(tmp_path: Path) -> None:
    text = (
        "id,subject,email,identifiers.id,requester\nR-1,,a@x.de,,d\nR-2,employee,a@x.de,,d\nR-3,customer,a@x.de,5,d\n"
    )
    assert refused(tmp_path, text, subjects=TWO) == [
        "line 2: subject: is missing; configured subjects: customer, employee",
        "line 3: email: is not an identifier of the subject `employee`, which has id",
        "line 4: identifiers.id: is not an identifier of the subject `customer`, which has email, customer_id",
    ]


def test_many_faults_are_cut_in_the_message_and_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "id,email,requester\n" + "\n".join(f"R-{at},," for at in range(100)))
    assert caught.value.message.endswith("... and 150 more")
    assert len(caught.value.fields["problems"]) == 200
    with pytest.raises(ConfigError, match=r"nowhere\.csv cannot be read: No such file"):
        read_requests(tmp_path / "nowhere.csv", CUSTOMER, today=TODAY)


def test_short_identifiers_are_looked_for_as_words_and_legal_bases_may_have_numbers(tmp_path: Path) -> None:
    (request,) = read(tmp_path, "id,customer_id,legal_basis,requester\nR-1017,17,GDPR Art. 17,desk\n")
    assert request.id == "R-1017"
    assert refused(tmp_path, "id,customer_id,requester\nR-17,17,desk\n") == [
        "line 2: id: contains an identifier of the request, and this field is shown to others"
    ]
