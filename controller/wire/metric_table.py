# SPDX-License-Identifier: Apache-2.0
"""Every metric of controller and agent: name, type, labels and help. docs/metrics.md shows this table.

Names end in their base unit (seconds, bytes) and counters in `_total`, as Prometheus wants it. Labels hold
names of the fabric's description, a few fixed words, or names of at most MOST_JOBS jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

MOST_JOBS = 100
"""Jobs with metrics of their own. Chosen: the first by name; `polyrhythm_jobs` counts all."""


@dataclass(frozen=True, slots=True)
class MetricType:
    """A metric. The values of a histogram come as (cumulative buckets, sum)."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
        """The metric with its samples: values of the labels, and the figure."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(self.name, self.help, labels=self.labels)
        for labels, value in samples:
            family.add_metric([printable_label(text) for text in labels], value)
        return family

    def histogram(self, cumulative: Sequence[tuple[str, float]], total: float) -> Metric:
        """The metric as a histogram: upper bounds with the counts up to them, and the sum."""
        family = HistogramMetricFamily(self.name, self.help)
        family.add_metric((), list(cumulative), total)
        return family


def printable_label(text: str) -> str:
    """A label's value that can be encoded: half of a surrogate pair, as JSON may bring it, cannot."""
    return text.encode(errors="backslashreplace").decode()


_SWITCH, _JOB = ("switch",), ("job",)

BUILD_INFO = MetricType("polyrhythm_build_info", "gauge", "1; the label says the version", ("version",))
LOG_LINES = MetricType(
    "polyrhythm_log_lines_left_out_total", "counter", "Lines that were too many for the log"
)

READY = MetricType("polyrhythm_ready", "gauge", "1 if /readyz answers 200, else 0")
LEADS = MetricType("polyrhythm_leads", "gauge", "1 if the controller leads or is alone, 0 if it is a standby")
NOT_READY = MetricType(
    "polyrhythm_not_ready", "gauge", "Parts that are not ready: leader, switch, agent, store, plan", ("part",)
)
STEP = MetricType(
    "polyrhythm_step_running_seconds", "gauge", "How long the present step of the control loop has run"
)
SWITCH_READY = MetricType(
    "polyrhythm_switch_ready", "gauge", "1 if the switch has a session and its entries, else 0", _SWITCH
)
SWITCH_LOSSES = MetricType(
    "polyrhythm_switch_sessions_lost_total", "counter", "Sessions with the switch that were lost", _SWITCH
)
SWITCH_ENTRIES = MetricType(
    "polyrhythm_switch_entries", "gauge", "Table entries that the switch holds", _SWITCH
)
SWITCH_REFUSED = MetricType(
    "polyrhythm_switch_refused_updates_total", "counter", "Updates that the switch refused", _SWITCH
)
SWITCH_CORRECTED = MetricType(
    "polyrhythm_switch_corrected_updates_total",
    "counter",
    "Updates that a read-back needed, because the switch did not hold what was written",
    _SWITCH,
)
SWITCH_STRAYS = MetricType(
    "polyrhythm_switch_stray_packets_total",
    "counter",
    "Packets of hosts that hosts may not send; read with --poll or while the page is open",
    _SWITCH,
)
PORT_STRAYS = MetricType(
    "polyrhythm_port_stray_packets_total",
    "counter",
    "The same by port and reason: probe, cnp, answer, rate, control, unplanned or cpu",
    ("switch", "port", "reason"),
)
QUEUE_LABELS = ("switch", "queue")
QUEUE_PACKETS = MetricType(
    "polyrhythm_queue_packets_total",
    "counter",
    "Packets of a queue over all ports of the switch; read with --poll or while the page is open",
    QUEUE_LABELS,
)
QUEUE_BYTES = MetricType(
    "polyrhythm_queue_bytes_total", "counter", "As polyrhythm_queue_packets_total, bytes", QUEUE_LABELS
)
QUEUE_MARKS = MetricType(
    "polyrhythm_queue_ecn_marked_packets_total",
    "counter",
    "As polyrhythm_queue_packets_total, packets with an ECN mark",
    QUEUE_LABELS,
)
LINKS_DOWN = MetricType("polyrhythm_links_down", "gauge", "Directed links that are down")
HOSTS = MetricType("polyrhythm_hosts", "gauge", "Hosts of the fabric")
AGENTS = MetricType("polyrhythm_agents_connected", "gauge", "Hosts whose agent has a session")
AGENT_SESSIONS = MetricType("polyrhythm_agent_sessions_total", "counter", "Sessions that agents have begun")
AGENT_REFUSALS = MetricType(
    "polyrhythm_agent_refusals_total", "counter", "Sessions and messages of agents that were refused"
)
FLOW_ANSWERS = MetricType(
    "polyrhythm_flow_answer_seconds",
    "histogram",
    "From an agent's question for a new flow until the answer is on its way",
)
PLAN_SECONDS = MetricType("polyrhythm_plan_seconds", "histogram", "How long the planner took for a plan")
WRITE_SECONDS = MetricType(
    "polyrhythm_plan_write_seconds",
    "histogram",
    "How long switches took for the table entries of a plan or after a failure",
)
JOB_SECONDS = MetricType(
    "polyrhythm_job_planned_seconds",
    "histogram",
    "From a job's arrival, all its workers having joined, until a plan with it is in force",
)
PAUSES = MetricType(
    "polyrhythm_loop_pause_seconds",
    "histogram",
    "How late the controller's event loop comes to what is due; answers to agents wait as long",
)
PLAN_FAILURES = MetricType("polyrhythm_plan_failures_total", "counter", "Plans that could not be made")
PLAN_VERSION = MetricType("polyrhythm_plan_version", "gauge", "Version of the plan in force; 0: none yet")
PATHS = MetricType(
    "polyrhythm_paths",
    "gauge",
    "Planned paths that INT probes have confirmed (verified) and not confirmed (unverified)",
    ("state",),
)
FALLBACK_FLOWS = MetricType(
    "polyrhythm_fallback_flows", "gauge", "Flows that agents have moved back to ECMP, for loss or latency"
)
JOBS = MetricType(
    "polyrhythm_jobs",
    "gauge",
    "Jobs: planned, measuring (waits to be measured, or is measured), left_out (no plan is possible)",
    ("state",),
)
JOB_ITERATION = MetricType(
    "polyrhythm_job_iteration_seconds", "gauge", "Mean iteration time of the job", _JOB
)
JOB_ITERATIONS = MetricType("polyrhythm_job_iterations_total", "counter", "Iterations of the job", _JOB)
JOB_LEVEL = MetricType("polyrhythm_job_level", "gauge", "Priority level of the job; 0 is the highest", _JOB)
JOB_BREACHES = MetricType(
    "polyrhythm_job_floor_breaches", "gauge", "How often the job was below its floor since it changed", _JOB
)

CONTROLLER_METRICS = (
    *(BUILD_INFO, READY, LEADS, NOT_READY, STEP, PAUSES, LOG_LINES),
    *(SWITCH_READY, SWITCH_LOSSES, SWITCH_ENTRIES, SWITCH_REFUSED, SWITCH_CORRECTED, SWITCH_STRAYS),
    *(PORT_STRAYS, QUEUE_PACKETS, QUEUE_BYTES, QUEUE_MARKS, LINKS_DOWN),
    *(HOSTS, AGENTS, AGENT_SESSIONS, AGENT_REFUSALS, FLOW_ANSWERS),
    *(JOB_SECONDS, PLAN_SECONDS, WRITE_SECONDS, PLAN_FAILURES, PLAN_VERSION, PATHS, FALLBACK_FLOWS),
    *(JOBS, JOB_ITERATION, JOB_ITERATIONS, JOB_LEVEL, JOB_BREACHES),
)

AGENT_CONNECTED = MetricType(
    "polyrhythm_agent_connected", "gauge", "1 while the agent has a session with its controller, else 0"
)
AGENT_LOSSES = MetricType(
    "polyrhythm_agent_sessions_lost_total", "counter", "Sessions with a controller that have ended"
)
AGENT_FLOWS = MetricType(
    "polyrhythm_agent_flows",
    "gauge",
    "Open flows: pinned, ecmp (not pinned), fallen (back to ECMP, for loss or latency)",
    ("path",),
)
AGENT_ANSWERS = MetricType(
    "polyrhythm_agent_new_flows_total",
    "counter",
    "New flows by what placed them: controller, known, mouse, deadline, late, alone",
    ("by",),
)
AGENT_CLOCK_ERROR = MetricType(
    "polyrhythm_agent_clock_error_seconds",
    "gauge",
    "Bound of the error of fabric time on this host; +Inf: not known",
)

AGENT_METRICS = (
    *(BUILD_INFO, LOG_LINES, AGENT_CONNECTED, AGENT_LOSSES, AGENT_FLOWS),
    *(AGENT_ANSWERS, AGENT_CLOCK_ERROR),
)
