"""A report as one HTML file: no script, nothing from a network, readable on screens in light and dark, printed on A4."""

from __future__ import annotations

from html import escape

from audit.report.model import Report
from audit.report.sections import Block, Code, Document, Facts, Items, Section, Table, Text, document, shown

__all__ = ["as_html", "page_of"]


def as_html(report: Report) -> str:
    return page_of(document(report))


def page_of(page: Document) -> str:
    sections = "".join(_section(number, one) for number, one in enumerate(page.sections, 1))
    contents = "".join(
        f'<li><a href="#s{number}">{_text(one.title)}</a></li>' for number, one in enumerate(page.sections, 1)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # Nothing may be loaded or run, whatever a name in here says
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(page.title)}: {_text(page.subtitle)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{_head(page)}\n"
        f'<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>\n'
        f"{sections}</main>\n</body>\n</html>\n"
    )


def _head(page: Document) -> str:
    return (
        f"<header><p class=kind>{_text(page.title)}</p><h1>{_text(page.subtitle)}</h1></header>\n"
        f'<div class="verdict {page.verdict.tone}" role="status"><p class=words>{_SIGNS[page.verdict.tone]} '
        f"{_text(page.verdict.words)}</p><p>{_text(page.verdict.details)}</p></div>\n{_block(page.facts)}"
    )


def _section(number: int, section: Section) -> str:
    return (
        f'<section id="s{number}">\n<h2><span class=number>{number}</span> {_text(section.title)}</h2>\n'
        + "\n".join(map(_block, section.blocks))
        + "\n</section>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return f"<p>{_text(text)}</p>"
        case Items(items):
            return "<ul>" + "".join(f"<li>{_text(one)}</li>" for one in items) + "</ul>"
        case Facts(facts):
            return (
                "<dl>"
                + "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(fact)}</dd></div>" for name, fact in facts)
                + "</dl>"
            )
        case Code(lines):
            return "<pre>" + "\n".join(map(_text, lines)) + "</pre>"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    kinds = [' class="n"' if column in table.numbers else "" for column in table.columns]
    head = "".join(
        f'<th scope="col"{kind}>{_text(column)}</th>' for column, kind in zip(table.columns, kinds, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{_text(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>\n"
        for row in table.rows
    )
    kind = ' class="total"' if table.total else ""
    return f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(shown(text))


_SIGNS = {"good": "✓", "open": "!", "bad": "✗"}
_STYLE = """
:root { --ink: #1c2127; --soft: #5b6570; --line: #d5dae0; --ground: #fff; --panel: #f5f7f9; --link: #0b5394;
  --good: #14693a; --good-ground: #e9f5ee; --open: #7a5200; --open-ground: #fdf4e0; --bad: #a31621; --bad-ground: #fdecee; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --soft: #9fa9b4; --line: #3a424b; --ground: #15181c; --panel: #1e2329; --link: #7fb7ec;
    --good: #7bd3a0; --good-ground: #14301f; --open: #efc266; --open-ground: #33280f;
    --bad: #ff9aa2; --bad-ground: #3a161a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
header { margin-bottom: 1.25rem; }
.kind { margin: 0; color: var(--soft); text-transform: uppercase; letter-spacing: .08em; font-size: .8rem; }
h1 { margin: .15rem 0 0; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.4rem 0 .6rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); font-size: 1.15rem; }
.number { color: var(--soft); font-weight: 400; margin-right: .35rem; }
p { margin: .6rem 0; } a { color: var(--link); } ul { margin: .4rem 0; padding-left: 1.3rem; } li { margin: .2rem 0; }
.verdict { border: 1px solid; border-left-width: 6px; border-radius: 4px; padding: .7rem 1rem; margin: 1.25rem 0; }
.verdict p { margin: 0; color: var(--ink); } .verdict .words { font-size: 1.2rem; font-weight: 600; margin-bottom: .2rem; }
.good { border-color: var(--good); background: var(--good-ground); } .good .words { color: var(--good); }
.open { border-color: var(--open); background: var(--open-ground); } .open .words { color: var(--open); }
.bad { border-color: var(--bad); background: var(--bad-ground); } .bad .words { color: var(--bad); }
dl { margin: .8rem 0; } dl div { display: grid; grid-template-columns: 15rem 1fr; gap: 1rem; padding: .28rem 0;
  border-bottom: 1px solid var(--line); } dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
nav h2 { margin-top: 2rem; } nav ol { columns: 2; margin: .4rem 0; padding-left: 1.5rem; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; } th { color: var(--soft); font-weight: 600; border-bottom-color: var(--soft); }
th:last-child, td:last-child { padding-right: 0; } th { overflow-wrap: normal; }
.n { text-align: right; } td.n { white-space: nowrap; }
pre { margin: .6rem 0; padding: .7rem .9rem; background: var(--panel); border: 1px solid var(--line); border-radius: 4px;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .8rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
@media (max-width: 40rem) { dl div { grid-template-columns: 1fr; gap: 0; } nav ol { columns: 1; } }
.total tr:last-child td { font-weight: 600; }
@page { size: A4; margin: 18mm 16mm; @bottom-right { content: counter(page) " / " counter(pages); font: 8pt sans-serif; } }
@media print {
  :root { --ink: #000; --soft: #444; --line: #bbb; --ground: #fff; --panel: #f6f6f6; --link: #000;
    --good: #14693a; --good-ground: #fff; --open: #7a5200; --open-ground: #fff; --bad: #a31621; --bad-ground: #fff; }
  body { font-size: 9.5pt; } main { max-width: none; padding: 0; } nav a { text-decoration: none; }
  h2 { margin-top: 1.6rem; } h2, p:has(+ ul), p:has(+ pre), p:has(+ .wide) { break-after: avoid; }
  tr, dl div, pre, .verdict { break-inside: avoid; }
  thead { display: table-header-group; } .wide { overflow: visible; } table { font-size: 8.5pt; } pre { font-size: 7.5pt; } }
"""
