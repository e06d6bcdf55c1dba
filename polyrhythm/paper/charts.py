# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG: grouped bars and cumulative distributions (CDF). The same values give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

# Pixels, chosen: the margins, the width of the legend, and the size of each kind of chart.
_LEFT, _BOTTOM, _TOP, _KEY = 56, 44, 30, 150
_BARS_HEIGHT, _BAR_WIDTH = 300, 14
_CDF_WIDTH, _CDF_HEIGHT = 520, 320
# The colours of Okabe and Ito, which colour-blind readers can tell apart, without yellow, and a grey-blue.
# The first bar of a group is grey.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666699")
_BAR_COLOURS = ("#999999", *_COLOURS)
_AXIS_STEPS = 5


def draw_bars(title: str, axis: str, groups: Sequence[str], bars: Mapping[str, Sequence[float]]) -> str:
    """An SVG document with one group of bars for each name in `groups`.

    `bars` maps the name of a series to its values, one (at least 0) for each group. `axis` is the label of
    the vertical axis.
    """
    most = max([v for values in bars.values() for v in values], default=1.0) or 1.0
    step = _BAR_WIDTH * (len(bars) + 1)
    width, height = step * len(groups), _BARS_HEIGHT - _TOP - _BOTTOM
    floor = _TOP + height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + width + _KEY}" height="{_BARS_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<text x="14" y="{_TOP + height / 2:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {_TOP + height / 2:.1f})">{escape(axis)}</text>',
    ]
    for i in range(_AXIS_STEPS + 1):
        y = floor - height * i / _AXIS_STEPS
        parts += [
            f'<path d="M{_LEFT} {y:.1f}H{_LEFT + width}" stroke="#dddddd"/>',
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * i / _AXIS_STEPS:.3g}</text>',
        ]
    for g, group in enumerate(groups):
        x = _LEFT + step * g + _BAR_WIDTH / 2
        for i, values in enumerate(bars.values()):
            tall = height * values[g] / most
            parts.append(
                f'<rect x="{x + _BAR_WIDTH * i:.1f}" y="{floor - tall:.1f}" width="{_BAR_WIDTH - 2}" '
                f'height="{tall:.1f}" fill="{_BAR_COLOURS[i % len(_BAR_COLOURS)]}"/>'
            )
        middle = x + _BAR_WIDTH * len(bars) / 2
        parts.append(f'<text x="{middle:.1f}" y="{floor + 16}" text-anchor="middle">{escape(group)}</text>')
    for i, name in enumerate(bars):
        y, x = _TOP + 18 * i, _LEFT + width + 12
        parts += [
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_BAR_COLOURS[i % len(_BAR_COLOURS)]}"/>',
            f'<text x="{x + 18}" y="{y + 10}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def draw_cdf(title: str, axis: str, curves: Mapping[str, Sequence[float]]) -> str:
    """An SVG document with the empirical distribution of each list of values as a step curve.

    No list may be empty, and no value below 0. `axis` is the label of the horizontal axis.
    """
    most = max(max(values) for values in curves.values()) or 1.0
    width, height = _CDF_WIDTH - _LEFT - _KEY, _CDF_HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> float:
        return _LEFT + width * value / most

    def y(part: float) -> float:
        return _TOP + height * (1 - part)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_CDF_WIDTH}" height="{_CDF_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for i in range(_AXIS_STEPS + 1):
        at, part = most * i / _AXIS_STEPS, i / _AXIS_STEPS
        parts += [
            f'<path d="M{x(at):.1f} {y(0):.1f}V{y(1):.1f}M{x(0):.1f} {y(part):.1f}H{x(most):.1f}" '
            'stroke="#dddddd"/>',
            f'<text x="{x(at):.1f}" y="{y(0) + 16:.1f}" text-anchor="middle">{at:.3g}</text>',
            f'<text x="{_LEFT - 6}" y="{y(part) + 4:.1f}" text-anchor="end">{part:.1f}</text>',
        ]
    parts.append(
        f'<text x="{x(most / 2):.1f}" y="{_CDF_HEIGHT - 8}" text-anchor="middle">{escape(axis)}</text>'
    )
    key = _CDF_WIDTH - _KEY
    for i, (name, values) in enumerate(curves.items()):
        colour, ordered = _COLOURS[i % len(_COLOURS)], sorted(values)
        steps = "".join(f"H{x(v):.1f}V{y((n + 1) / len(ordered)):.1f}" for n, v in enumerate(ordered))
        parts += [
            f'<path d="M{x(0):.1f} {y(0):.1f}{steps}H{x(most):.1f}" fill="none" stroke="{colour}" '
            'stroke-width="1.5"/>',
            f'<path d="M{key + 12} {_TOP + 10 + 18 * i}h20" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{key + 38}" y="{_TOP + 14 + 18 * i}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
