// SPDX-License-Identifier: Apache-2.0
// What is picked, with the reasons of the plan.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Live } from "../api/live";
import type { Flow, JobDetail, Stray } from "../api/types";
import type { Fetched } from "../state/use_answer";
import { choose, hrefOf, state } from "../state/store";
import * as format from "../ui/format";
import { Facts, Fault } from "../ui/panel";
import { JobName, PickButton } from "../ui/pick";
import { useAnswer, usePages } from "../state/use_answer";
import { part } from "../api/client";
import { linkRows, linkTitle } from "./brief";
import { CutLink } from "./cut";
import { podsOf } from "./layout";

interface Props { live: Live; jobs: string[]; detail: Fetched<JobDetail>; moved: (flows: Flow[]) => void }

export function Details({ live, jobs, detail, moved }: Props) {
  const pick = state.address.pick;
  if (!pick) return <p class="muted">Choose a job, a link, a switch or a host to see its details and the reasons of the plan.</p>;
  let body: ComponentChildren = null;
  if (pick.kind === "job") body = <Job name={pick.id} live={live} jobs={jobs} detail={detail} />;
  else if (pick.kind === "flow") body = <OneFlow name={pick.id} jobs={jobs} detail={detail} />;
  else if (pick.kind === "link") body = <Link key={pick.id} id={pick.id} live={live} jobs={jobs} moved={moved} />;
  else if (pick.kind === "switch") body = <Switch name={pick.id} live={live} />;
  else if (pick.kind === "host") body = <Host name={pick.id} live={live} jobs={jobs} />;
  else body = <Group id={pick.id} live={live} />;
  return <>{body}<p><button type="button" onClick={() => choose(null)}>Close</button></p></>;
}

function Job({ name, live, jobs, detail }: Omit<Props, "moved"> & { name: string }) {
  const row = live.tables.jobs[name];
  if (!row) return <p>There is no job {name} now.</p>;
  const { value, fault } = detail;
  return (
    <>
      <h3><JobName name={name} jobs={jobs} /> <small>{row.model}</small></h3>
      {fault && <Fault fault={fault} what="Its flows" />}
      <p class="why">{value ? (value.why ?? "The plan has no decision for this job yet.") : "…"}</p>
      <Facts rows={[
        ["level", row.level ?? "–"], ["DSCP", row.dscp ?? "–"], ["intensity", format.flops(value?.intensity)],
        ["shift", row.shift_ms === null ? "–" : `${format.shortMs(row.shift_ms)} ms`], ["iterations", format.count(row.iterations)],
        ...(value?.floor_breaches ? [["below its floor", format.times(value.floor_breaches)] as [string, string]] : []),
        ...(value?.shares_level_with.length ? [["shares its level with", value.shares_level_with.join(", ")] as [string, string]] : []),
      ]} />
      <p><a href={hrefOf({ kind: "job", id: name }, "jobs")}>Times, explanation and blame</a></p>
      {value && <><h4>{value.flows.length === 1 ? "1 flow" : `${value.flows.length} flows`}</h4><Flows key={name} flows={value.flows} /></>}
    </>
  );
}

const FLOWS_SHOWN = 40;

/** Flows with their paths; `more` fetches further ones, null: these are all. */
export function Flows({ flows, more = null }: { flows: Flow[]; more?: (() => void) | null }) {
  const [shown, setShown] = useState(FLOWS_SHOWN);
  const hidden = flows.length - shown;
  const next = () => {
    setShown(shown + FLOWS_SHOWN);
    if (hidden < FLOWS_SHOWN) more?.();
  };
  return (
    <ul class="flows">
      {flows.slice(0, shown).map((f) => (
        <li key={f.flow}>
          <PickButton pick={{ kind: "flow", id: f.flow }}>{f.path ? format.path(f.path) : `${f.flow.slice(f.job.length + 1).replace(">", " → ")} by ECMP`}</PickButton>
          <small>{f.source_port === null ? `DSCP ${f.dscp}` : `source port ${f.source_port}, DSCP ${f.dscp}`}</small>
          <span class="why">{f.why}</span>
        </li>
      ))}
      {(hidden > 0 || more) && <li class="muted">{hidden > 0 && `and ${hidden} more `}<button type="button" onClick={next}>Show more flows</button></li>}
    </ul>
  );
}

function OneFlow({ name, jobs, detail }: { name: string; jobs: string[]; detail: Fetched<JobDetail> }) {
  const one = detail.value?.flows.find((f) => f.flow === name);
  if (!one) return <p class="muted">{detail.fault ? detail.fault.message : "…"}</p>;
  return (
    <>
      <h3>{one.flow}</h3>
      <p class="why">{one.why}</p>
      <Facts rows={[
        ["path", one.path ? format.path(one.path) : "left to ECMP"],
        ["UDP source port", one.source_port ?? "chosen by the host"],
        ["DSCP", one.sent_dscp === null ? one.dscp : `sent as ${one.sent_dscp}, rewritten to ${one.dscp} by its leaf`],
        ...(one.fallback_reason === null ? [] : [["fallback", `its agent has moved it to ECMP: ${one.fallback_reason}`] as [string, string]]),
        ["pinned in", one.pinned_in.join(", ") || "no switch: its source port leads along the path"],
      ]} />
      <p>Flow of job <JobName name={one.job} jobs={jobs} /></p>
    </>
  );
}

function Link({ id, live, jobs, moved }: { id: string; live: Live; jobs: string[]; moved: (flows: Flow[]) => void }) {
  const direction = live.fabric.byId.get(id);
  const one = direction === undefined ? null : live.fabric.direction(direction);
  const flows = usePages<{ flows: Flow[]; next: string | null }>(one ? `flows?through=${part(`${one.src}-${one.dst}`)}&most=200` : null, "flows", live.tables.status.plan?.version);
  if (direction === undefined || !one) return <p>This fabric has no link {id}.</p>;
  const shared = live.tables.shared[id] ?? live.tables.shared[`${one.src}>${one.dst}`];
  const through = (flows.value?.flows ?? []).filter((f) => f.path?.some((node, i) => node === one.src && f.path![i + 1] === one.dst));
  return (
    <>
      <h3>{linkTitle(live, direction)}</h3>
      <Facts rows={[...linkRows(live, direction), ["ports", `${one.srcPort} → ${one.dstPort}`]]} />
      {shared && <p class="why">Shared by {shared.jobs.map((name, i) => <span key={name}>{i > 0 && ", "}<JobName name={name} jobs={jobs} /></span>)}; compatibility score {shared.score.toFixed(2)}.</p>}
      <p><a href={hrefOf({ kind: "link", id }, "circles")}>Circle of this link</a> · <a href={hrefOf({ kind: "link", id }, "operations")}>Drain</a></p>
      <CutLink live={live} cable={one.cable} moved={moved} />
      {flows.fault && <Fault fault={flows.fault} what="Its flows" />}
      {flows.value && <><h4>{through.length === 0 ? "No planned flow uses this link" : "Planned flows on this link"}</h4><Flows flows={through} more={flows.more} /></>}
    </>
  );
}

function Switch({ name, live }: { name: string; live: Live }) {
  const { switches } = live.fabric.columns;
  const at = switches.name.indexOf(name);
  const row = live.tables.switches[name];
  if (at < 0 || !row) return <p>This fabric has no switch {name}.</p>;
  return (
    <>
      <h3>{name} <small>{switches.tier[at]}</small></h3>
      <Facts rows={[
        ["state", row.drained ? `${row.state}, drained` : row.state], ["device id", switches.device_id[at]],
        ["table entries", format.count(row.entries)], ["illegal packets of hosts", format.count(row.strays)],
      ]} />
      <Strays leaf={name} live={live} />
      <p><a href={hrefOf({ kind: "switch", id: name }, "operations")}>Tables and drain</a></p>
    </>
  );
}

/** What a switch counted of packets that its hosts, or one of them, may not send. */
function Strays({ leaf, host, live }: { leaf: string; host?: string; live: Live }) {
  const total = live.tables.switches[leaf]?.strays ?? 0;
  const answer = useAnswer<{ strays_by_port: Stray[] }>(total > 0 ? `fabric/switches/${part(leaf)}` : null, total);
  if (answer.fault) return <Fault fault={answer.fault} what="Illegal packets" />;
  const strays = (answer.value?.strays_by_port ?? []).filter((one) => host === undefined || one.host === host);
  if (strays.length === 0) return null;
  return (
    <>
      <h4>Illegal packets</h4>
      <ul class="plain" id="strays">
        {strays.slice(0, FLOWS_SHOWN).map((one) => <li key={`${one.port}/${one.reason}`}>{host === undefined && `${one.host}: `}{one.reason} {format.count(one.packets)}</li>)}
        {strays.length > FLOWS_SHOWN && <li class="muted">and {strays.length - FLOWS_SHOWN} more</li>}
      </ul>
    </>
  );
}

function Host({ name, live, jobs }: { name: string; live: Live; jobs: string[] }) {
  const { hosts } = live.fabric.columns;
  const at = hosts.name.indexOf(name);
  if (at < 0) return <p>This fabric has no host {name}.</p>;
  const leaf = live.fabric.nodes[hosts.leaf[at]!]!;
  const load = (from: string, to: string) => {
    const [i] = live.fabric.between.get(`${from}>${to}`) ?? [];
    return i === undefined || live.links.load[i] == null ? "unknown" : format.percent(live.links.load[i]);
  };
  return (
    <>
      <h3>{name} <small>host</small></h3>
      <Facts rows={[
        ["address", hosts.ip[at]], ["leaf", <><PickButton pick={{ kind: "switch", id: leaf }}>{leaf}</PickButton> port {hosts.leaf_port[at]}</>],
        ["NIC", format.rate(hosts.rate_bps[at])], ["sends", load(name, leaf)], ["receives", load(leaf, name)],
      ]} />
      <ul class="plain">{jobs.filter((job) => live.tables.jobs[job]!.hosts.includes(at)).map((job) => <li key={job}><JobName name={job} jobs={jobs} /></li>)}</ul>
      <Strays leaf={leaf} host={name} live={live} />
    </>
  );
}

function Group({ id, live }: { id: string; live: Live }) {
  const { switches } = live.fabric.columns;
  const { podOf } = podsOf(live.fabric);
  const [, tier, pod] = /^(?:(?:all )?(\w+?)s?(?: of )?)?(?:pod (\d+))?$/.exec(id) ?? [];
  const inside = switches.name.filter((_, i) => (!pod || podOf[i] === Number(pod) - 1) && (!tier || switches.tier[i] === tier));
  return (
    <>
      <h3>{id}</h3>
      <ul class="plain">{inside.slice(0, FLOWS_SHOWN).map((name) => <li key={name}><PickButton pick={{ kind: "switch", id: name }}>{name}</PickButton></li>)}</ul>
      {inside.length > FLOWS_SHOWN && <p class="muted">and {inside.length - FLOWS_SHOWN} more: in the tables below the map</p>}
    </>
  );
}
