// SPDX-License-Identifier: Apache-2.0
// The tooltip of what is under the pointer.

import { rateOf, type Live } from "../api/live";
import * as format from "../ui/format";
import { column, levels, type Overlay } from "./heat";
import type { Layout } from "./layout";
import type { Hit } from "./project";

export interface Brief { title: string; rows: [string, string][] }

export function brief(live: Live, layout: Layout, hit: Hit, overlay: Overlay): Brief | null {
  if (!hit) return null;
  if ("wire" in hit) {
    const wire = layout.wires[hit.wire]!;
    const directions = hit.there ? wire.there : wire.back;
    if (directions.length === 1) return { title: linkTitle(live, directions[0]!), rows: linkRows(live, directions[0]!) };
    const values = directions.map((i) => column(live, overlay)[i]).filter((value): value is number => value != null);
    const all = levels(live, overlay);
    return {
      title: `${layout.boxes[hit.there ? wire.a : wire.b]!.id} → ${layout.boxes[hit.there ? wire.b : wire.a]!.id}`,
      rows: [["links", format.count(directions.length)], [`highest ${overlay}`, values.length ? format.count(Math.max(...values)) : "unknown"], ["down", format.count(directions.filter((i) => all[i] === 8).length)]],
    };
  }
  const box = layout.boxes[hit.box]!;
  if (box.kind === "group") return { title: box.id, rows: [["nodes", format.count(box.members.length)]] };
  const row = live.tables.switches[box.id];
  if (row) return { title: box.id, rows: [["state", row.drained ? `${row.state}, drained` : row.state], ["entries", format.count(row.entries)]] };
  const at = live.fabric.columns.hosts.name.indexOf(box.id);
  const jobs = Object.entries(live.tables.jobs).filter(([, job]) => job.hosts.includes(at)).map(([name]) => name);
  return { title: box.id, rows: [["address", live.fabric.columns.hosts.ip[at] ?? "–"], ["jobs", jobs.join(", ") || "none"]] };
}

export function linkTitle(live: Live, direction: number): string {
  const { src, dst } = live.fabric.direction(direction);
  return `${src} → ${dst}`;
}

export function linkRows(live: Live, direction: number): [string, string][] {
  const { rateBps, cable } = live.fabric.direction(direction);
  const row = live.tables.cables[cable];
  return [
    ["rate", format.rateOf(rateOf(live, direction), rateBps)],
    ["load", format.percent(live.links.load[direction])],
    ["queue", live.links.queue_packets[direction] == null ? "–" : `${format.count(live.links.queue_packets[direction])} packets`],
    ["ECN marks", format.count(live.links.marks[direction])],
    ["state", row?.up === false ? "down" : row?.drained ? "drained" : "up"],
  ];
}
