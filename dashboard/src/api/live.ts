// SPDX-License-Identifier: Apache-2.0
// The newest state of the controller, kept from keyframes and differences. Pure: it knows no socket.

import { Fabric } from "./fabric";
import type { Columns, Difference, Keyframe, Tables } from "./types";

export const TABLES = ["status", "jobs", "switches", "cables", "shared", "alarms", "fallback"] as const;

export interface Live {
  seq: number;
  timeNs: number;
  scenario: string;
  fabric: Fabric;
  links: Columns;
  tables: Tables;
}

/** The state that a keyframe describes. */
export function fromKeyframe(frame: Keyframe, before: Live | null): Live {
  const same = before !== null && JSON.stringify(before.fabric.columns) === JSON.stringify(frame.fabric);
  const tables = Object.fromEntries(TABLES.map((name) => [name, frame.tables[name] ?? {}])) as unknown as Tables;
  return {
    seq: frame.seq,
    timeNs: frame.time_ns,
    scenario: frame.scenario,
    fabric: same ? before.fabric : new Fabric(frame.fabric),
    links: frame.links,
    tables,
  };
}

/** Bring `live` up to date in place. False: a difference is missing in between, and a keyframe is needed. */
export function apply(live: Live, difference: Difference): boolean {
  if (difference.seq !== live.seq + 1) return false;
  live.seq = difference.seq;
  live.timeNs = difference.time_ns;
  const tables = live.tables as unknown as Record<string, Record<string, Record<string, unknown>>>;
  for (const [table, keys] of Object.entries(difference.gone ?? {})) {
    for (const key of keys) delete tables[table]?.[key];
  }
  for (const [table, rows] of Object.entries(difference.set ?? {})) {
    const known = (tables[table] ??= {});
    for (const [key, fields] of Object.entries(rows)) known[key] = { ...known[key], ...fields };
  }
  const changed = difference.links;
  if (changed?.all_load !== undefined) live.links.load = loadsOf(changed.all_load);
  for (const name of ["load", "queue_packets", "marks"] as const) {
    const values = changed?.[name];
    if (values) changed.i?.forEach((at, n) => {
      live.links[name][at] = values[n] ?? null;
    });
  }
  return true;
}

/** The loads of all directions from base64 of one byte each: 0 to 100 %, or 255 for unknown. */
function loadsOf(text: string): (number | null)[] {
  return Array.from(atob(text), (byte) => (byte.charCodeAt(0) === 255 ? null : byte.charCodeAt(0)));
}

/** The names of a job's hosts. */
export function hostsOf(live: Live, job: { hosts: number[] }): string[] {
  return job.hosts.map((i) => live.fabric.columns.hosts.name[i] ?? "?");
}

/** The link's rate in bit/s over the last poll; null: not measured. */
export function rateOf(live: Live, direction: number): number | null {
  const load = live.links.load[direction] ?? null;
  return load === null ? null : (load / 100) * live.fabric.columns.cables.rate_bps[direction >> 1]!;
}
