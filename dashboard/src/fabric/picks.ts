// SPDX-License-Identifier: Apache-2.0
// Which boxes and wires of a layout belong to what is picked.

import type { Live } from "../api/live";
import type { Flow } from "../api/types";
import type { Pick } from "../state/address";
import type { Layout } from "./layout";

/** The directions on the paths of flows, each with the index of its job among `jobs`. */
export function routesOf(live: Live, flows: Flow[], jobs: string[]): Map<number, number> {
  const routes = new Map<number, number>();
  for (const { path, job } of flows) {
    path?.slice(1).forEach((node, i) => {
      for (const direction of live.fabric.between.get(`${path[i]}>${node}`) ?? []) routes.set(direction, Math.max(0, jobs.indexOf(job)));
    });
  }
  return routes;
}

/** The box of a node, switch, host or group; -1: there is none. */
export function boxAt(live: Live, layout: Layout, pick: Pick | null): number {
  if (pick?.kind === "group") return layout.boxes.findIndex((box) => box.kind === "group" && box.id === pick.id);
  if (pick?.kind !== "switch" && pick?.kind !== "host") return -1;
  const node = live.fabric.index.get(pick.id);
  return node === undefined ? -1 : layout.boxOf[node]!;
}

/** The wire of a link, and whether the link is its direction "there". */
export function wireAt(live: Live, layout: Layout, pick: Pick | null): { wire: number; there: boolean } {
  const direction = pick?.kind === "link" ? live.fabric.byId.get(pick.id) : undefined;
  if (direction === undefined) return { wire: -1, there: true };
  for (let wire = 0; wire < layout.wires.length; wire += 1) {
    const { there, back } = layout.wires[wire]!;
    if (there.includes(direction)) return { wire, there: true };
    if (back.includes(direction)) return { wire, there: false };
  }
  return { wire: -1, there: true };
}

/** The box that an arrow key leads to from another one: beside it in its row, or nearest in the next row. */
export function neighbour(layout: Layout, from: number, key: string): number {
  const boxes = layout.boxes;
  if (boxes.length === 0) return -1;
  const now = boxes[from];
  if (!now) return boxes.reduce((best, box, i) => (box.row < boxes[best]!.row || (box.row === boxes[best]!.row && box.x < boxes[best]!.x) ? i : best), 0);
  const across = key === "ArrowLeft" ? -1 : key === "ArrowRight" ? 1 : 0;
  const row = now.row + (key === "ArrowUp" ? -1 : key === "ArrowDown" ? 1 : 0);
  let best = from;
  let nearest = Infinity;
  boxes.forEach((box, i) => {
    if (i === from || box.row !== row) return;
    const step = box.x - now.x;
    if (across !== 0 && Math.sign(step) !== across) return;
    if (Math.abs(step) < nearest) {
      nearest = Math.abs(step);
      best = i;
    }
  });
  return best;
}
