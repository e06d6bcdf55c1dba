// SPDX-License-Identifier: Apache-2.0
// The circles of time: of all jobs, and of any link, whose arcs may be dragged to see what would come of it.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, part, Refused } from "../api/client";
import type { Live } from "../api/live";
import type { Circle, JobRow } from "../api/types";
import { choose, set, state } from "../state/store";
import { useAnswer } from "../state/use_answer";
import * as format from "../ui/format";
import { Facts, Fault, Panel } from "../ui/panel";
import { Badge, JobName } from "../ui/pick";
import { DataTable } from "../ui/table";
import type { Rhythm } from "./geometry";
import { Rings, sentence } from "./rings";

// While an arc is dragged, the controller is asked at most so often.
const ASK_MS = 150;
const RINGS_SHOWN = 12;

/** The period and time-shift with which a job is drawn: those of the plan, else its profile's period and 0. */
export function rhythmOf(job: string, row: JobRow): Rhythm | null {
  if (!row.phases || !row.alone_ms) return null;
  return {
    job, period: row.period_ms ?? row.alone_ms, shift: row.shift_ms ?? 0, slotted: row.period_ms !== null,
    phases: row.phases.map(([from, to]) => [from, to]),
  };
}

/** When all jobs communicate. */
export function TimeShifts({ live, jobs }: { live: Live; jobs: string[] }) {
  const rhythms = jobs.map((name) => rhythmOf(name, live.tables.jobs[name]!)).filter((r) => r !== null);
  if (rhythms.length === 0) return <p class="muted">It is not known yet when the jobs communicate.</p>;
  const pick = state.address.pick;
  const shared = Object.entries(live.tables.shared);
  return (
    <>
      <Rings rhythms={rhythms.slice(0, RINGS_SHOWN)} jobs={jobs} picked={pick?.kind === "job" ? pick.id : undefined} />
      <p class="muted">
        {rhythms.some((r) => r.slotted) ? "Coloured: the job communicates. The outermost ring is the first job."
          : `Coloured: the job communicates. ${live.tables.status.plan ? "This plan has no time-shifts" : "There is no plan yet"}, so the jobs drift against each other.`}
      </p>
      <ul class="ring-list">{rhythms.slice(0, RINGS_SHOWN).map((r) => <li key={r.job}><Badge index={jobs.indexOf(r.job)} name={r.job} /><span>{sentence(r)}</span></li>)}</ul>
      {rhythms.length > RINGS_SHOWN && <p class="muted">and {rhythms.length - RINGS_SHOWN} more jobs</p>}
      <SharedLinks rows={shared} jobs={jobs} />
    </>
  );
}

function SharedLinks({ rows, jobs }: { rows: [string, { src: string; dst: string; jobs: string[]; score: number }][]; jobs: string[] }) {
  return (
    <DataTable
      caption="Links that jobs share" rows={rows} keyOf={([id]) => id} pageSize={8} empty="No two jobs share a link."
      columns={[
        { title: "Shared link", value: ([id]) => id, show: ([id, row]) => <button type="button" class="link" onClick={() => choose({ kind: "link", id })}>{row.src} → {row.dst}</button> },
        { title: "Jobs", value: ([, row]) => row.jobs.join(", "), show: ([, row]) => <>{row.jobs.map((name) => <Badge key={name} index={jobs.indexOf(name)} name={name} />)}<span class="sr">{row.jobs.join(", ")}</span></> },
        { title: "Compatibility", number: true, value: ([, row]) => row.score, show: ([, row]) => row.score.toFixed(2) },
      ]}
    />
  );
}

export function CirclesView({ live, jobs }: { live: Live; jobs: string[] }) {
  const pick = state.address.pick;
  const shared = Object.keys(live.tables.shared);
  // Where nobody has chosen a link it is one whose rings can be turned, and it stays while it is one.
  const usual = useRef("");
  const turns = (link: string) => live.tables.shared[link]?.jobs.some((job) => live.tables.jobs[job]?.period_ms != null) ?? false;
  if (!turns(usual.current)) usual.current = shared.find(turns) ?? shared[0] ?? "";
  const id = pick?.kind === "link" ? pick.id : (state.address.more["link"] || usual.current);
  const direction = live.fabric.byId.get(id);
  return (
    <div class="columns">
      <Panel id="circle" title={direction === undefined ? "Circle of a link" : `Circle of ${id.replace(">", " → ")}`} measuredNs={live.timeNs}>
        <form class="tools" onSubmit={(e) => {
          e.preventDefault();
          const name = (new FormData(e.currentTarget).get("link") as string).trim().replace(/\s*(?:→|->)\s*/, ">");
          if (live.fabric.byId.has(name)) choose({ kind: "link", id: name });
          set({ link: name });
        }}>
          <label>Link <input name="link" list="shared-links" defaultValue={id} key={id} placeholder="leaf1>spine2" /></label>
          <datalist id="shared-links">{shared.map((name) => <option key={name} value={name} />)}</datalist>
          <button type="submit">Show</button>
        </form>
        {direction === undefined
          ? <p class="muted">{id && `This fabric has no link ${id}. `}Name a link by its ends, like leaf1&gt;spine2.</p>
          : <LinkCircle key={id} id={id} live={live} jobs={jobs} direction={direction} />}
      </Panel>
      <Panel id="time-shifts" title="All jobs" measuredNs={live.timeNs}><TimeShifts live={live} jobs={jobs} /></Panel>
    </div>
  );
}

function LinkCircle({ id, live, jobs, direction }: { id: string; live: Live; jobs: string[]; direction: number }) {
  const { cable, src } = live.fabric.direction(direction);
  const path = `fabric/links/${part(cable)}/circle?src=${part(src)}`;
  const { value, fault } = useAnswer<Circle>(path, live.tables.status.plan?.version, 2000);
  const version = live.tables.status.plan?.version;
  // The shifts are those in the address, but for a ring that is held: it enters the address when it is let go.
  const inAddress = state.address.more["shifts"] ?? "";
  const [held, setHeld] = useState<{ shifts: Shifts; of: string }>({ shifts: {}, of: "" });
  const shifts = held.of === inAddress && inAddress !== "" || held.of === HELD ? held.shifts : shiftsOf(inAddress);
  const turn = (job: string, shift: number, over: boolean) => {
    const next = { ...shifts, [job]: shift };
    const text = JSON.stringify(next);
    setHeld({ shifts: next, of: over ? text : HELD });
    // With its link, so that the address shows the same to others.
    set({ link: id, ...(over ? { shifts: text } : {}) }, true);
  };
  const [tried, setTried] = useState<Circle | null>(null);
  const [refused, setRefused] = useState<Refused | null>(null);
  const asked = JSON.stringify(shifts);
  useEffect(() => {
    if (asked === "{}") {
      setTried(null);
      setRefused(null);
      return undefined;
    }
    let open = true;
    const timer = setTimeout(() => {
      call<Circle>("POST", path, { shifts_ms: shifts }).then(
        ({ value: answer }) => {
          if (!open) return;
          setTried(answer);
          setRefused(null);
        },
        (error: unknown) => {
          if (!open) return;
          setTried(null);
          setRefused(error instanceof Refused ? error : new Refused(0, String(error)));
        },
      );
    }, ASK_MS);
    return () => {
      open = false;
      clearTimeout(timer);
    };
  }, [asked, path, version]);
  if (fault && !value) return <Fault fault={fault} what="The circle of this link" />;
  if (!value) return <p class="muted">…</p>;
  if (value.jobs.length === 0) return <p class="muted">No job with a known profile sends over this link.</p>;
  const rhythms: Rhythm[] = value.jobs.map((one) => ({
    job: one.job, period: one.period_ms, shift: shifts[one.job] ?? one.shift_ms, slotted: one.slotted,
    phases: one.phases.map((p) => [p.start_ms, p.end_ms]),
  }));
  const before = new Map((tried?.before ?? []).map((one) => [one.job, one.expected_ms]));
  const change = (one: { job: string; expected_ms: number | null }) => {
    const now = before.get(one.job) ?? null;
    return one.expected_ms === null || !now ? null : one.expected_ms / now;
  };
  const [worst] = [...(tried?.after ?? [])].sort((a, b) => (change(b) ?? 0) - (change(a) ?? 0)).filter((one) => (change(one) ?? 0) > 1);
  return (
    <>
      <Rings rhythms={rhythms} jobs={jobs} turn={turn} />
      <p class="muted">
        {rhythms.some((r) => r.slotted) ? "Drag a ring, or turn it with the arrow keys: a dry run computes what these shifts would bring. Nothing is changed."
          : "No job on this link is held to slots by the present plan, so there is no shift to turn."}
      </p>
      <Facts rows={[
        ["score now", value.score === null ? "–" : value.score.toFixed(2)],
        ["score with these shifts", <output class="score">{tried?.score == null ? "–" : tried.score.toFixed(2)}</output>],
        ["link", format.rate(value.capacity_bps)],
        ...(worst ? [["most slowed by these shifts", `${worst.job}, ${format.ratio(worst.expected_ms, before.get(worst.job))} of its iteration now`] as [string, string]] : []),
      ]} />
      {refused && <Fault fault={refused} what="The dry run" />}
      <DataTable
        caption="Jobs on this link" rows={rhythms} keyOf={(r) => r.job}
        columns={[
          { title: "Job", value: (r) => r.job, show: (r) => <JobName name={r.job} jobs={jobs} /> },
          { title: "Shift ms", number: true, value: (r) => r.shift, show: (r) => format.shortMs(r.shift) },
          { title: "Period ms", number: true, value: (r) => r.period, show: (r) => format.shortMs(r.period) },
        ]}
      />
      {tried?.after && (
        <DataTable
          caption="Predicted iterations (ms)" rows={tried.after} keyOf={(one) => one.job}
          columns={[
            { title: "Job", value: (one) => one.job, show: (one) => <JobName name={one.job} jobs={jobs} /> },
            { title: "Now", number: true, value: (one) => before.get(one.job) ?? null, show: (one) => format.ms(before.get(one.job)) },
            { title: "With these shifts", number: true, value: (one) => one.expected_ms, show: (one) => format.ms(one.expected_ms) },
            { title: "Of now", number: true, value: change, show: (one) => format.ratio(one.expected_ms, before.get(one.job)) },
          ]}
        />
      )}
      {asked !== "{}" && <button type="button" onClick={() => { setHeld({ shifts: {}, of: "" }); set({ shifts: "" }); }}>Back to the plan's shifts</button>}
    </>
  );
}

type Shifts = Record<string, number>;
// In place of an address: the ring is held.
const HELD = "held";

/** The shifts (ms) in the address by job; none where it is not legal. */
function shiftsOf(text: string): Shifts {
  try {
    const value: unknown = JSON.parse(text || "{}");
    return Object.fromEntries(Object.entries(value as Shifts).filter(([, shift]) => typeof shift === "number" && Number.isFinite(shift)));
  } catch {
    return {};
  }
}
