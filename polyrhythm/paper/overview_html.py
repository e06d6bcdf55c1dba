# SPDX-License-Identifier: Apache-2.0
"""The overview of all experiments as one HTML document that needs no other file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from polyrhythm.paper.charts import draw_bars
from polyrhythm.paper.overview_rows import Figure
from polyrhythm.paper.verdicts import LEAST_EFFECT, VERDICTS

_COLOURS = dict(
    zip(VERDICTS, ("#0b6e4f", "#2a9d5c", "#b7791f", "#b83232", "#5a5a8c", "#777777"), strict=True)
)
_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100%; margin: 1em 0 }
th, td { border-bottom: 1px solid #ddd; padding: .3em .6em; text-align: left; vertical-align: top }
td.number { text-align: right; white-space: nowrap }
.verdict { font-weight: bold; white-space: nowrap }
svg { max-width: 100%; height: auto }
td { overflow-wrap: anywhere }
@media (max-width: 45em) {
  .headed tr:first-child { display: none }
  .headed td { display: block; border-bottom: none; padding: .1em .3em }
  .headed td::before { content: attr(data-head) ": "; color: #666 }
  .headed td:last-child { border-bottom: 1px solid #ddd; padding-bottom: .6em }
}
"""


def to_html(
    rows: Sequence[Figure],
    facts: Mapping[str, str],
    experiments: Sequence[Mapping[str, str]],
    charts: Mapping[str, Sequence[str]],
) -> str:
    """The document. `facts` are versions, seeds and the like. `experiments` have name, size,
    command and outcome. `charts` are the SVG documents of each experiment."""
    counts = Counter(row.verdict for row in rows)
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>The figures of the papers</title>",
        f"<style>{_STYLE}</style><h1>The figures of the papers, and ours</h1>",
        "<p>surpassed: better than the paper's by more than the tolerance and the error of ours; reproduced: "
        "within the tolerance, or better by less than its error; order only: the paper's effect exceeds the "
        "tolerance, and ours is on the same side of the baseline, exceeds its error and is at least "
        f"{100 * LEAST_EFFECT:g} % of the paper's; calibrated: the workload was chosen to give this figure, "
        "order or sign, so it is no result; not reproduced: none of these; not run: there is no figure of "
        "ours, the row says why.</p>",
        _table(("", "rows"), [(_verdict(name), str(counts[name])) for name in VERDICTS], escaped=False),
        "<h2>Run</h2>",
        _table(("", ""), list(facts.items())),
        _table(
            ("experiment", "size", "command", "time"),
            [(e["name"], e["size"], e["command"], e["outcome"]) for e in experiments],
        ),
    ]
    for source in dict.fromkeys(row.source for row in rows):
        own = [row for row in rows if row.source == source]
        parts.append(f"<h2>{escape(source)}</h2>{_figures(own)}{_beside(source, own)}")
    for name, drawn in charts.items():
        parts.append(f"<h2>Figures of paper {escape(name)}</h2>{''.join(drawn)}")
    return "\n".join(parts) + "\n</html>\n"


def _figures(rows: Sequence[Figure]) -> str:
    cells = [
        (
            escape(row.what),
            escape(_number(row.paper, row.paper_text)),
            escape(_number(row.ours, row.ours_text)),
            _verdict(row.verdict),
            escape(row.why),
        )
        for row in rows
    ]
    return _table(("figure", "paper", "ours", "verdict", "why"), cells, escaped=False)


def _beside(source: str, rows: Sequence[Figure]) -> str:
    """Bars of the paper's numbers and ours, if there are some and none is negative."""
    pairs = [(r.paper, r.ours) for r in rows if r.paper is not None and r.ours is not None]
    if len(pairs) < 2 or any(min(pair) < 0 for pair in pairs):
        return ""
    bars = {"paper": [p for p, _ in pairs], "ours": [o for _, o in pairs]}
    return draw_bars(
        f"{source}: rows in the order of the table", "", [str(i + 1) for i in range(len(pairs))], bars
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, escaped: bool = True) -> str:
    form = escape if escaped else str
    headed = all(heads)
    kind = ' class="headed"' if headed else ""
    head = "".join(f"<th>{escape(h)}</th>" for h in heads) if any(heads) else ""
    # A narrow window shows each cell on a line of its own, after the name of its column.
    opened = [f'<td data-head="{escape(h)}">' if headed else "<td>" for h in heads]
    body = "".join(
        "<tr>" + "".join(f"{td}{form(cell)}</td>" for td, cell in zip(opened, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table{kind}><tr>{head}</tr>{body}</table>"


def _verdict(name: str) -> str:
    return f'<span class="verdict" style="color:{_COLOURS[name]}">{name}</span>'


def _number(value: float | None, text: str) -> str:
    return text or ("-" if value is None else f"{value:.4g}")
