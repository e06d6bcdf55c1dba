# SPDX-License-Identifier: Apache-2.0
"""The iteration length of a job from its byte counters, without its cooperation (CRUX, section 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_STRENGTH = 0.3
"""A series is periodic if at least this part of its variance repeats. Chosen."""
_CHANCE = 4.0
"""The strength must exceed this many standard deviations of pure noise, each 1 / sqrt(samples). Chosen."""
_NEAR_BEST = 0.8
"""The period is the shortest lag whose peak has this part of the highest. Chosen: longer lags are
multiples."""
_STILL_THERE = 0.6
"""A multiple of the period refines it while its peak has this part of the highest. Chosen."""
_RISE = 0.4
"""A rise of this part of the strength within five samples means that the period is too short. Chosen."""
_FEWEST_PERIODS = 3
"""Periods that a series must hold. Chosen: a likeness of two could be chance."""


def iteration_length(sent: Floats, interval_s: float) -> tuple[float, float] | None:
    """The period in s of a series of byte counts, with its strength; None if it has no period.

    `sent` are the bytes in each interval of `interval_s` seconds, shape (samples,). The series must have at
    least three periods, with at least five samples each. The strength is the part of the variance that
    repeats, at most 1. The autocorrelation comes from a Fourier transform (Wiener and Khinchin). The period
    is the shortest lag with a peak nearly as high as the highest, so that it is not a multiple of the period.
    Peaks at multiples of that lag then refine it, because each divides the error by its multiple. Raises
    ValueError for an interval that is not positive.
    """
    if not 0 < interval_s < np.inf:
        raise ValueError(f"the interval must be positive, not {interval_s}")
    series = np.asarray(sent, dtype=np.float64)
    count = len(series)
    lags = count // _FEWEST_PERIODS
    if lags < 2 or not np.isfinite(series).all():
        return None
    series = series - series.mean()
    spread = float((series**2).mean())
    if spread <= 1e-18 * float((np.asarray(sent) ** 2).mean()):
        return None
    power = np.abs(np.fft.rfft(series, 2 * count)) ** 2
    # Each lag has fewer products than the one before. Means instead of sums keep far peaks as high.
    overlap = count - np.arange(count)
    likeness = np.fft.irfft(power)[:count] / overlap / spread
    # Smoothing over some lags makes a period between two lags as high a peak as one on a lag. The middle lag
    # has the largest weight, so that the narrowest peak has one maximum.
    smooth = np.convolve(likeness, np.array([1, 2, 3, 2, 1]) / 9, mode="same")
    negative = np.flatnonzero(smooth[: lags + 1] < 0)
    if not len(negative):
        return None
    first = int(negative[0])
    inner = smooth[first : lags + 1]
    if len(inner) < 2:
        return None
    best = float(inner.max())
    if best <= 0:
        return None
    peak = _first_peak(smooth, first, lags, _NEAR_BEST * best)
    strength = float(likeness[peak - 1 : peak + 2].max())
    if strength < max(LEAST_STRENGTH, _CHANCE / np.sqrt(count)) or _too_fast(likeness, strength):
        return None
    period = _vertex(smooth, peak)
    # The peak at the multiple m has the same absolute error, so the period has 1/m of it.
    multiple = 2
    while (at := multiple * period) < count - count // 4:
        reach = max(2, round(period / 8))
        low = max(1, round(at) - reach)
        window = smooth[low : min(count - 1, round(at) + reach + 1)]
        top = low + int(window.argmax())
        if smooth[top] < _STILL_THERE * best or abs(top - at) >= reach:
            break
        period = _vertex(smooth, top) / multiple
        multiple *= 2
    return period * interval_s, min(1.0, strength)


def _first_peak(smooth: Floats, first: int, lags: int, enough: float) -> int:
    """The lag of the highest point of the first hill that reaches `enough`.

    Noise may put a dent into the slope of a hill, which does not end it. At twice the lag another hill may
    begin.
    """
    at = first + int(np.flatnonzero(smooth[first : lags + 1] >= enough)[0])
    end = min(lags, at + max(1, at // 4))
    return at + int(smooth[at : end + 1].argmax())


def _too_fast(likeness: Floats, strength: float) -> bool:
    """Whether the series falls and rises again within five samples, which is too fast to find its period."""
    return any(
        likeness[k] >= likeness[k + 1] and likeness[k] - likeness[1:k].min() > _RISE * strength
        for k in range(2, min(5, len(likeness) - 1))
    )


def _vertex(values: Floats, at: int) -> float:
    """The position of the maximum of a parabola through a peak and its neighbours."""
    if not 0 < at < len(values) - 1:
        return float(at)
    left, mid, right = values[at - 1 : at + 2]
    bend = left - 2 * mid + right
    return float(at) if bend >= 0 else at + float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5))
