// SPDX-License-Identifier: Apache-2.0
// The newest state of the controller, kept from keyframes and differences. Pure: it knows no socket.

import type { Columns, Difference, FabricColumns, Keyframe, Tables } from "./types";

export const TABLES = ["status", "jobs", "switches", "cables", "shared", "alarms", "fallback"] as const;

/** One direction of a cable, at index 2 * cable (a to b) or 2 * cable + 1 (b to a) of the columns. */
export interface Direction {
  src: string;
  dst: string;
  srcPort: number;
  dstPort: number;
  rateBps: number;
  cable: string;
  /** "leaf1>spine2", with ports where several cables join the two nodes. */
  id: string;
}

/** What of a fabric does not change while a controller runs. */
export interface Fabric {
  columns: FabricColumns;
  nodes: string[];
  index: Map<string, number>;
  directions: Direction[];
  /** Indices of all parallel directions from one node to another, by "src>dst". */
  between: Map<string, number[]>;
  byId: Map<string, number>;
  /** The number of a cable by its name. */
  cables: Map<string, number>;
  /** The directions that leave or enter a switch, by its name; made when first asked for. */
  around: (name: string) => number[];
}

export interface Live {
  seq: number;
  timeNs: number;
  scenario: string;
  fabric: Fabric;
  links: Columns;
  tables: Tables;
}

export function fabricOf(columns: FabricColumns): Fabric {
  const nodes = [...columns.switches.name, ...columns.hosts.name];
  const { a, b, a_port, b_port, rate_bps } = columns.cables;
  const parallel = new Map<number, number>();
  const pairOf = (k: number) => Math.min(a[k]!, b[k]!) * nodes.length + Math.max(a[k]!, b[k]!);
  for (let k = 0; k < a.length; k += 1) parallel.set(pairOf(k), (parallel.get(pairOf(k)) ?? 0) + 1);
  const directions: Direction[] = [];
  const between = new Map<string, number[]>();
  const byId = new Map<string, number>();
  const cables = new Map<string, number>();
  for (let k = 0; k < a.length; k += 1) {
    const several = parallel.get(pairOf(k))! > 1;
    const ends = [[nodes[a[k]!]!, a_port[k]!], [nodes[b[k]!]!, b_port[k]!]] as const;
    const named = ends.map(([node, port]) => (several ? `${node}:${port}` : node));
    const cable = named[0]! < named[1]! ? `${named[0]}-${named[1]}` : `${named[1]}-${named[0]}`;
    cables.set(cable, k);
    for (const [from, to] of [[0, 1], [1, 0]] as const) {
      const [src, srcPort] = ends[from];
      const [dst, dstPort] = ends[to];
      const id = `${named[from]}>${named[to]}`;
      const pair = `${src}>${dst}`;
      byId.set(id, directions.length);
      const known = between.get(pair);
      if (known) known.push(directions.length);
      else between.set(pair, [directions.length]);
      directions.push({ src, dst, srcPort, dstPort, rateBps: rate_bps[k]!, cable, id });
    }
  }
  let ofSwitch: Map<string, number[]> | null = null;
  const around = (name: string): number[] => {
    if (ofSwitch === null) {
      ofSwitch = new Map(columns.switches.name.map((one) => [one, []]));
      for (let i = 0; i < directions.length; i += 1) {
        ofSwitch.get(directions[i]!.src)?.push(i);
        ofSwitch.get(directions[i]!.dst)?.push(i);
      }
    }
    return ofSwitch.get(name) ?? [];
  };
  return { columns, nodes, index: new Map(nodes.map((name, i) => [name, i])), directions, between, byId, cables, around };
}

/** The state that a keyframe describes. */
export function fromKeyframe(frame: Keyframe, before: Live | null): Live {
  const same = before !== null && JSON.stringify(before.fabric.columns) === JSON.stringify(frame.fabric);
  const tables = Object.fromEntries(TABLES.map((name) => [name, frame.tables[name] ?? {}])) as unknown as Tables;
  return {
    seq: frame.seq,
    timeNs: frame.time_ns,
    scenario: frame.scenario,
    fabric: same ? before.fabric : fabricOf(frame.fabric),
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
  return load === null ? null : (load / 100) * live.fabric.directions[direction]!.rateBps;
}
