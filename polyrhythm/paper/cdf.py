# SPDX-License-Identifier: Apache-2.0
"""Cumulative distributions as SVG: the same bytes for the same values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _KEY = 520, 320, 56, 44, 30, 150
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666699")
_STEPS = 5


def draw_cdf(title: str, axis: str, curves: Mapping[str, Sequence[float]]) -> str:
    """An SVG document with a step curve for each list of values at least 0 (none of them empty); `axis`
    is what they are."""
    most = max(max(values) for values in curves.values()) or 1.0
    width, height = _WIDTH - _LEFT - _KEY, _HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> float:
        return _LEFT + width * value / most

    def y(part: float) -> float:
        return _TOP + height * (1 - part)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for i in range(_STEPS + 1):
        at, part = most * i / _STEPS, i / _STEPS
        parts += [
            f'<path d="M{x(at):.1f} {y(0):.1f}V{y(1):.1f}M{x(0):.1f} {y(part):.1f}H{x(most):.1f}" '
            'stroke="#dddddd"/>',
            f'<text x="{x(at):.1f}" y="{y(0) + 16:.1f}" text-anchor="middle">{at:.3g}</text>',
            f'<text x="{_LEFT - 6}" y="{y(part) + 4:.1f}" text-anchor="end">{part:.1f}</text>',
        ]
    parts.append(f'<text x="{x(most / 2):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(axis)}</text>')
    for i, (name, values) in enumerate(curves.items()):
        colour, ordered = _COLOURS[i % len(_COLOURS)], sorted(values)
        steps = "".join(f"H{x(v):.1f}V{y((n + 1) / len(ordered)):.1f}" for n, v in enumerate(ordered))
        parts += [
            f'<path d="M{x(0):.1f} {y(0):.1f}{steps}H{x(most):.1f}" fill="none" stroke="{colour}" '
            'stroke-width="1.5"/>',
            f'<path d="M{_WIDTH - _KEY + 12} {_TOP + 10 + 18 * i}h20" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{_WIDTH - _KEY + 38}" y="{_TOP + 14 + 18 * i}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
