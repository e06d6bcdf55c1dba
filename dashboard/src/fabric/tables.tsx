// SPDX-License-Identifier: Apache-2.0
// Everything of the map as tables.

import { useState } from "preact/hooks";
import { rateOf, type Live } from "../api/live";
import * as format from "../ui/format";
import { PickButton } from "../ui/pick";
import { DataTable } from "../ui/table";
import { state } from "../state/store";

/** The tables are made while they are shown only: those of a large fabric have tens of thousands of rows. */
export function FabricTables({ live }: { live: Live }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="twin" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>The map as tables</summary>
      {open && <Tables live={live} />}
    </details>
  );
}

function Tables({ live }: { live: Live }) {
  const { fabric, tables, links } = live;
  const { switches, hosts } = fabric.columns;
  const pick = state.address.pick;
  const range = (n: number) => Array.from({ length: n }, (_, i) => i);
  const jobsOn: string[][] = hosts.name.map(() => []);
  for (const [name, job] of Object.entries(tables.jobs)) for (const i of job.hosts) jobsOn[i]?.push(name);
  const id = (i: number) => fabric.direction(i).id;
  const known = (value: number | null | undefined, show: (value: number) => string) => (value == null ? "unknown" : show(value));
  return (
    <>
      <DataTable
        caption="Links" rows={range(fabric.size)} keyOf={id}
        picked={(i) => pick?.kind === "link" && pick.id === id(i)}
        columns={[
          { title: "Link", value: id, show: (i) => <PickButton pick={{ kind: "link", id: id(i) }}>{id(i).replace(">", " → ")}</PickButton> },
          { title: "Rate", number: true, value: (i) => rateOf(live, i), show: (i) => format.rate(rateOf(live, i)) },
          { title: "Load", number: true, value: (i) => links.load[i] ?? null, show: (i) => known(links.load[i], format.percent) },
          { title: "Queue", number: true, value: (i) => links.queue_packets[i] ?? null, show: (i) => known(links.queue_packets[i], format.count) },
          { title: "ECN marks", number: true, value: (i) => links.marks[i] ?? null, show: (i) => known(links.marks[i], format.count) },
          { title: "State", value: (i) => cableState(live, i) },
        ]}
      />
      <DataTable
        caption="Switches" rows={range(switches.name.length)} keyOf={(i) => switches.name[i]!}
        picked={(i) => pick?.kind === "switch" && pick.id === switches.name[i]}
        columns={[
          { title: "Switch", value: (i) => switches.name[i]!, show: (i) => <PickButton pick={{ kind: "switch", id: switches.name[i]! }}>{switches.name[i]}</PickButton> },
          { title: "Tier", value: (i) => switches.tier[i]! },
          { title: "State", value: (i) => tables.switches[switches.name[i]!]?.state ?? "unknown" },
          { title: "Drained", value: (i) => (tables.switches[switches.name[i]!]?.drained ? "drained" : "no") },
          { title: "Entries", number: true, value: (i) => tables.switches[switches.name[i]!]?.entries ?? null },
        ]}
      />
      <DataTable
        caption="Hosts" rows={range(hosts.name.length)} keyOf={(i) => hosts.name[i]!}
        picked={(i) => pick?.kind === "host" && pick.id === hosts.name[i]}
        columns={[
          { title: "Host", value: (i) => hosts.name[i]!, show: (i) => <PickButton pick={{ kind: "host", id: hosts.name[i]! }}>{hosts.name[i]}</PickButton> },
          { title: "Address", value: (i) => hosts.ip[i]! },
          { title: "Leaf", value: (i) => fabric.nodes[hosts.leaf[i]!]! },
          { title: "Jobs", value: (i) => jobsOn[i]!.join(", ") },
        ]}
      />
    </>
  );
}

function cableState(live: Live, i: number): string {
  const row = live.tables.cables[live.fabric.direction(i).cable];
  return row?.up === false ? "down" : row?.drained ? "drained" : "up";
}
