# SPDX-License-Identifier: Apache-2.0
"""What a job does, from its byte counters alone: no cooperation needed (CRUX, section 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_STRENGTH = 0.3
"""Below this part of its variance a series is not called periodic."""
_CHANCE = 4.0
"""How many standard deviations of pure noise's likeness (one over the root of the samples) are too many."""
_NEAR_BEST = 0.8
_STILL_THERE = 0.6
_RISE = 0.4
_FEWEST_PERIODS = 3


def iteration_length(sent: Floats, interval_s: float) -> tuple[float, float] | None:
    """The period of a series of byte counts, in s, with its strength; None if it has none.

    `sent` are the bytes of each interval of `interval_s` seconds, shape (samples,); at least three
    periods must be in it, and five samples in a period. The autocorrelation comes from a Fourier
    transform (Wiener and Khinchin); the period is the shortest lag with a peak nearly as high as the
    highest, so that it is not a multiple, made finer by the peaks at its multiples, each of which
    splits the error among more periods.
    Raises ValueError for an interval that is not positive.
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
    # Each lag has fewer products than the one before: means, not sums, so that far peaks stay as high.
    overlap = count - np.arange(count)
    likeness = np.fft.irfft(power)[:count] / overlap / spread
    # Some lags together: a period between two lags is as high a hill as one that falls on a lag. The
    # middle counts most, so that the narrowest peak has one top.
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
    # The peak at a multiple m is known to the same fraction of a sample: the period m times better.
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
    """The lag of the first hill that reaches `enough`: its highest place. A dent in its slope, from noise,
    does not end the hill; where the next one could be, at twice the lag, it has ended."""
    at = first + int(np.flatnonzero(smooth[first : lags + 1] >= enough)[0])
    end = min(lags, at + max(1, at // 4))
    return at + int(smooth[at : end + 1].argmax())


def _too_fast(likeness: Floats, strength: float) -> bool:
    """Whether the series falls and rises again within five samples: its period cannot be told then."""
    return any(
        likeness[k] >= likeness[k + 1] and likeness[k] - likeness[1:k].min() > _RISE * strength
        for k in range(2, min(5, len(likeness) - 1))
    )


def _vertex(values: Floats, at: int) -> float:
    """Where a parabola through a peak and its neighbours is highest."""
    if not 0 < at < len(values) - 1:
        return float(at)
    left, mid, right = values[at - 1 : at + 2]
    bend = left - 2 * mid + right
    return float(at) if bend >= 0 else at + float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5))
