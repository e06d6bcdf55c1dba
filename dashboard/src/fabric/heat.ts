// SPDX-License-Identifier: Apache-2.0
// What a direction of a cable shows: its overlay's value as one of a few levels, or that it is down or unknown.

import type { Live } from "../api/live";

export type Overlay = "load" | "queue" | "marks";
/** Levels 0 to 5 by value; the others say more than a value does. Higher ones are drawn later. */
export const UNKNOWN = 6;
export const DRAINED = 7;
export const DOWN = 8;
export const LEVELS = 9;

/** The lower bounds of the levels 1 to 5. Chosen: load by its use, queues by powers of about three. */
export const BOUNDS: Record<Overlay, number[]> = {
  load: [1, 20, 40, 60, 80],
  queue: [1, 5, 20, 50, 150],
  marks: [1, 10, 100, 1_000, 10_000],
};

export const OVERLAYS: Record<Overlay, { title: string; unit: string }> = {
  load: { title: "Load", unit: "%" },
  queue: { title: "Queue", unit: "packets" },
  marks: { title: "ECN marks", unit: "packets" },
};

export function column(live: Live, overlay: Overlay): (number | null)[] {
  return overlay === "load" ? live.links.load : overlay === "queue" ? live.links.queue_packets : live.links.marks;
}

export function levelOf(value: number | null | undefined, overlay: Overlay): number {
  if (value == null) return UNKNOWN;
  const bounds = BOUNDS[overlay];
  let level = 0;
  while (level < bounds.length && value >= bounds[level]!) level += 1;
  return level;
}

/** The level of each direction. A cable at a switch that is down is down too. */
export function levels(live: Live, overlay: Overlay): Uint8Array {
  const values = column(live, overlay);
  const { cables, switches } = live.tables;
  const result = new Uint8Array(live.fabric.size);
  for (let i = 0; i < result.length; i += 1) result[i] = levelOf(values[i], overlay);
  for (const [name, row] of Object.entries(cables)) {
    const k = live.fabric.cables.get(name);
    if (k === undefined || (row.up !== false && !row.drained)) continue;
    result[2 * k] = result[2 * k + 1] = row.up === false ? DOWN : DRAINED;
  }
  for (const name in switches) {
    const row = switches[name]!;
    if (row.state !== "down" && !row.drained) continue;
    for (const i of live.fabric.around(live.fabric.index.get(name) ?? -1)) if (result[i] !== DOWN) result[i] = row.state === "down" ? DOWN : DRAINED;
  }
  return result;
}

/** The level of several directions together: the highest of their values; down only if all are. */
export function together(all: Uint8Array, directions: number[]): number {
  if (directions.length === 1) return all[directions[0]!]!;
  let value = -1;
  let least = DOWN;
  for (const i of directions) {
    const level = all[i]!;
    if (level < UNKNOWN) value = Math.max(value, level);
    least = Math.min(least, level);
  }
  return value >= 0 ? value : least;
}
