# SPDX-License-Identifier: Apache-2.0
"""Grouped bars as SVG: the same bytes for the same values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_LEFT, _BOTTOM, _TOP, _KEY, _HEIGHT, _BAR = 56, 44, 30, 150, 300, 14
_COLOURS = ("#999999", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666699")
_STEPS = 5


def draw_bars(title: str, axis: str, groups: Sequence[str], bars: Mapping[str, Sequence[float]]) -> str:
    """An SVG document with a group of bars per name in `groups`; `bars` holds a value at least 0 for each
    group by series, `axis` is what they are."""
    most = max([v for values in bars.values() for v in values], default=1.0) or 1.0
    step = _BAR * (len(bars) + 1)
    width, height = step * len(groups), _HEIGHT - _TOP - _BOTTOM
    floor = _TOP + height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + width + _KEY}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="14" y="{_TOP + height / 2:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {_TOP + height / 2:.1f})">{escape(axis)}</text>',
    ]
    for i in range(_STEPS + 1):
        y = floor - height * i / _STEPS
        parts += [
            f'<path d="M{_LEFT} {y:.1f}H{_LEFT + width}" stroke="#dddddd"/>',
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * i / _STEPS:.3g}</text>',
        ]
    for g, group in enumerate(groups):
        x = _LEFT + step * g + _BAR / 2
        for i, values in enumerate(bars.values()):
            tall = height * values[g] / most
            parts.append(
                f'<rect x="{x + _BAR * i:.1f}" y="{floor - tall:.1f}" width="{_BAR - 2}" height="{tall:.1f}" '
                f'fill="{_COLOURS[i % len(_COLOURS)]}"/>'
            )
        middle = x + _BAR * len(bars) / 2
        parts.append(f'<text x="{middle:.1f}" y="{floor + 16}" text-anchor="middle">{escape(group)}</text>')
    for i, name in enumerate(bars):
        y, x = _TOP + 18 * i, _LEFT + width + 12
        parts += [
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_COLOURS[i % len(_COLOURS)]}"/>',
            f'<text x="{x + 18}" y="{y + 10}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
