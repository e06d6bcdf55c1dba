# SPDX-License-Identifier: Apache-2.0
"""The report on the terminal: a table of the scenarios, and a table of their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from polyrhythm.run.attack import attack_lines

Document = Mapping[str, Mapping[str, Any]]
"""The key `scenarios` of the JSON file: maps the name of each scenario to its figures."""


def summary(scenarios: Document) -> Table:
    """The table of what each scenario gains and loses, from a synchronised start and over random offsets."""
    built = Table(
        title="Under plain ECMP > under the policy",
        caption="speed-up: geometric mean over the jobs; worst job: its iteration time over that under ECMP; "
        "fairness: Jain's index of the throughputs relative to alone",
        header_style="bold",
        pad_edge=False,
    )
    built.add_column("scenario", no_wrap=True)
    offsets = next((s["random_offsets"] for s in scenarios.values() if "random_offsets" in s), None)
    starts = ["all jobs start together"]
    if offsets is not None:
        starts.append(f"mean over {offsets['draws']} random start offsets")
    for start in starts:
        for heading in ("GPU utilisation", "speed-up", "worst job", "fairness"):
            built.add_column(f"{start}\n{heading}" if heading == "GPU utilisation" else f"\n{heading}")
    for name, scenario in scenarios.items():
        cells = _gains(scenario)
        if "random_offsets" in scenario:
            cells += _gains(scenario["random_offsets"])
        built.add_row(Text(name, style="bold"), *cells)
    return built


def rivals(scenarios: Document) -> Table:
    """The table of all policies of a run: one row for each scenario and policy (the key `policies`)."""
    built = Table(
        title="All policies, over the same times and from the same starts",
        caption="speed-up: geometric mean over the jobs, against ECMP; worst job: its iteration time over "
        "that under ECMP; slowest job: its iteration time over that alone; fairness: Jain's index of the "
        "throughputs relative to alone",
        header_style="bold",
        pad_edge=False,
    )
    built.add_column("scenario, policy", no_wrap=True)
    rows = [row for scenario in scenarios.values() for row in scenario["policies"]]
    starts = ["all jobs start together"]
    if any("random_offsets" in row for row in rows):
        starts.append("mean over the random start offsets")
    for start in starts:
        built.add_column(f"{start}\nGPU utilisation")
        for heading in ("speed-up", "worst job", "slowest job", "fairness"):
            built.add_column(f"\n{heading}")
    for name, scenario in scenarios.items():
        built.add_row(Text(name, style="bold"))
        for row in scenario["policies"]:
            cells = [cell for start in _starts_of(row) for cell in _policy_cells(start)]
            # Text: a name such as "[a]" or ":x:" is no markup of Rich.
            built.add_row(*(Text(cell) for cell in (f"  {row['policy']}", *cells)))
        built.add_section()
    return built


def _starts_of(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row, row["random_offsets"]] if "random_offsets" in row else [row]


def _policy_lines(scenario: Mapping[str, Any], starts: Sequence[str]) -> list[str]:
    """The rows of `rivals` as lines: one for each policy and start."""
    lines = []
    for row in scenario.get("policies", ()):
        for start, figures in zip(starts, _starts_of(row), strict=True):
            use, gain, worst, slowest, fairness = _policy_cells(figures)
            lines.append(
                f"{row['policy']}, {start}: GPU utilisation {use}, speed-up {gain}, worst job {worst}, "
                f"slowest job {slowest}, fairness {fairness}"
            )
    return lines


def _policy_cells(figures: Mapping[str, Any]) -> list[str]:
    """One policy from one start: GPU utilisation, speed-up, worst job, slowest job, fairness."""
    worst, slowest = figures["worst_job"], figures["slowest_job"]
    return [
        f"{figures['gpu_utilisation']:.1%}",
        f"{figures['speedup_geometric_mean']:.2f}x",
        "-" if worst is None else f"{worst['name']} {worst['ratio']:.2f}",
        f"{slowest['name']} {slowest['ratio']:.2f}",
        f"{figures['jain_index']:.3f}",
    ]


def table(scenarios: Document) -> Table:
    """The table of the jobs, made from the document of the JSON file."""
    built = Table(
        title="Iteration times under plain ECMP and under the policy",
        caption="all figures are over the measured iterations; alone: the job without other jobs on the "
        "fabric",
        header_style="bold",
        pad_edge=False,
    )
    offsets = any("random_offsets" in scenario for scenario in scenarios.values())
    for heading in (
        "scenario, job",
        "alone\nms",
        "ECMP\nmean ms",
        "ECMP\np99 ms",
        "policy\nmean ms",
        "policy\np99 ms",
        "speed-up",
        *(["speed-up,\noffsets"] if offsets else []),
        "ECN marks/iter.\nECMP > policy",
        "DSCP\n(level)",
        "shift\nms",
        "path (source port)",
    ):
        left = heading.startswith(("scenario", "path"))
        built.add_column(heading, justify="left" if left else "right", no_wrap=left and "job" in heading)
    for name, scenario in scenarios.items():
        built.add_row(Text(name, style="bold"))
        for line in _notes(scenario):
            built.add_row(*[""] * (len(built.columns) - 1), Text(line, style="red"))
        for job in scenario["jobs"]:
            # Text: a name such as "[a]" or ":x:" is no markup of Rich.
            cells = _job_row(job)
            if offsets:
                gain = job.get("random_offsets")
                cells.insert(7, "-" if gain is None else f"{gain['speedup_mean']:.2f}x")
            built.add_row(*(Text(cell) for cell in cells))
        built.add_section()
    return built


def blocks(scenarios: Document) -> Text:
    """The figures of both tables as a few lines for each scenario and job, for a narrow terminal."""
    text = Text()
    for name, scenario in scenarios.items():
        text.append(f"{name}\n", style="bold")
        starts = [("all jobs start together", scenario)]
        if "random_offsets" in scenario:
            offsets = scenario["random_offsets"]
            starts.append((f"mean over {offsets['draws']} random start offsets", offsets))
        for start, figures in starts:
            use, gain, worst, fairness = _gains(figures)
            text.append(f"  {start}: GPU utilisation ")
            text.append_text(use)
            text.append(f", speed-up {gain}, worst job {worst}, fairness {fairness}\n")
        text.append(
            "".join(f"  {line}\n" for line in _policy_lines(scenario, [start for start, _ in starts]))
        )
        for line in _notes(scenario):
            text.append(f"  {line}\n", style="red")
        for job in scenario["jobs"]:
            _, alone, mean, p99, policy_mean, policy_p99, gained, marks, dscp, shift, paths = _job_row(job)
            text.append(f"  {job['name']}\n", style="bold")
            text.append(
                f"    alone {alone} ms; ECMP {mean} (p99 {p99}); policy {policy_mean} (p99 "
                f"{policy_p99}): {gained}"
            )
            if "random_offsets" in job:
                text.append(f"; over random offsets {job['random_offsets']['speedup_mean']:.2f}x")
            text.append(f"\n    ECN marks per iteration {marks}; DSCP (level) {dscp}; shift {shift} ms\n")
            text.append("".join(f"    {path}\n" for path in paths.splitlines()))
    return text


def _gains(figures: Mapping[str, Any]) -> list[Text]:
    """The cells of one start: GPU utilisation, speed-up, worst job, fairness."""
    ecmp, ours = figures["gpu_utilisation"]["ecmp"], figures["gpu_utilisation"]["polyrhythm"]
    use = Text(f"{ecmp:.1%} > {ours:.1%}")
    if round(ours, 3) < round(ecmp, 3):
        use = Text(f"{ecmp:.1%} > {ours:.1%}, it fell", style="bold red")
    worst, jain = figures["worst_job"], figures["jain_index"]
    return [
        use,
        Text(f"{figures['speedup_geometric_mean']:.2f}x"),
        Text(f"{worst['name']} {worst['ratio']:.2f}"),
        Text(f"{jain['ecmp']:.3f} > {jain['polyrhythm']:.3f}"),
    ]


def _notes(scenario: Mapping[str, Any]) -> list[str]:
    """What the reader must know besides the figures: notes, failovers, and lost determinism."""
    lines = []
    if not all(window["warm"] for window in scenario["windows"]):
        lines.append(
            "a job finished no iteration while all jobs were warm: warm-up and profiling count, under all"
        )
    scale = scenario["scale"]
    if scale["asked"] != scale["nominal_bits_per_emulated_bit"]:
        there, asked = scale["nominal_bits_per_emulated_bit"], scale["asked"]
        lines.append(f"measured at scale {there:g}: the machine is too slow for scale {asked:g}")
    if (load := scale["cpu_load"] or 0.0) > 1:
        lines.append(
            f"all jobs together would take {100 * load:.0f}% of the machine's CPU time, so the figures say "
            f"little; end other work or raise --scale"
        )
    notes, failovers, pfc = (
        {row["policy"]: row.get(key, ()) for row in scenario["policies"]}
        if "policies" in scenario
        else scenario.get(key, {})
        for key in ("notes", "failovers", "pfc")
    )
    lines += [f"{policy}: {note}" for policy, own in notes.items() for note in own]
    for policy, own in failovers.items():
        lines += [f"{policy}: {_failover(outcome)}" for outcome in own]
    for policy, own in pfc.items():
        lines += [f"{policy}: {_paused(counts)}" for counts in own]
    if "attack" in scenario:
        lines += attack_lines(scenario["attack"]["jobs"])
    return lines if scenario["deterministic"] else [*lines, "not deterministic"]


def _failover(outcome: Mapping[str, Any]) -> str:
    """One failure and what followed it, as a line."""
    words = [f"{outcome['what']} down at {outcome['at_ms'] / 1e3:.1f} s"]
    if not outcome["watched"]:
        pass
    elif outcome["backup_ms"] is None:
        words.append("no flow took a backup path")
    else:
        words.append(f"first packet on a backup path after {outcome['backup_ms']:.2f} ms")
    if outcome["first_reassigned_ms"] is not None:
        first, last = outcome["first_reassigned_ms"], outcome["last_reassigned_ms"]
        words.append(f"first flow re-assigned after {first:.2f} ms, last after {last:.2f}")
    if outcome["packets_lost"] is not None:
        words.append(f"{outcome['packets_lost']} packets lost at the dead ports")
    return ", ".join(words)


def _paused(counts: Mapping[str, Any]) -> str:
    """What priority flow control did in one run, as a line."""
    return (
        f"{counts['pause_frames']} pause frames, priorities paused for {counts['paused_ms']:.0f} ms in all, "
        f"{counts['packets_lost']} packets lost"
    )


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
