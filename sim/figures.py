# SPDX-License-Identifier: Apache-2.0
"""Figures of one or several simulations of a workload. matplotlib is an optional extra."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sim.simulation import Simulation
from sim.units import seconds


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(simulations: Mapping[str, Simulation], out: Path) -> list[Path]:
    """CDFs of completion and slow-down, utilisation over time, and a heat map of GPU intensity on the links
    (CRUX, Figure 24), as PNG files in `out`; by policy. Returns the files."""
    from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

    written: list[Path] = []

    def keep(figure: Any, name: str) -> None:
        written.append(out / name)
        # No date and no version inside: same seed, same bytes.
        figure.savefig(written[-1], dpi=120, bbox_inches="tight", metadata={"Software": None})

    figure = Figure(figsize=(9, 3.5))
    left, right = figure.subplots(1, 2)
    for name, simulation in simulations.items():
        done = [o for o in simulation.memory.outcomes.values() if o.ended >= 0]
        _cdf(left, [seconds(o.ended) - o.request.arrival_ns / 1e9 for o in done], name)
        _cdf(right, [o.total / o.iterations / o.ideal for o in done], name)
    left.set(xlabel="job completion time [s]", ylabel="part of the jobs", xscale="log")
    right.set(xlabel="iteration time over the ideal")
    left.legend()
    keep(figure, "cdf.png")

    if any(s.memory.samples for s in simulations.values()):
        figure = Figure(figsize=(9, 3.5))
        axes = figure.subplots()
        for name, simulation in simulations.items():
            gpus, samples = simulation.cluster.gpus, simulation.memory.samples
            axes.plot(
                [seconds(s.at) / 3600 for s in samples], [s.computing / gpus for s in samples], label=name
            )
        axes.set(xlabel="time [h]", ylabel="GPUs that compute", ylim=(0, 1))
        axes.legend()
        keep(figure, "utilisation.png")
        for name, simulation in simulations.items():
            keep(_heat_map(simulation, Figure), f"intensity-{name}.png")
    return written


def _cdf(axes: Any, values: list[float], label: str) -> None:
    values = sorted(values)
    axes.step(values, np.arange(1, len(values) + 1) / max(len(values), 1), where="post", label=label)


def _heat_map(simulation: Simulation, figure_type: Any) -> Any:
    """The GPU intensity of what each link carries, over time; white where it is idle (CRUX, Figure 24)."""
    network, samples = simulation.cluster.network, simulation.memory.samples
    switches = network.topology.switch
    fabric = network.fabric
    nics = np.array(
        [i for i, (a, b) in enumerate(network.names) if a != b and (a in switches) != (b in switches)]
    )
    hours = seconds(samples[-1].at) / 3600
    figure = figure_type(figsize=(9, 6))
    for axes, links, title in zip(
        figure.subplots(2, 1, sharex=True), (nics, fabric), ("NICs", "between switches"), strict=True
    ):
        bits = np.array([s.bits[links] for s in samples])
        weighted = np.array([s.intensity[links] for s in samples])
        shown = np.ma.masked_where(bits <= 0, weighted / np.maximum(bits, 1e-300))
        image = axes.imshow(shown.T, aspect="auto", vmin=0, cmap="YlOrBr", extent=(0, hours, len(links), 0))
        axes.set(ylabel=f"links: {title}")
        figure.colorbar(image, label="GPU intensity [flop/s]")
    axes.set(xlabel="time [h]")
    return figure
