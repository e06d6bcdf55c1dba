// SPDX-License-Identifier: Apache-2.0
// Time: when each job communicates and computes, its iterations, and what happened; with a time
// that can be moved back, and that the other panels of this view show.

import { useMemo } from "preact/hooks";
import { part } from "../api/client";
import type { Live } from "../api/live";
import type { History, LogEvent } from "../api/types";
import { jobColour } from "../fabric/colours";
import { set, state } from "../state/store";
import { useAnswer, usePages } from "../state/use_answer";
import { rhythmOf } from "../circles/circles";
import * as format from "../ui/format";
import { Fault, Panel } from "../ui/panel";
import { Badge } from "../ui/pick";
import { Chart, type Line } from "../ui/spark";
import { DataTable } from "../ui/table";
import { Moment } from "./moment";

const SPANS: Record<string, number> = { "1 minute": 60, "10 minutes": 600, "1 hour": 3600, "24 hours": 86_400 };
const SLOTS_MS = 2000;
const LANES_SHOWN = 24;
const ENDED_EVERY_MS = 2000;
const NS = 1e9;

export function TimelineView({ live, jobs }: { live: Live; jobs: string[] }) {
  const span = SPANS[state.address.more["span"] ?? ""] ?? 60;
  const asked = Number(state.address.more["at"] ?? "");
  const past = asked > 0 && asked < live.timeNs ? asked : null;
  const to = past ?? live.timeNs;
  // A new question every second of fabric time, or for another time.
  const tick = Math.floor(to / NS);
  const from = Math.max(0, tick - span);
  const range = `from_ns=${from * NS}&to_ns=${(tick + 1) * NS}`;
  const shown = shownOf(jobs);
  const some = shown.length < jobs.length ? shown.map((name) => `&subject=${encodeURIComponent(name)}`).join("") : "";
  const iterations = useAnswer<History>(`history?kind=iterations&${range}&points=300${some}`, 0, 0, `iterations${some}`);
  const log = usePages<{ events: LogEvent[]; next: string | null }>(`event-log?${range}&most=200`, "events", 0, 0, "event-log");
  const [xs, lines] = useMemo(() => drawn(iterations.value, jobs), [iterations.value, jobs.join()]);
  const drawable = xs.length > 1 && lines.some((line) => line.values.some((value) => value !== null));
  return (
    <>
      <Panel id="timeline" title="Timeline" measuredNs={to} wide>
        <div class="tools">
          <label>Show the last <select value={Object.keys(SPANS).find((name) => SPANS[name] === span)} onChange={(e) => set({ span: e.currentTarget.value })}>
            {Object.keys(SPANS).map((name) => <option key={name}>{name}</option>)}
          </select></label>
          <label class="scrub">Time <input type="range" min={Math.max(0, Math.floor(live.timeNs / NS) - Math.max(span, 600))} max={Math.floor(live.timeNs / NS)} step={1}
            value={Math.floor(to / NS)} aria-valuetext={format.time(to)} onInput={(e) => set({ at: String(Number(e.currentTarget.value) * NS) })} /></label>
          <output>{past === null ? "now" : format.time(past)}</output>
          <button type="button" disabled={past === null} onClick={() => set({ at: "" })}>Now</button>
        </div>
        {iterations.fault && <Fault fault={iterations.fault} what="Iteration times" />}
        {drawable && <Chart label="Iteration times of each job in ms" unit="ms" xUnit="fabric time, s" height={220} xs={xs} lines={lines} />}
        {!iterations.value && !iterations.fault && <p class="muted">…</p>}
        {iterations.value && !drawable && (
          <p class="muted">
            {past === null ? "No iteration times yet" : "No iteration times of then"}. They appear here once the workers of a job have reported
            iterations for some seconds{jobs.length === 0 ? ", and no job is running: declare one in Operations, or by polyrhythm jobs submit" : ""}.
          </p>
        )}
        {some !== "" && <p class="muted">Of {jobs.length} jobs, {shown.length} are shown: the first by name, and the one that is picked.</p>}
        {some === "" && iterations.value?.next && <p class="muted">Of the jobs of this time, the first {iterations.value.series.length} by name are drawn.</p>}
        <h3>Compute and communication, {SLOTS_MS / 1000} s before {format.time(to)}</h3>
        <Lanes live={live} jobs={jobs} shown={shown} to={to} />
      </Panel>
      <div class="columns">
        <Panel id="log" title="What happened" readAt={log.at}>
          {log.fault && <Fault fault={log.fault} what="The log of events" />}
          {!log.value && !log.fault && <p class="muted">…</p>}
          {log.value && (
            <DataTable
              caption="Events, the newest first" rows={log.value.events} keyOf={(one) => String(one.id)} empty="Nothing happened in this time. New plans, jobs that come or go, and switches and links that fail or return appear here." pageSize={15} more={log.more}
              columns={[
                { title: "When", value: (one) => one.time_ns, show: (one) => <button type="button" class="link" onClick={() => set({ at: String(one.time_ns) })}>{format.time(one.time_ns)}</button> },
                { title: "What", value: (one) => one.kind, show: (one) => one.kind.replace(/_/g, " ") },
                { title: "Of", value: (one) => one.subject },
                { title: "Text", value: (one) => one.text },
              ]}
            />
          )}
        </Panel>
        {past !== null && <Moment live={live} at={past} jobs={jobs} />}
      </div>
    </>
  );
}

/** The jobs that are drawn: the first by name, and the picked one as the last. */
function shownOf(jobs: string[]): string[] {
  const first = [...jobs].sort().slice(0, LANES_SHOWN);
  const pick = state.address.pick;
  if (pick?.kind === "job" && jobs.includes(pick.id) && !first.includes(pick.id)) first[LANES_SHOWN - 1] = pick.id;
  return first;
}

/** The times in seconds, and a line for each job. */
function drawn(past: History | null, jobs: string[]): [number[], Line[]] {
  const lines = (past?.series ?? []).map((one) => ({ label: one.subject, values: one.mean, colour: jobColour(jobs.indexOf(one.subject)) }));
  return [(past?.times_ns ?? []).map((time) => time / NS), lines];
}

/**
 * When each job computes and communicates, just before a time: by its slots; without slots by its profile, from the
 * end of its last iteration.
 */
function Lanes({ live, jobs, shown, to }: { live: Live; jobs: string[]; shown: string[]; to: number }) {
  const ended = useAnswer<{ jobs: { name: string; last_end_ns: number | null }[] }>(`jobs?most=${LANES_SHOWN}`, 0, ENDED_EVERY_MS);
  const picked = useAnswer<{ name: string; last_end_ns: number | null }>(shown.length < jobs.length ? `jobs/${part(shown.at(-1)!)}` : null, 0, ENDED_EVERY_MS);
  const ends = useMemo(
    () => new Map([...(ended.value?.jobs ?? []), ...(picked.value ? [picked.value] : [])].map((job) => [job.name, job.last_end_ns])),
    [ended.value, picked.value],
  );
  const epoch = live.tables.status.plan?.epoch_ns;
  if (shown.length === 0) return <p class="muted">No job is running. Each job has a line here from its arrival on.</p>;
  const from = to / 1e6 - SLOTS_MS;
  const x = (ms: number) => Math.min(1000, Math.max(0, ((ms - from) / SLOTS_MS) * 1000));
  return (
    <>
      <ul class="lanes">
        {shown.map((name) => {
          const row = live.tables.jobs[name]!;
          const r = rhythmOf(name, row);
          const slotted = r !== null && r.slotted && epoch !== undefined;
          // An iteration without slots lasts as long as measured, since other jobs may slow it.
          const period = r === null ? 0 : slotted ? r.period : Math.max(r.period, row.mean_ms ?? 0);
          const anchor = slotted ? epoch / 1e6 + r.shift : (ends.get(name) ?? 0) / 1e6;
          // A job that has fallen silent is not drawn beyond its last iteration.
          const until = slotted || row.silence === null ? to / 1e6 : Math.min(to / 1e6, anchor);
          const bars: [number, number][] = [];
          for (let n = Math.floor((from - anchor) / period) - 1; r !== null && anchor + n * period < until; n += 1) {
            for (const [a, b] of r.phases) {
              const [left, right] = [x(anchor + n * period + a), x(anchor + n * period + b)];
              if (right > left) bars.push([left, right]);
            }
          }
          return (
            <li key={name}>
              <span class="lane-name"><Badge index={jobs.indexOf(name)} name={name} /> {name}{r !== null && !slotted && <small> no slots</small>}</span>
              {r === null ? <small class="muted">Its profile is not known yet.</small> : (
                <svg viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" class={slotted ? "" : "estimated"} style={{ "--job": jobColour(jobs.indexOf(name)) }}
                  aria-label={`${name} communicates ${bars.length} times, every ${format.shortMs(period)} ms, and computes in between${slotted ? "" : "; by its profile, since it has no slots"}`}>
                  <rect class="compute" x="0" y="6" width="1000" height="4" />
                  {bars.map(([a, b]) => <rect key={a} class="send" x={a} y="1" width={b - a} height="14" />)}
                </svg>
              )}
            </li>
          );
        })}
      </ul>
      <p class="muted">
        Wide bars: the job communicates; between them it computes. A job with slots is drawn by its slots; one without (paler) by its profile, from the end of its
        last iteration, so its bars may be off by what its iterations vary.
      </p>
    </>
  );
}
