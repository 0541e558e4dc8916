"""A report on paper: whatever names, users and tickets say, it is text in it, and the pages need nothing but themselves."""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
import json
import re
from html.parser import HTMLParser

import pytest

from audit.anchors.base import AnchorFailure
from audit.errors import AnchorUnavailable
from audit.report import Report, as_html, as_markdown
from audit.report.html import render
from audit.report.model import (
    Actor,
    Anchored,
    Changes,
    Commit,
    ErasureStep,
    Gap,
    Listed,
    Operation,
    Period,
    Removal,
    SchemaChange,
    Scope,
)
from audit.report.sections import build_document
from audit.verification import Finding, TrailVerification

AT = dt.datetime(2026, 11, 3, 9, 30, tzinfo=dt.UTC)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></pre></td><iframe src='//evil.example'>",
    "\x1b[31mred\x00\r\nnext \u202eright to left \u2028line",
    "| cell | `code` [link](http://evil.example) **bold** <b> & &amp; # ~~~",
    "'; rm -rf / #",
)


def made(text: str = "alice", **changes: object) -> Report:
    """A report with that text wherever somebody else has written it."""
    verification = TrailVerification(
        trail=text,
        origin="deltarelay.audit/1",
        level="full",
        intact=True,
        first_version=0,
        last_version=412,
        last_committed_at=AT,
        sealed_version=412,
        sealed_committed_at=AT,
        records=413,
        events=1_284_031,
        values=1_284_031,
        removed=0,
        unrecorded=0,
        checkpoints=26,
        seconds=31.2,
    )
    commit = Commit(7, AT, text, text, text, text, "not known", Changes(1, 0, 0, 12))
    report = Report(
        form=1,
        made_at=AT,
        made_by="deltarelay 1",
        pipeline=text,
        source=text,
        table_id=text,
        trail=text,
        origin="deltarelay.audit/1",
        keys=("trail.example.org/audit+0badcafe+AQ==",),
        shows_values=False,
        scope=Scope(0, 412, AT, AT, 413, None, 0, 0),
        verification=verification,
        changes=Changes(413, 1_000_000, 140_000, 4_031),
        periods=(
            Period("2026-10", Changes(200, 600_000, 40_000, 31)),
            Period("2026-11", Changes(213, 400_000, 1, 4_000)),
        ),
        operations=(Operation(text, Changes(413, 1_000_000, 140_000, 4_031)),),
        actors=(Actor(text, AT, AT, Changes(413, 1_000_000, 140_000, 4_031)), Actor(None, None, None, Changes())),
        hiding=Listed(2, (commit, commit)),
        deletes_without_ticket=Listed(300, (commit,)),
        schema={text: "string"},
        schema_changes=(SchemaChange(9, AT, "type", text, "double", "decimal(12,2)"),),
        removals=(Removal(20, AT, 4, 2, {"ticket": text}),),
        erasures=(ErasureStep(21, AT, text, "certified", 3),),
        gaps=(Gap("missing", 4, 6),),
        anchors=(
            Anchored(text, True, 26, 0, 413, "cm9vdA==", 412, AT),
            Anchored("s3://anchors/trail", False, 0, 0, None, None, None, None),
        ),
        note="deltarelay.audit/1\n413\ncm9vdA==\n\n\u2014 trail.example.org/audit c2lnbmF0dXJl\n",
    )
    return dataclasses.replace(report, **changes)  # type: ignore[arg-type]


class Read(HTMLParser):
    """The elements with their attributes, and the texts, as a browser has them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.texts = list[str](), list[tuple[str, str | None]](), list[str]()
        self.open = list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_have_written_is_text_in_html(text: str) -> None:
    plain, page = Read(as_html(made())), Read(as_html(made(text)))
    assert page.tags == plain.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]
    assert page.open == []
    shown = "".join(page.texts)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\u2066-\u2069]", shown)
    spelled = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
    assert shown.count(spelled) >= 15


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_have_written_is_text_in_markdown(text: str) -> None:
    plain, page = as_markdown(made()).split("\n"), as_markdown(made(text)).split("\n")
    assert len(page) == len(plain)
    for mine, theirs in zip(plain, page, strict=True):
        assert theirs.isprintable()
        if theirs.startswith("    "):
            assert mine.startswith("    ")  # a block of code, which no line of it can end
            continue
        bare = re.sub(r"\\.", "", theirs)  # what is escaped is no markup
        assert bare.count("|") == re.sub(r"\\.", "", mine).count("|")
        assert not re.search(r"[<>`\[\]]", bare)


@pytest.mark.parametrize(
    "text", ["https://evil.example/a", "WWW.evil.example", "@somebody", "a@evil.example", "see #7"]
)
def test_nothing_that_others_have_written_is_active_in_markdown(text: str) -> None:
    rendered = html.unescape(re.sub(r"\\(.)", r"\1", as_markdown(made(text))))
    lines = [line for line in rendered.split("\n") if not line.startswith(("    ", "#"))]
    assert any(text in line.replace("\u2060", "") for line in lines)
    assert not re.search(r"://|www\.|@[\w.]|#\d", "\n".join(lines), re.IGNORECASE)


def test_a_page_needs_nothing_but_itself() -> None:
    page = as_html(made())
    read = Read(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(read.tags)
    assert all(
        value is not None and value.startswith("#") for name, value in read.attributes if name in ("href", "src")
    )
    assert not re.search(r"url\(|@import|https?://", page)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in read.attributes


def test_html_and_markdown_say_the_same() -> None:
    words = "".join(Read(as_html(made())).texts)
    for section in build_document(made()).sections:
        assert f"## {section.title}" in as_markdown(made())
        assert section.title in words
    for figure in ("1,284,031", "600,000", "decimal(12,2)", "413", "not reached", "first 1 of 300"):
        assert figure in words
        assert figure in as_markdown(made())


def test_json_has_the_same_facts() -> None:
    found = json.loads(json.dumps(made(HOSTILE[0]).to_dict()))
    assert (found["form"], found["shows_values"], found["source"]) == (1, False, HOSTILE[0])
    assert found["verification"]["findings"] == []
    assert found["hiding"]["commits"][0]["changes"]["deletes"] == 12
    assert found["made_at"] == "2026-11-03T09:30:00Z"


def test_the_verdict_comes_first() -> None:
    intact = made().verification
    for changes, tone, words in (
        ({}, "good", "Intact and signed"),
        ({"sealed_version": 400}, "open", "Intact, and signed through version 400"),
        (
            {"unreachable": (AnchorFailure("s3://anchors/trail", AnchorUnavailable("not there")),)},
            "open",
            "Intact, and signed through version 412",
        ),
        ({"sealed_version": None}, "open", "Intact, and not signed"),
        ({"intact": False, "findings": (Finding("altered", "payload", 7, 2, 2, "…"),)}, "bad", "Not intact: 1 finding"),
        ({"last_version": None, "first_version": None}, "open", "The trail is empty"),
    ):
        report = made(verification=dataclasses.replace(intact, **changes))
        verdict = build_document(report).verdict
        assert (verdict.tone, verdict.words) == (tone, words)
        words_of = "".join(Read(as_html(report)).texts)
        assert words_of.index(words) < words_of.index("Contents")


def test_findings_are_listed_with_their_place() -> None:
    finding = Finding("altered", "payload", 1234, 2, 5, "the values of 4 events are not what was hashed")
    report = made(verification=dataclasses.replace(made().verification, intact=False, findings=(finding,)))
    row = next(line for line in as_markdown(report).split("\n") if "not what was hashed" in line)
    assert row == "| altered | payload | 1234 | 2 to 5 | the values of 4 events are not what was hashed |"


def test_a_query_result_is_escaped() -> None:
    page = render("query_result.html", columns=["row.<b>"], rows=[[HOSTILE[0]], [None], ['"&']])
    assert Read(page).tags == Read(render("query_result.html", columns=["row.b"], rows=[["a"], [None], ["b"]])).tags
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td></tr>\n<tr><td></td></tr>\n<tr><td>&#34;&amp;</td>" in page
