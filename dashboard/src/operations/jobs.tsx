// SPDX-License-Identifier: Apache-2.0
// Declare a job without its agents, and end one.

import { useState } from "preact/hooks";
import { part } from "../api/client";
import { hostsOf, type Live } from "../api/live";
import { state } from "../state/store";
import { Panel } from "../ui/panel";
import { Said, useChange } from "./action";

const GBPS = 1e9;

export function DeclareJob({ live }: { live: Live }) {
  const { hosts } = live.fabric.columns;
  const [outcome, send] = useChange(() => {});
  const [fault, setFault] = useState("");
  const pick = state.address.pick;
  const ends = pick?.kind === "job" && live.tables.jobs[pick.id] ? pick.id : null;
  const submit = (form: FormData) => {
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const names = text("hosts").split(/[\s,]+/).filter(Boolean);
    const unknown = names.filter((name) => !hosts.name.includes(name));
    const [period, sends, rate] = ["period", "sends", "rate"].map((name) => Number(text(name)));
    if (names.length < 2 || unknown.length > 0) {
      setFault(unknown.length > 0 ? `no host ${unknown.join(", ")}; legal: ${hosts.name.slice(0, 8).join(", ")} …` : "a job needs two hosts or more");
      return;
    }
    if (!(period! > 0 && sends! > 0 && sends! <= period! && rate! > 0)) {
      setFault("the period, the time that it sends (at most the period) and the rate must be above 0");
      return;
    }
    setFault("");
    // A ring: each host sends to the next.
    const bytes = Math.round((rate! * GBPS * sends!) / 1000 / 8);
    void send(`${text("name")} is declared`, "POST", "jobs", {
      name: text("name"), gpus: names.length, hosts: names, period_ms: period,
      phases: [{ start_ms: 0, end_ms: sends, rate_bps: Math.round(rate! * GBPS) }],
      flows: names.map((src, i) => ({ src, dst: names[(i + 1) % names.length], bytes_per_iteration: bytes })),
    });
  };
  return (
    <Panel id="declare" title="Declare or end a job" measuredNs={live.timeNs}>
      <form class="tools" onSubmit={(e) => { e.preventDefault(); submit(new FormData(e.currentTarget)); }}>
        <label>Name <input name="name" required maxLength={200} /></label>
        <label>Hosts, as a ring <input name="hosts" required placeholder={hosts.name.slice(0, 2).join(" ")} /></label>
        <label>Period ms <input name="period" required inputMode="decimal" size={7} /></label>
        <label>Sends for ms <input name="sends" required inputMode="decimal" size={7} /></label>
        <label>Rate of a flow, Gbit/s <input name="rate" required inputMode="decimal" size={7} /></label>
        <button type="submit" disabled={outcome.busy}>Declare</button>
        {ends && <button type="button" class="danger" disabled={outcome.busy} onClick={() => send(`${ends} has ended`, "DELETE", `jobs/${part(ends)}`)}>End {ends} ({hostsOf(live, live.tables.jobs[ends]!).length} hosts)</button>}
      </form>
      {fault && <p class="fault" role="alert">{fault}</p>}
      <Said outcome={outcome} />
    </Panel>
  );
}
