// SPDX-License-Identifier: Apache-2.0
// Everything of the map as tables.

import { rateOf, type Live } from "../api/live";
import * as format from "../ui/format";
import { PickButton } from "../ui/pick";
import { DataTable } from "../ui/table";
import { state } from "../state/store";

export function FabricTables({ live }: { live: Live }) {
  const { fabric, tables, links } = live;
  const { switches, hosts } = fabric.columns;
  const pick = state.address.pick;
  const range = (n: number) => Array.from({ length: n }, (_, i) => i);
  const jobsOn = (i: number) => Object.entries(tables.jobs).filter(([, job]) => job.hosts.includes(i)).map(([name]) => name);
  return (
    <details class="twin">
      <summary>The map as tables</summary>
      <DataTable
        caption="Links" rows={range(fabric.directions.length)} keyOf={(i) => fabric.directions[i]!.id}
        picked={(i) => pick?.kind === "link" && pick.id === fabric.directions[i]!.id}
        columns={[
          { title: "Link", value: (i) => fabric.directions[i]!.id, show: (i) => <PickButton pick={{ kind: "link", id: fabric.directions[i]!.id }}>{fabric.directions[i]!.id.replace(">", " → ")}</PickButton> },
          { title: "Rate", number: true, value: (i) => rateOf(live, i), show: (i) => format.rate(rateOf(live, i)) },
          { title: "Load", number: true, value: (i) => links.load[i] ?? null, show: (i) => (links.load[i] == null ? "unknown" : format.percent(links.load[i])) },
          { title: "Queue", number: true, value: (i) => links.queue_packets[i] ?? null, show: (i) => (links.queue_packets[i] == null ? "unknown" : format.count(links.queue_packets[i])) },
          { title: "ECN marks", number: true, value: (i) => links.marks[i] ?? null, show: (i) => (links.marks[i] == null ? "unknown" : format.count(links.marks[i])) },
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
          { title: "Jobs", value: (i) => jobsOn(i).join(", ") },
        ]}
      />
    </details>
  );
}

function cableState(live: Live, i: number): string {
  const row = live.tables.cables[live.fabric.directions[i]!.cable];
  return row?.up === false ? "down" : row?.drained ? "drained" : "up";
}
