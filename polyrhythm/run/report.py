# SPDX-License-Identifier: Apache-2.0
"""The report on the terminal: one table with a block of rows for each scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text


def table(scenarios: Mapping[str, Mapping[str, Any]]) -> Table:
    """The table of `polyrhythm run`, made from the document of the JSON file."""
    built = Table(
        title="Iteration times under plain ECMP and under the policy",
        caption="all figures are over the measured iterations; alone: the job without other jobs on the "
        "fabric",
        header_style="bold",
        pad_edge=False,
    )
    for heading in (
        "scenario, job",
        "alone\nms",
        "ECMP\nmean ms",
        "ECMP\np99 ms",
        "policy\nmean ms",
        "policy\np99 ms",
        "speed-up",
        "ECN marks/iter.\nECMP > policy",
        "DSCP\n(level)",
        "shift\nms",
        "path (source port)",
    ):
        left = heading.startswith(("scenario", "path"))
        built.add_column(heading, justify="left" if left else "right", no_wrap=left and "job" in heading)
    for name, scenario in scenarios.items():
        use = scenario["gpu_utilisation"]
        built.add_row(
            Text(name, style="bold"),
            *[""] * 5,
            Text(f"{scenario['speedup_mean']:.2f}x", style="bold"),
            "",
            "",
            "",
            f"GPU utilisation {use['ecmp']:.1%} > {use['polyrhythm']:.1%}, "
            f"p99 {scenario['speedup_p99']:.2f}x",
        )
        for line in _notes(scenario):
            built.add_row(*[""] * 10, Text(line, style="red"))
        for job in scenario["jobs"]:
            # Text: a name such as "[a]" or ":x:" is no markup of Rich.
            built.add_row(*(Text(cell) for cell in _job_row(job)))
        if "random_offsets" in scenario:
            offsets = scenario["random_offsets"]
            built.add_row(
                f"  {offsets['draws']} random offsets",
                *[""] * 5,
                f"{offsets['speedup_mean']:.2f}x",
                *[""] * 4,
            )
        built.add_section()
    return built


def blocks(scenarios: Mapping[str, Mapping[str, Any]]) -> Text:
    """The figures of the table as a few lines for each job, for a narrow terminal."""
    text = Text()
    for name, scenario in scenarios.items():
        use = scenario["gpu_utilisation"]
        text.append(f"{name}", style="bold")
        text.append(
            f"  {scenario['speedup_mean']:.2f}x mean, {scenario['speedup_p99']:.2f}x p99, "
            f"GPU utilisation {use['ecmp']:.1%} > {use['polyrhythm']:.1%}\n"
        )
        for line in _notes(scenario):
            text.append(f"  {line}\n", style="red")
        for job in scenario["jobs"]:
            _, alone, mean, p99, policy_mean, policy_p99, gain, marks, dscp, shift, paths = _job_row(job)
            text.append(f"  {job['name']}\n", style="bold")
            text.append(
                f"    alone {alone} ms; ECMP {mean} (p99 {p99}); policy {policy_mean} (p99 "
                f"{policy_p99}): {gain}\n"
            )
            text.append(f"    ECN marks per iteration {marks}; DSCP (level) {dscp}; shift {shift} ms\n")
            text.append("".join(f"    {path}\n" for path in paths.splitlines()))
        if "random_offsets" in scenario:
            offsets = scenario["random_offsets"]
            text.append(f"  {offsets['draws']} random offsets: {offsets['speedup_mean']:.2f}x mean\n")
    return text


def _notes(scenario: Mapping[str, Any]) -> list[str]:
    """What the reader must know besides the figures: notes, failovers, and lost determinism."""
    lines = [f"{policy}: {note}" for policy, notes in scenario["notes"].items() for note in notes]
    for policy, failovers in scenario["failovers"].items():
        lines += [f"{policy}: {_failover(outcome)}" for outcome in failovers]
    return lines if scenario["deterministic"] else [*lines, "not deterministic"]


def _failover(outcome: Mapping[str, Any]) -> str:
    """One failure and what followed it, as a line."""
    words = [f"{outcome['what']} down at {outcome['at_ms'] / 1e3:.1f} s"]
    if outcome["backup_ms"] is None:
        words.append("no flow took a backup path")
    else:
        words.append(f"first packet on a backup path after {outcome['backup_ms']:.2f} ms")
    if outcome["first_reassigned_ms"] is not None:
        first, last = outcome["first_reassigned_ms"], outcome["last_reassigned_ms"]
        words.append(f"first flow re-assigned after {first:.2f} ms, last after {last:.2f}")
    if outcome["packets_lost"] is not None:
        words.append(f"{outcome['packets_lost']} packets lost at the dead ports")
    return ", ".join(words)


def _job_row(job: Mapping[str, Any]) -> list[str]:
    base, ours = job["ecmp"], job["polyrhythm"]
    shift = "-" if job["period_ms"] is None else f"{job['shift_ms']:.0f}"
    return [
        f"  {job['name']}",
        f"{job['ideal_iteration_ms']:.1f}",
        f"{base['mean_iteration_ms']:.1f}",
        f"{base['p99_iteration_ms']:.1f}",
        f"{ours['mean_iteration_ms']:.1f}",
        f"{ours['p99_iteration_ms']:.1f}",
        f"{job['speedup_mean']:.2f}x",
        f"{base['ecn_marks_per_iteration']:.1f} > {ours['ecn_marks_per_iteration']:.1f}",
        "-" if job["dscp"] is None else f"{job['dscp']} ({job['level']})",
        shift,
        "\n".join(_flow(flow) for flow in job["flows"]),
    ]


def _flow(flow: Mapping[str, Any]) -> str:
    path = flow.get("path")
    if not path:
        return f"{flow['flow']}: by ECMP"
    pinned = f", pinned in {'-'.join(flow['pinned_in'])}" if flow["pinned_in"] else ""
    return f"{'-'.join(path)} ({flow['source_port']}{pinned})"
