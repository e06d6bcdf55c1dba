// SPDX-License-Identifier: Apache-2.0
// Time: when each job communicates and computes by its slots, its iterations, and what happened; with a time
// that can be moved back, and that the other panels of this view show.

import { useMemo, useState } from "preact/hooks";
import type { Live } from "../api/live";
import type { History, LogEvent } from "../api/types";
import { jobColour } from "../fabric/colours";
import { set, state } from "../state/store";
import { useAnswer } from "../state/use_answer";
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
  const iterations = useAnswer<History>(`history?kind=iterations&${range}&points=300`);
  const log = useAnswer<{ events: LogEvent[] }>(`event-log?${range}&most=200`);
  const [kept, setKept] = useState<{ history: History | null; events: LogEvent[]; at: number | null }>({ history: null, events: [], at: null });
  if (iterations.value && iterations.at !== kept.at) setKept({ history: iterations.value, events: log.value?.events ?? kept.events, at: iterations.at });
  const events = log.value?.events ?? kept.events;
  const [xs, lines] = useMemo(() => drawn(kept.history, jobs), [kept.history, jobs.join()]);
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
        {xs.length > 1 && <Chart label="Iteration times of each job in ms" unit="ms" xUnit="fabric time, s" height={220} xs={xs} lines={lines} />}
        <h3>Communication by slots, {SLOTS_MS / 1000} s before {format.time(to)}</h3>
        <Slots live={live} jobs={jobs} to={to} />
      </Panel>
      <div class="columns">
        <Panel id="log" title="What happened" readAt={log.at}>
          {log.fault && <Fault fault={log.fault} what="The log of events" />}
          {!log.fault && (
            <DataTable
              caption="Events, the newest first" rows={events} keyOf={(one) => String(one.id)} empty="Nothing happened in this time." pageSize={15}
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

/** The times in seconds, and a line for each job. */
function drawn(past: History | null, jobs: string[]): [number[], Line[]] {
  const lines = (past?.series ?? []).map((one) => ({ label: one.subject, values: one.mean, colour: jobColour(jobs.indexOf(one.subject)) }));
  return [(past?.times_ns ?? []).map((time) => time / NS), lines];
}

/** When jobs that are held to slots communicate, just before a time. */
function Slots({ live, jobs, to }: { live: Live; jobs: string[]; to: number }) {
  const epoch = live.tables.status.plan?.epoch_ns;
  const rows = jobs.map((name) => rhythmOf(name, live.tables.jobs[name]!)).filter((r) => r !== null).filter((r) => r.slotted).slice(0, LANES_SHOWN);
  if (epoch === undefined || rows.length === 0) return <p class="muted">No job is held to slots by the present plan.</p>;
  const from = to / 1e6 - SLOTS_MS;
  const x = (ms: number) => Math.min(1000, Math.max(0, ((ms - from) / SLOTS_MS) * 1000));
  return (
    <ul class="lanes">
      {rows.map((r) => {
        const bars: [number, number][] = [];
        const start = epoch / 1e6 + r.shift;
        for (let n = Math.floor((from - start) / r.period) - 1; start + n * r.period < to / 1e6; n += 1) {
          for (const [a, b] of r.phases) {
            const [left, right] = [x(start + n * r.period + a), x(start + n * r.period + b)];
            if (right > left) bars.push([left, right]);
          }
        }
        return (
          <li key={r.job}>
            <span class="lane-name"><Badge index={jobs.indexOf(r.job)} name={r.job} /> {r.job}</span>
            <svg viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" style={{ "--job": jobColour(jobs.indexOf(r.job)) }} aria-label={`${r.job} communicates ${bars.length} times, every ${format.shortMs(r.period)} ms, and computes in between`}>
              <rect class="compute" x="0" y="6" width="1000" height="4" />
              {bars.map(([a, b]) => <rect key={a} class="send" x={a} y="1" width={b - a} height="14" />)}
            </svg>
          </li>
        );
      })}
    </ul>
  );
}
