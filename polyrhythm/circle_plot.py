# SPDX-License-Identifier: Apache-2.0
"""Draw the unified circles of links as SVG (CASSINI thesis, 3.2): one ring for each job, rotated by its time-
shift.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from controller.interleave.circle import demand, excess_rate, overlay
from controller.interleave.solve import Circle, Interleaving

_CELL, _COLUMNS, _MARGIN = 300, 4, 24
_RADIUS = 112.0
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#666699")
_OVER = "#b00020"


def draw(found: Interleaving) -> str:
    """Return an SVG document with one circle for each link. Angles grow counter-clockwise from the x-axis.

    The outermost ring is red where the total demand exceeds the link's capacity.
    """
    colours = {job: _COLOURS[i % len(_COLOURS)] for i, job in enumerate(found.periods)}
    columns = max(1, min(_COLUMNS, len(found.circles)))
    rows = max(1, -(-len(found.circles) // columns))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * _CELL}" height="{rows * (_CELL + 44)}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, circle in enumerate(found.circles):
        x, y = i % columns * _CELL + _CELL / 2, i // columns * (_CELL + 44) + _CELL / 2 + 20
        parts += [f'<g transform="translate({x:g} {y:g})">', *_circle(circle, found, colours), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _circle(circle: Circle, found: Interleaving, colours: dict[str, str]) -> Iterable[str]:
    link, around = circle.link, circle.perimeter_ns
    name = escape(link.name[0])
    yield f'<text y="{-_RADIUS - _MARGIN:g}" text-anchor="middle" font-weight="bold">{name}</text>'
    width = min(16.0, (_RADIUS - 30) / max(1, len(link.demands)))
    radius = _RADIUS - 14
    for job, phases in link.demands.items():
        yield f'<circle r="{radius:g}" fill="none" stroke="#ddd" stroke-width="1"/>'
        if not around:
            continue
        own = overlay([(phases, found.periods[job], found.shifts[job])], around)
        title = escape(f"{job}: {circle.rotation_deg[job]:.1f}°, {found.shifts[job] / 1e6:g} ms")
        for begin, end in _runs(own.edges.tolist(), (own.rate > 0).tolist()):
            yield _arc(begin / around, end / around, radius, width * 0.8, colours[job], title)
        radius -= width
    yield f'<circle r="{_RADIUS:g}" fill="none" stroke="#999" stroke-width="1"/>'
    if around:
        total = demand(link, found.periods, found.shifts)
        over = excess_rate(total.rate, link.rate_bps) > 0
        for begin, end in _runs(total.edges.tolist(), over.tolist()):
            yield _arc(begin / around, end / around, _RADIUS, 6, _OVER, "demand above capacity")
    words = f"score {circle.score:.3f}, {circle.perimeter_ns / 1e6:g} ms, {link.rate_bps / 1e9:g} Gbit/s"
    yield f'<text y="{_RADIUS + _MARGIN:g}" text-anchor="middle">{words}</text>'
    legend = escape(", ".join(link.demands)[:60])
    yield f'<text y="{_RADIUS + _MARGIN + 16:g}" text-anchor="middle" fill="#555">{legend}</text>'


def _runs(edges: list[int], on: list[bool]) -> Iterable[tuple[int, int]]:
    """Join neighbouring intervals that are on; yields (begin, end) of each run."""
    begin = None
    for i, lit in enumerate([*on, False]):
        if lit and begin is None:
            begin = edges[i]
        elif not lit and begin is not None:
            yield begin, edges[i]
            begin = None


def _arc(begin: float, end: float, radius: float, width: float, colour: str, title: str) -> str:
    """A piece of a ring, from `begin` to `end` as fractions of the circle (0 to 1)."""
    style = f'fill="none" stroke="{colour}" stroke-width="{width:.2f}"'
    label = f"<title>{title}</title>"
    if end - begin >= 1:
        return f'<circle r="{radius:.2f}" {style}>{label}</circle>'
    points = [
        (radius * math.cos(2 * math.pi * part), -radius * math.sin(2 * math.pi * part))
        for part in (begin, end)
    ]
    (x, y), (to_x, to_y) = points
    large = int(end - begin > 0.5)
    return (
        f'<path d="M {x:.2f} {y:.2f} A {radius:.2f} {radius:.2f} 0 {large} 0 {to_x:.2f} {to_y:.2f}" '
        f"{style}>{label}</path>"
    )
