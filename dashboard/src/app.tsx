// SPDX-License-Identifier: Apache-2.0
// The whole page: its head, the navigation between the views, and the view that the address names.

import { useEffect, useState } from "preact/hooks";
import { part } from "./api/client";
import type { Live } from "./api/live";
import type { Connection } from "./api/stream";
import type { JobDetail } from "./api/types";
import { CirclesView, TimeShifts } from "./circles/circles";
import { Details } from "./fabric/details";
import { FabricMap } from "./fabric/map";
import { FabricTables } from "./fabric/tables";
import { JobsTable, JobsView } from "./jobs/jobs";
import { OperationsView } from "./operations/operations";
import { VIEWS, type ViewName } from "./state/address";
import { choose, hrefOf, state, type State } from "./state/store";
import { useAnswer, type Fetched } from "./state/use_answer";
import { TimelineView } from "./timeline/timeline";
import * as format from "./ui/format";
import { Panel } from "./ui/panel";
import { WhatIfView } from "./whatif/what_if";

const TITLES: Record<ViewName, string> = {
  fabric: "Fabric", jobs: "Jobs", circles: "Circles", timeline: "Timeline", "what-if": "What-if", operations: "Operations",
};
const CONNECTIONS: Record<Connection, string> = { connecting: "◌ connecting…", live: "● live", reconnecting: "◌ reconnecting…" };
const THEMES = ["auto", "light", "dark"] as const;

export function App({ live, connection, refused, seenAt, address }: State) {
  useEffect(() => {
    const close = (event: KeyboardEvent) => event.key === "Escape" && state.address.pick && choose(null);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, []);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
      <header class="top">
        <img src="icon.svg" alt="" width="30" height="30" />
        <h1>Polyrhythm</h1>
        <p id="scenario">{live?.scenario ?? ""}</p>
        <nav aria-label="Views">
          {VIEWS.map((name) => <a key={name} href={hrefOf(address.pick, name)} aria-current={address.view === name ? "page" : undefined}>{TITLES[name]}</a>)}
          <a href="api/v1/docs">API</a>
        </nav>
        <Theme />
        <Status connection={connection} seenAt={seenAt} />
      </header>
      <main id="main" tabIndex={-1}>
        {refused && <p id="refused" class="fault" role="alert">The controller sends this page no new data: {refused}. The page goes on asking.</p>}
        {live ? <Body live={live} view={address.view} /> : <section class="card" id="fabric" aria-label="Fabric"><p class="muted">Waiting for the first data from the controller.</p></section>}
      </main>
    </>
  );
}

function Body({ live, view }: { live: Live; view: ViewName }) {
  const jobs = Object.keys(live.tables.jobs);
  const pick = state.address.pick;
  // A flow is named "job/source>destination".
  const job = pick?.kind === "job" ? pick.id : pick?.kind === "flow" ? pick.id.slice(0, pick.id.lastIndexOf("/")) : null;
  const known = job !== null && job in live.tables.jobs;
  const detail = useAnswer<JobDetail>(known ? `jobs/${part(job)}` : null, live.tables.status.plan?.version, 2000);
  return (
    <>
      <StatusFacts live={live} />
      {view === "fabric" && <FabricView live={live} jobs={jobs} detail={detail} />}
      {view === "jobs" && <JobsView live={live} jobs={jobs} detail={detail} />}
      {view === "circles" && <CirclesView live={live} jobs={jobs} />}
      {view === "timeline" && <TimelineView live={live} jobs={jobs} />}
      {view === "what-if" && <WhatIfView live={live} jobs={jobs} />}
      {view === "operations" && <OperationsView live={live} jobs={jobs} />}
    </>
  );
}

const NO_FLOWS: JobDetail["flows"] = [];

function FabricView({ live, jobs, detail }: { live: Live; jobs: string[]; detail: Fetched<JobDetail> }) {
  const pick = state.address.pick;
  const [moved, setMoved] = useState(NO_FLOWS);
  const all = detail.value?.flows ?? NO_FLOWS;
  const flows = pick?.kind === "flow" ? all.filter((flow) => flow.flow === pick.id) : pick?.kind === "job" ? all : pick?.kind === "link" ? moved : NO_FLOWS;
  return (
    <div class="columns uneven">
      <div class="column">
        <Panel id="fabric" title="Fabric" measuredNs={live.tables.status.measured?.time_ns}>
          <FabricMap live={live} flows={flows} jobs={jobs} />
          <FabricTables live={live} />
        </Panel>
        <Panel id="jobs" title="Jobs" measuredNs={live.timeNs}><JobsTable live={live} jobs={jobs} brief /></Panel>
      </div>
      <div class="column">
        <Panel id="details" title="Details" measuredNs={live.timeNs}><Details live={live} jobs={jobs} detail={detail} moved={setMoved} /></Panel>
        <Panel id="time-shifts" title="Time-shifts" measuredNs={live.timeNs}><TimeShifts live={live} jobs={jobs} /></Panel>
      </div>
    </div>
  );
}

/** Fabric time, policy, plan, verified paths, flows back on ECMP, switches, links, alarms. */
function StatusFacts({ live }: { live: Live }) {
  const { status, switches, cables, fallback, alarms } = live.tables;
  const rows = Object.values(switches);
  const ready = rows.filter((row) => row.state === "ready").length;
  const down = Object.entries(cables).filter(([, row]) => row.up === false).map(([name]) => name);
  const drained = rows.filter((row) => row.drained).length + Object.values(cables).filter((row) => row.drained).length;
  const paths = (status.paths?.verified ?? 0) + (status.paths?.unverified ?? 0);
  const [back, alarmed] = [Object.keys(fallback), Object.values(alarms)];
  const facts: [string, string, string, boolean][] = [
    ["Fabric time", format.time(live.timeNs), "", false],
    ["Policy", status.plan?.policy ?? "–", "", false],
    ["Plan", status.plan ? `version ${status.plan.version}` : "none yet", "", false],
    ["Verified paths", paths === 0 ? "–" : `${status.paths!.verified} of ${paths}`, paths > 0 ? "by INT probes" : "", (status.paths?.unverified ?? 0) > 0],
    ["Switches", `${ready} of ${rows.length} ready`, "", ready < rows.length],
    ["Links", down.length === 0 ? "all up" : `${down.length} down`, format.names(down), down.length > 0],
  ];
  if (back.length > 0) facts.push(["Back on ECMP", `${back.length} flows`, format.names(back), true]);
  if (drained > 0) facts.push(["Drained", `${drained}`, "", true]);
  if (alarmed.length > 0) facts.push(["Alarms", `${alarmed.length}`, format.names(alarmed.map((one) => one.subject || one.kind.replace(/_/g, " "))), true]);
  return (
    <dl id="facts" class="facts" aria-label="State of the controller">
      {facts.map(([name, value, note, warn]) => (
        <div key={name} class={warn ? "fact warn" : "fact"}><dt>{name}</dt><dd>{warn && "⚠ "}{value}{note && <small>{note}</small>}</dd></div>
      ))}
    </dl>
  );
}

function Status({ connection, seenAt }: { connection: Connection; seenAt: number }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const quiet = Math.floor((now - seenAt) / 1000);
  return <p id="connection" role="status"><span class={`pill ${connection}`}>{CONNECTIONS[connection]}{connection === "live" && quiet >= 5 ? `, no new data for ${quiet} s` : ""}</span></p>;
}

/** Follow the reader's system, or be light or dark. */
function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  return <label class="theme">Theme <select value={theme} onChange={(e) => setTheme(e.currentTarget.value)}>{THEMES.map((name) => <option key={name}>{name}</option>)}</select></label>;
}
