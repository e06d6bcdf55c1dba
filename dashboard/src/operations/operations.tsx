// SPDX-License-Identifier: Apache-2.0
// The operator's view: what is wrong, switches and their tables, drains, policy, plans, the audit log.

import { useState } from "preact/hooks";
import { token } from "../api/client";
import type { Live } from "../api/live";
import type { AuditRecord, Readiness } from "../api/types";
import { state } from "../state/store";
import { useAnswer, usePages } from "../state/use_answer";
import * as format from "../ui/format";
import { Facts, Fault, Panel } from "../ui/panel";
import { PickButton } from "../ui/pick";
import { DataTable } from "../ui/table";
import { Drains } from "./drains";
import { DeclareJob } from "./jobs";
import { Plans } from "./plans";
import { PolicyPanel } from "./policy";
import { SwitchTables } from "./tables";

export function OperationsView({ live, jobs }: { live: Live; jobs: string[] }) {
  const ready = useAnswer<Readiness>("readyz", 0, 3000);
  const pick = state.address.pick;
  return (
    <div class="columns">
      <div class="column">
        <Panel id="alarms" title="Alarms" measuredNs={live.timeNs}><Alarms live={live} /></Panel>
        <Panel id="drains" title="Drain, undrain, cut" measuredNs={live.timeNs}><Drains live={live} /></Panel>
        <PolicyPanel jobs={jobs} />
        <Plans live={live} />
      </div>
      <div class="column">
        <Panel id="sessions" title="Controller and sessions" readAt={ready.at}>
          {ready.fault && <Fault fault={ready.fault} what="Readiness" />}
          {ready.value && (
            <Facts rows={[
              ["role", ready.value.controller.role], ["election id", ready.value.controller.election_id || "–"],
              ["switches", `${ready.value.switches.ready} of ${ready.value.switches.of} ready`],
              ["agents", `${ready.value.agents.ready} of ${ready.value.agents.of} connected`], ["store", ready.value.store],
            ]} />
          )}
          <Token />
        </Panel>
        <Panel id="switches" title="Switches" measuredNs={live.timeNs}>
          <DataTable
            caption="Switches and their sessions" quiet rows={Object.keys(live.tables.switches)} keyOf={(name) => name} pageSize={10}
            picked={(name) => pick?.kind === "switch" && pick.id === name}
            columns={[
              { title: "Switch", value: (name) => name, show: (name) => <PickButton pick={{ kind: "switch", id: name }}>{name}</PickButton> },
              { title: "Session", value: (name) => live.tables.switches[name]!.state },
              { title: "Drained", value: (name) => (live.tables.switches[name]!.drained ? "drained" : "no") },
              { title: "Entries", number: true, value: (name) => live.tables.switches[name]!.entries },
              { title: "Illegal packets", number: true, value: (name) => live.tables.switches[name]!.strays },
            ]}
          />
        </Panel>
        {pick?.kind === "switch" ? <SwitchTables key={pick.id} name={pick.id} live={live} /> : <p class="muted hint">Choose a switch to see its tables.</p>}
        <DeclareJob live={live} />
        <Audit />
      </div>
    </div>
  );
}

/** The alarms that the controller raises: the same as those of `GET /alarms`. */
function Alarms({ live }: { live: Live }) {
  return (
    <DataTable
      caption="Alarms" quiet rows={Object.entries(live.tables.alarms)} keyOf={([name]) => name} empty="No alarm."
      columns={[
        { title: "Alarm", value: ([, one]) => one.kind, show: ([, one]) => <span class="warn">⚠ {one.kind.replace(/_/g, " ")}</span> },
        { title: "Of", value: ([, one]) => one.subject },
        { title: "Since", value: ([, one]) => one.since_ns, show: ([, one]) => format.time(one.since_ns) },
        { title: "What", value: ([, one]) => one.text },
      ]}
    />
  );
}

function Token() {
  const [value, setValue] = useState(token.get());
  return (
    <form class="tools" onSubmit={(e) => { e.preventDefault(); token.set(value.trim()); }}>
      <label>Token for changes <input type="password" autoComplete="off" value={value} onInput={(e) => setValue(e.currentTarget.value)} placeholder="if the controller asks for one" /></label>
      <button type="submit">Use</button>
    </form>
  );
}

function Audit() {
  const { value, fault, at, more } = usePages<{ records: AuditRecord[]; next: string | null }>("audit?most=200", "records", 0, 5000);
  return (
    <Panel id="audit" title="Audit log" readAt={at}>
      {fault && <Fault fault={fault} what="The audit log" />}
      {value && (
        <DataTable
          caption="Changes that were asked for" quiet rows={value.records} keyOf={(one) => String(one.number)} empty="Nobody has asked for a change yet." pageSize={10} more={more}
          columns={[
            { title: "When (UTC)", value: (one) => one.time, show: (one) => format.utc(Date.parse(one.time)) },
            { title: "Who", value: (one) => one.caller || "nobody known" },
            { title: "From", value: (one) => one.peer },
            { title: "What", value: (one) => `${one.method} ${one.path}` },
            { title: "Answer", number: true, value: (one) => one.status },
          ]}
        />
      )}
    </Panel>
  );
}
