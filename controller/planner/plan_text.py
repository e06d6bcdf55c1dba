# SPDX-License-Identifier: Apache-2.0
"""The text of a plan: its decisions with their reasons, and the changes from one plan to the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from controller.model import FlowPlan, FlowRemark, JobPlan, Plan, PolicyReference
from controller.model.flow_plans import FlowPlans


def explain(plan: Plan) -> str:
    """The plan as text, one line for each job, flow and shared link."""
    lines = [f"plan {plan.version}, policy {plan.policy.name}"]
    for job in plan.jobs.values():
        sender = f", {job.sender} senders" if job.sender != "job" else ""
        lines.append(f"job {job.job}: dscp {job.dscp}{sender}; {job.why}{_expected(job)}")
        for flow in plan.flows.values():
            if flow.flow.startswith(f"{job.job}/"):
                lines.append(f"  {flow.flow}: {_way(flow)}; {flow.why}")
                lines += [f"    {_remark(r)}" for r in plan.remarks if r.flow == flow.flow]
    for link in plan.links:
        lines.append(f"link {link.src}->{link.dst}: {', '.join(link.jobs)}; score {link.score:.3f}")
    return "\n".join(lines)


def _expected(job: JobPlan) -> str:
    """What the plan expects of a job; "" where it was not evaluated."""
    if job.expected_ns is None or job.ecmp_ns is None or job.ecmp_ratio is None:
        return ""
    limit = f", at most {job.floor_ns / 1e6:.1f} allowed" if job.floor_ns is not None else ""
    return (
        f"; expected iteration {job.expected_ns / 1e6:.1f} ms, {job.ecmp_ns / 1e6:.1f} under plain ECMP "
        f"(x{job.ecmp_ratio:.2f}{limit})"
    )


def summary(plan: Plan) -> str:
    """The size of a plan in one line, for the log."""
    flows = plan.flows
    with_path = (
        flows.routed if isinstance(flows, FlowPlans) else sum(f.path is not None for f in flows.values())
    )
    flow_entries = len(plan.pins) + len(plan.remarks)
    return (
        f"{len(plan.jobs)} jobs, {with_path} flows with a path, {len(plan.links)} shared links, "
        f"{flow_entries} entries for single flows"
    )


def _way(flow: FlowPlan) -> str:
    if flow.path is None or flow.source_port is None:
        return "ECMP"
    return f"{' '.join(flow.path)}, port {flow.source_port}"


def _remark(remark: FlowRemark) -> str:
    return f"its QP sends dscp {remark.sent_dscp}: {remark.switch} rewrites it to {remark.dscp}"


def _entries(plan: Plan | None) -> Mapping[str, str]:
    """The switch entries for single flows as text, by flow."""
    words: dict[str, list[str]] = defaultdict(list)
    for pin in plan.pins if plan is not None else ():
        words[pin.flow].append(f"pinned in {pin.switch}")
    for remark in plan.remarks if plan is not None else ():
        words[remark.flow].append(f"remarked by {remark.switch} from {remark.sent_dscp} to {remark.dscp}")
    return {flow: ", ".join(parts) for flow, parts in words.items()}


def _timing(job: JobPlan) -> str:
    if job.period_ns is None:
        return "runs at its own pace"
    once = "once " if job.once else ""
    return f"starts {once}at {job.shift_ns / 1e6:.1f} of every {job.period_ns / 1e6:.1f} ms"


def _policy_changes(old: PolicyReference, new: PolicyReference) -> Iterator[str]:
    """One line for another policy or version; for the same policy, one line for each changed option."""
    if old.name != new.name:
        yield f"policy {old.name} -> {new.name}"
        return
    was, now = (" ".join(filter(None, (r.distribution, r.version))) or "none" for r in (old, new))
    if was != now:
        yield f"policy {new.name}: distribution {was} -> {now}"
    before, after = dict(old.options), dict(new.options)
    for option in sorted(before.keys() | after.keys()):
        a, b = before.get(option), after.get(option)
        if a != b or type(a) is not type(b):
            yield f"policy {new.name}: {option} {a} -> {b}"


def diff(old: Plan | None, new: Plan) -> tuple[str, ...]:
    """The changes from one plan to another, one line each. Empty if only the version changes."""
    lines: list[str] = []
    if old is not None:
        lines += _policy_changes(old.policy, new.policy)
    # Each plan's shifts count from its own epoch. Convert the old ones to the new epoch before comparing.
    moved = old.epoch_ns - new.epoch_ns if old else 0
    for name, job in new.jobs.items():
        was = old.jobs.get(name) if old else None
        if was is None:
            lines.append(f"job {name}: new, level {job.level}, {_timing(job)}")
            continue
        if was.level != job.level:
            lines.append(f"job {name}: level {was.level} -> {job.level}")
        same = (was.period_ns, was.once, was.realign) == (job.period_ns, job.once, job.realign)
        if not same or (job.period_ns and (was.shift_ns + moved - job.shift_ns) % job.period_ns):
            lines.append(f"job {name}: {_timing(was)} -> {_timing(job)}")
        if was.sender != job.sender:
            lines.append(f"job {name}: sender {was.sender} -> {job.sender}")
    for name, flow in new.flows.items():
        before = old.flows.get(name) if old else None
        if before is None:
            lines.append(f"flow {name}: new, {_way(flow)}, dscp {flow.dscp}")
        elif (before.path, before.source_port) != (flow.path, flow.source_port):
            lines.append(f"flow {name}: {_way(before)} -> {_way(flow)}")
        elif before.dscp != flow.dscp:
            lines.append(f"flow {name}: dscp {before.dscp} -> {flow.dscp}")
    entries_before, entries_now = _entries(old), _entries(new)
    for name in new.flows:
        if entries_before.get(name) != entries_now.get(name):
            lines.append(f"flow {name}: {entries_now.get(name, 'no longer has entries of its own')}")
    if old is not None:
        lines += [f"job {name}: gone" for name in old.jobs if name not in new.jobs]
        lines += [f"flow {name}: gone" for name in old.flows if name not in new.flows]
    return tuple(lines)
