// SPDX-License-Identifier: Apache-2.0
// The jobs: iteration times, speed-ups, priority and shift; and for the picked one its chart and reasons.

import { useMemo } from "preact/hooks";
import { part } from "../api/client";
import { hostsOf, type Live } from "../api/live";
import type { Blame, Explained, JobDetail, JobRow } from "../api/types";
import { jobColour } from "../fabric/colours";
import { Flows } from "../fabric/details";
import { state } from "../state/store";
import { useAnswer, type Fetched } from "../state/use_answer";
import * as format from "../ui/format";
import { Facts, Fault, Panel } from "../ui/panel";
import { JobName, PickButton } from "../ui/pick";
import { Chart, Spark } from "../ui/spark";
import { DataTable } from "../ui/table";

// Chosen: the figures of so many jobs are asked for every 2 s, those of more jobs less often.
const JOBS_EVERY_2S = 1000;

interface Recent { name: string; recent_ms: number[]; floor_breaches: number; shares_level_with: string[] }

/** The table of all jobs. `brief`: fewer columns. */
export function JobsTable({ live, jobs, brief = false }: { live: Live; jobs: string[]; brief?: boolean }) {
  const recent = useAnswer<{ jobs: Recent[] }>("jobs?most=1000", live.tables.status.plan?.version, 2000 * Math.ceil(jobs.length / JOBS_EVERY_2S), "jobs?most=1000", "jobs");
  const lines = useMemo(() => new Map((recent.value?.jobs ?? []).map((job) => [job.name, job])), [recent.value]);
  const row = (name: string) => live.tables.jobs[name]!;
  const pick = state.address.pick;
  return (
    <DataTable
      caption="Jobs" quiet rows={jobs} keyOf={(name) => name} picked={(name) => pick?.kind === "job" && pick.id === name} empty="No job is running."
      columns={[
        { title: "Job", value: (name) => name, show: (name) => <><JobName name={name} jobs={jobs} /> <small>{row(name).model}</small><Warning job={row(name)} more={lines.get(name)} /></> },
        ...(brief ? [] : [
          { title: "GPUs", number: true, value: (name: string) => row(name).gpus },
          { title: "Hosts", value: (name: string) => hostsOf(live, row(name)).join(", "), show: (name: string) => format.names(hostsOf(live, row(name))) },
        ]),
        { title: "Mean ms", number: true, value: (name) => row(name).mean_ms, show: (name) => format.ms(row(name).mean_ms) },
        ...(brief ? [] : [{ title: "p99 ms", number: true, value: (name: string) => row(name).p99_ms, show: (name: string) => format.ms(row(name).p99_ms) }]),
        { title: "Iterations", value: (name) => row(name).iterations, show: (name) => <><Spark values={lines.get(name)?.recent_ms ?? []} colour={jobColour(jobs.indexOf(name))} name={name} /><small>{format.count(row(name).iterations)}</small></> },
        { title: "Of alone", number: true, value: (name) => share(row(name).alone_ms, row(name).mean_ms), show: (name) => format.ratio(row(name).alone_ms, row(name).mean_ms) },
        { title: "Against ECMP", number: true, value: (name) => share(row(name).ecmp_ms, row(name).expected_ms), show: (name) => format.ratio(row(name).ecmp_ms, row(name).expected_ms) },
        { title: "Level", number: true, value: (name) => row(name).level },
        { title: "DSCP", number: true, value: (name) => row(name).dscp },
        { title: "Shift ms", number: true, value: (name) => row(name).shift_ms, show: (name) => (brief && row(name).period_ms === null ? "no slots" : format.shortMs(row(name).shift_ms)) },
        ...(brief ? [] : [{ title: "Period ms", number: true, value: (name: string) => row(name).period_ms, show: (name: string) => (row(name).period_ms === null ? "no slots" : format.shortMs(row(name).period_ms)) }]),
      ]}
    />
  );
}

function share(of: number | null, to: number | null): number | null {
  return of === null || !to ? null : of / to;
}

/** What the operator should know of a job: it is in no plan, silent, or measured below its floor. */
function Warning({ job, more }: { job: JobRow; more: Recent | undefined }) {
  const words = job.left_out !== null ? "left out of plans"
    : job.silence !== null ? "reports no iterations"
    : more?.shares_level_with.length ? `shares its level with ${format.names(more.shares_level_with)}`
    : more?.floor_breaches ? `below its floor ${format.times(more.floor_breaches)}`
    : job.measuring ? "being measured" : null;
  return words ? <small class="warn" title={job.left_out ?? job.silence ?? ""}>{words}</small> : null;
}

export function JobsView({ live, jobs, detail }: { live: Live; jobs: string[]; detail: Fetched<JobDetail> }) {
  const pick = state.address.pick;
  const name = pick?.kind === "job" && live.tables.jobs[pick.id] ? pick.id : null;
  return (
    <>
      <Panel id="jobs" title="Jobs" measuredNs={live.timeNs} wide>
        <JobsTable live={live} jobs={jobs} />
        <p class="muted">Of alone: the iteration alone on the fabric, divided by the measured one. Against ECMP: the iteration expected under plain ECMP, divided by the one expected under this plan.</p>
      </Panel>
      {name === null ? <p class="muted hint">Choose a job to see its iterations, reasons and flows.</p>
        : <JobPanels key={name} name={name} live={live} jobs={jobs} detail={detail} />}
    </>
  );
}

function JobPanels({ name, live, jobs, detail }: { name: string; live: Live; jobs: string[]; detail: Fetched<JobDetail> }) {
  const row = live.tables.jobs[name]!;
  const version = live.tables.status.plan?.version;
  const explained = useAnswer<Explained>(`jobs/${part(name)}/explain`, version, 5000);
  const blame = useAnswer<Blame>(`jobs/${part(name)}/blame`, version, 5000);
  const values = detail.value?.recent_ms ?? [];
  const first = row.iterations - values.length + 1;
  const constant = (value: number | null | undefined) => values.map(() => value ?? null);
  return (
    <div class="columns">
      <Panel id="iterations" title={`Iterations of ${name}`} measuredNs={live.timeNs}>
        {detail.fault && <Fault fault={detail.fault} what="Iterations" />}
        {values.length > 1 && (
          <Chart label={`Iteration times of ${name} in ms`} unit="ms" xUnit="iteration" xs={values.map((_, i) => first + i)} lines={[
            { label: "measured", values, colour: jobColour(jobs.indexOf(name)) },
            { label: "expected", values: constant(row.expected_ms), colour: "var(--accent)", dash: [6, 4] },
            { label: "plain ECMP", values: constant(row.ecmp_ms), colour: "var(--warn)", dash: [2, 4] },
            { label: "alone", values: constant(row.alone_ms), colour: "var(--good)", dash: [10, 4] },
          ]} />
        )}
        <Facts rows={[
          ["measured", format.unitMs(row.mean_ms)], ["expected", format.unitMs(row.expected_ms)], ["plain ECMP, expected", format.unitMs(row.ecmp_ms)],
          ["alone", format.unitMs(row.alone_ms)], ["at most allowed", format.unitMs(row.floor_ms)],
          ["of alone", format.ratio(row.alone_ms, row.mean_ms)], ["against ECMP", format.ratio(row.ecmp_ms, row.expected_ms)],
          ...(detail.value?.before_plan_ms == null ? [] : [["before its first plan, measured", `${format.ms(detail.value.before_plan_ms)} ms (${format.ratio(detail.value.before_plan_ms, row.mean_ms)})`] as [string, string]]),
        ]} />
        {detail.value && <><h3>Flows and ports</h3><Flows key={name} flows={detail.value.flows} /></>}
      </Panel>
      <div class="column">
        <Panel id="explain" title="Why" readAt={explained.at}>
          {explained.fault && <Fault fault={explained.fault} what="The explanation" />}
          {explained.value && <Explanation value={explained.value} jobs={jobs} />}
        </Panel>
        <Panel id="blame" title="What slowed it" measuredNs={blame.value?.time_ns}>
          {blame.fault && <Fault fault={blame.fault} what="Blame" />}
          {blame.value && (
            <DataTable
              caption="Slowest iterations" quiet rows={blame.value.iterations} keyOf={(one) => String(one.index)} empty="No iteration was slow lately."
              columns={[
                { title: "Ended", value: (one) => one.ended_ns, show: (one) => format.time(one.ended_ns) },
                { title: "Took ms", number: true, value: (one) => one.took_ms, show: (one) => format.ms(one.took_ms) },
                { title: "Usual ms", number: true, value: (one) => one.usual_ms, show: (one) => format.ms(one.usual_ms) },
                { title: "Slower by ms", number: true, value: (one) => one.slower_ms, show: (one) => format.ms(one.slower_ms) },
                { title: "Link", value: (one) => one.link, show: (one) => (one.link ? <PickButton pick={{ kind: "link", id: one.link }}>{one.link}</PickButton> : "–") },
                { title: "Other job", value: (one) => one.other_job, show: (one) => (one.other_job ? <JobName name={one.other_job} jobs={jobs} /> : "–") },
                { title: "Why", value: (one) => one.why },
              ]}
            />
          )}
        </Panel>
      </div>
    </div>
  );
}

function Explanation({ value, jobs }: { value: Explained; jobs: string[] }) {
  const other = value.flows.flatMap((flow) => flow.rejected.slice(0, 8).map((path) => ({ flow: flow.flow, path })));
  const scale = value.flows.flatMap((flow) => [...(flow.chosen ? [flow.chosen] : []), ...flow.rejected].map((path) => path.capacity_bps));
  return (
    <>
      <ul class="sentences">{value.sentences.map((words) => <li key={words}>{words}</li>)}</ul>
      <DataTable
        caption="Jobs that it meets" rows={value.neighbours} keyOf={(n) => n.job} empty="It meets no other job on a link." pageSize={8}
        columns={[
          { title: "Job", value: (n) => n.job, show: (n) => <JobName name={n.job} jobs={jobs} /> },
          { title: "Level", number: true, value: (n) => n.level },
          { title: "Links", number: true, value: (n) => n.links },
          { title: "Score", number: true, value: (n) => n.score, show: (n) => (n.score === null ? "–" : n.score.toFixed(2)) },
        ]}
      />
      <DataTable
        caption="Paths that were not taken" rows={other} keyOf={({ flow, path }) => `${flow} ${path.path.join(">")}`} empty="There is no other live path." pageSize={8}
        columns={[
          { title: "Flow", value: ({ flow }) => flow },
          { title: "Other path", value: ({ path }) => format.path(path.path.slice(1, -1)) },
          { title: "Its fullest link would carry", number: true, value: ({ path }) => path.load_bps / path.capacity_bps, show: ({ path }) => format.rateOf(path.load_bps, path.capacity_bps, scale) },
        ]}
      />
    </>
  );
}
