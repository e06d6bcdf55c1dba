// SPDX-License-Identifier: Apache-2.0
// From the layout to pixels of the canvas, for one zoom; and back, from a point to what is there. Pure.

import type { Layout } from "./layout";

export interface Camera {
  /** 1: the whole fabric; n: the n-th part of its width. */
  zoom: number;
  /** The fraction of the fabric's width that is in the middle. */
  middle: number;
}

export interface Projected {
  width: number;
  height: number;
  /** The middle and the size of each box in CSS pixels. */
  x: Float32Array;
  y: Float32Array;
  w: Float32Array;
  h: Float32Array;
  /** Both ends of each wire: x1, y1, x2, y2. */
  ends: Float32Array;
  /** Whether the hosts of a leaf are a block of cells below it, whose cables are not drawn. */
  cells: boolean;
  /** How many wires are in sight. */
  seen: number;
}

const LARGEST = { core: 96, spine: 104, pod: 130, leaf: 150, host: 62 };
// Below this room a host becomes a cell of its leaf's block.
const CELL_ROOM = 13;
const TOP = 30;
const BOTTOM = 34;
const BLOCK = 72;
// Boxes below this width (pixels) do not hold a short name.
const NAMED = 30;
/** The height of the name of a row, and the room below a block of cells for it. */
export const ROW_NAME = 15;
const BELOW_BLOCK = 8;

export function clampCamera(camera: Camera, most: number): Camera {
  const zoom = Math.min(Math.max(1, camera.zoom), most);
  const half = 0.5 / zoom;
  return { zoom, middle: Math.min(Math.max(camera.middle, half), 1 - half) };
}

export function project(layout: Layout, width: number, height: number, camera: Camera): Projected {
  const { boxes, wires, rows } = layout;
  const n = boxes.length;
  const [x, y, w, h] = [new Float32Array(n), new Float32Array(n), new Float32Array(n), new Float32Array(n)];
  const across = width * camera.zoom;
  const left = width / 2 - camera.middle * across;
  const hostRow = rows.indexOf("host");
  const cells = hostRow >= 0 && boxes.some((box) => box.tier === "host" && box.kind === "host" && box.room * across < CELL_ROOM);
  // A block of hosts lies close to its leaf, and leaves the height to the cables.
  const gaps = cells ? rows.length - 2 : rows.length - 1;
  const step = gaps > 0 ? (height - TOP - BOTTOM - (cells ? BLOCK + BELOW_BLOCK : 0)) / gaps : 0;
  const blockTop = TOP + (hostRow - 1) * step + 24;
  for (let i = 0; i < n; i += 1) {
    const box = boxes[i]!;
    const room = box.room * across;
    if (cells && box.tier === "host" && box.kind === "host") {
      // A block of cells, as square as the leaf's room and the height allow.
      const all = room * box.of;
      const columns = Math.max(1, Math.min(box.of, Math.floor(all / 4), Math.ceil(Math.sqrt((box.of * all) / 56))));
      const lines = Math.ceil(box.of / columns);
      const cw = (all * 0.9) / columns;
      const ch = Math.min((BLOCK - 4) / lines, 12);
      const leafX = left + (box.x - (box.place + 0.5 - box.of / 2) * box.room) * across;
      x[i] = leafX - all * 0.45 + ((box.place % columns) + 0.5) * cw;
      y[i] = blockTop + (Math.floor(box.place / columns) + 0.5) * ch;
      w[i] = Math.max(1, cw - (cw > 4 ? 1 : 0));
      h[i] = Math.max(1, ch - (ch > 3 ? 1 : 0));
    } else {
      x[i] = left + box.x * across;
      y[i] = TOP + box.row * step;
      w[i] = Math.max(1.5, Math.min(LARGEST[box.tier], room - Math.min(12, room * 0.25)));
      h[i] = box.kind === "host" ? 26 : 30;
    }
  }
  const ends = new Float32Array(4 * wires.length);
  let seen = 0;
  for (let k = 0; k < wires.length; k += 1) {
    const { a, b, aAt, bAt } = wires[k]!;
    const down = y[b]! >= y[a]! ? 1 : -1;
    const x1 = x[a]! + (aAt - 0.5) * w[a]! * 0.86;
    const x2 = x[b]! + (bAt - 0.5) * w[b]! * 0.86;
    ends[4 * k] = x1;
    ends[4 * k + 1] = y[a]! + (down * h[a]!) / 2;
    ends[4 * k + 2] = x2;
    ends[4 * k + 3] = y[b]! - (down * h[b]!) / 2;
    if (Math.max(x1, x2) >= 0 && Math.min(x1, x2) <= width) seen += 1;
  }
  return { width, height, x, y, w, h, ends, cells, seen };
}

/** What each row is, where its boxes have no room for their names; and the top of these words, which cover no box. */
export function rowNames(layout: Layout, at: Projected): { text: string; top: number }[] {
  return layout.rows.flatMap((tier, row) => {
    const boxes = [...layout.boxes.keys()].filter((i) => layout.boxes[i]!.row === row);
    const [first] = boxes;
    if (first === undefined || at.w[first]! >= NAMED) return [];
    const text = `${boxes.length} ${tier === "leaf" ? "leaves" : `${tier}s`}`;
    // Above a row end only cables. Above a block of cells is its leaf.
    const block = at.cells && layout.boxes[first]!.kind === "host";
    const top = block
      ? boxes.reduce((most, i) => Math.max(most, at.y[i]! + at.h[i]! / 2), 0) + 2
      : at.y[first]! - at.h[first]! / 2 - ROW_NAME;
    return [{ text, top }];
  });
}

export type Hit = { box: number } | { wire: number; there: boolean } | null;

/** What is at a point, within a few pixels. */
export function hit(layout: Layout, at: Projected, px: number, py: number): Hit {
  for (let i = 0; i < layout.boxes.length; i += 1) {
    const [dx, dy] = [Math.abs(px - at.x[i]!), Math.abs(py - at.y[i]!)];
    if (dx <= Math.max(at.w[i]! / 2, 2) && dy <= Math.max(at.h[i]! / 2, 2)) return { box: i };
  }
  let best = 49;
  let found: Hit = null;
  for (let k = 0; k < layout.wires.length; k += 1) {
    if (at.cells && isHostWire(layout, k)) continue;
    const [x1, y1, x2, y2] = [at.ends[4 * k]!, at.ends[4 * k + 1]!, at.ends[4 * k + 2]!, at.ends[4 * k + 3]!];
    const [vx, vy] = [x2 - x1, y2 - y1];
    const length = vx * vx + vy * vy || 1;
    const t = Math.min(1, Math.max(0, ((px - x1) * vx + (py - y1) * vy) / length));
    const [ex, ey] = [px - x1 - t * vx, py - y1 - t * vy];
    const distance = ex * ex + ey * ey;
    if (distance < best) {
      best = distance;
      // Beside each other, the direction a to b is on the right of its way; as halves, each is near its source.
      const aside = vx * (py - y1) - vy * (px - x1);
      found = { wire: k, there: sparse(at) ? aside > 0 : t < 0.5 };
    }
  }
  return found;
}

/** Whether there is room to draw both directions of a cable as arrows beside each other. */
export function sparse(at: Projected): boolean {
  return at.seen <= Math.max(40, at.width / 5);
}

/** Whether a part of a wire is inside the width of the picture. */
export function inSight(at: Projected, k: number): boolean {
  const [x1, x2] = [at.ends[4 * k]!, at.ends[4 * k + 2]!];
  return Math.max(x1, x2) >= 0 && Math.min(x1, x2) <= at.width;
}

export function isHostWire(layout: Layout, k: number): boolean {
  const { a, b } = layout.wires[k]!;
  return layout.boxes[a]!.kind === "host" || layout.boxes[b]!.kind === "host";
}
