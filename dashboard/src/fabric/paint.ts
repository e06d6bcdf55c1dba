// SPDX-License-Identifier: Apache-2.0
// Draws the fabric on a canvas.

import type { Live } from "../api/live";
import type { Colours } from "./colours";
import { DOWN, DRAINED, UNKNOWN, together } from "./heat";
import type { Box, Layout } from "./layout";
import { inSight, isHostWire, ROW_NAME, rowNames, sparse, type Projected } from "./project";
import { NOTHING, raster, type Cell } from "./raster";

export interface Scene {
  live: Live;
  layout: Layout;
  at: Projected;
  levels: Uint8Array;
  colours: Colours;
  /** Direction -> index of the job whose path it is on. */
  routes: Map<number, number>;
  /** Boxes and wires that are picked or have the keyboard's focus, and boxes that belong to the picked job. */
  picked: { box: number; wire: number; there: boolean };
  focus: number;
  marked: Map<number, number>;
  /** Host node -> indices of its jobs. */
  jobsOf: Map<string, number[]>;
  density: number;
}

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';
const SIGNS: Record<string, string> = { ready: "●", connecting: "◌", waiting: "◌", down: "✕" };

export function paint(canvas: HTMLCanvasElement, scene: Scene): void {
  const { at, density } = scene;
  const context = canvas.getContext("2d")!;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (sparse(at)) {
    context.setTransform(density, 0, 0, density, 0, 0);
    arrows(context, scene);
  } else {
    dense(context, canvas, scene);
    context.setTransform(density, 0, 0, density, 0, 0);
  }
  routes(context, scene);
  boxes(context, scene);
}

/** The level of direction "there" of every wire that is drawn at 2 * k, and of "back" at 2 * k + 1. */
function wireLevels({ layout, at, levels }: Scene): Uint8Array {
  const { wires } = layout;
  const halves = new Uint8Array(2 * wires.length).fill(NOTHING);
  for (let k = 0; k < wires.length; k += 1) {
    if (at.cells && isHostWire(layout, k)) continue;
    halves[2 * k] = together(levels, wires[k]!.there);
    halves[2 * k + 1] = together(levels, wires[k]!.back);
  }
  return halves;
}

/** The hosts that are in sight as cells. */
function cellsOf({ layout, at, levels }: Scene): Cell[] {
  const found: Cell[] = [];
  if (!at.cells) return found;
  layout.wires.forEach((wire, k) => {
    if (!isHostWire(layout, k)) return;
    const sends = layout.boxes[wire.a]!.kind === "host";
    const box = sends ? wire.a : wire.b;
    if (at.x[box]! < 0 || at.x[box]! > at.width) return;
    found.push({ box, up: together(levels, sends ? wire.there : wire.back), down: together(levels, sends ? wire.back : wire.there) });
  });
  return found;
}

function dense(context: CanvasRenderingContext2D, canvas: HTMLCanvasElement, scene: Scene): void {
  const image = raster(scene.at, wireLevels(scene), cellsOf(scene), scene.colours, scene.routes.size > 0, scene.density);
  if (image.width === canvas.width && image.height === canvas.height) {
    context.putImageData(image, 0, 0);
    return;
  }
  const between = new OffscreenCanvas(image.width, image.height);
  between.getContext("2d")!.putImageData(image, 0, 0);
  context.drawImage(between, 0, 0, canvas.width, canvas.height);
}

/** Both directions beside each other, as arrows whose thickness and colour show the level. */
function arrows(context: CanvasRenderingContext2D, scene: Scene): void {
  const { at, colours } = scene;
  const halves = wireLevels(scene);
  const dim = scene.routes.size > 0;
  for (let k = 0; k < scene.layout.wires.length; k += 1) {
    if (halves[2 * k] === NOTHING || !inSight(at, k)) continue;
    const [x1, y1, x2, y2] = at.ends.subarray(4 * k, 4 * k + 4) as unknown as [number, number, number, number];
    const onRoute = (directions: number[]) => directions.some((i) => scene.routes.has(i));
    const wire = scene.layout.wires[k]!;
    for (const [level, directions, ends] of [[halves[2 * k]!, wire.there, [x1, y1, x2, y2]], [halves[2 * k + 1]!, wire.back, [x2, y2, x1, y1]]] as const) {
      context.globalAlpha = dim && !onRoute(directions) ? 0.35 : 1;
      const picked = scene.picked.wire === k && scene.picked.there === (directions === wire.there);
      if (picked) lane(context, ends, 3.4, colours.accent, 9, []);
      if (level === DOWN) {
        lane(context, ends, 3, colours.bad, 2, [6, 5]);
        sign(context, ends, "✕", colours.bad, colours.card);
      } else if (level === DRAINED) {
        lane(context, ends, 3, colours.warn, 2, [10, 4]);
        sign(context, ends, "‖", colours.warn, colours.card);
      } else if (level === UNKNOWN) {
        lane(context, ends, 3, colours.levels[UNKNOWN]!, 1.4, [1.5, 4]);
        sign(context, ends, "?", colours.levels[UNKNOWN]!, colours.card);
      } else arrow(context, ends, level, colours.levels[level]!);
    }
  }
  context.globalAlpha = 1;
}

type Ends = readonly [number, number, number, number];

/** A line to the right of the cable's axis, seen from the source. */
function lane(context: CanvasRenderingContext2D, [x1, y1, x2, y2]: Ends, aside: number, colour: string, width: number, dashes: number[]): void {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ox, oy] = [(-(y2 - y1) / length) * aside, ((x2 - x1) / length) * aside];
  context.beginPath();
  context.setLineDash(dashes);
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.moveTo(x1 + ox, y1 + oy);
  context.lineTo(x2 + ox, y2 + oy);
  context.stroke();
  context.setLineDash([]);
}

function sign(context: CanvasRenderingContext2D, [x1, y1, x2, y2]: Ends, text: string, colour: string, ground: string): void {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  // A third of the way, so that the signs of the two directions do not cover each other.
  const x = x1 + (x2 - x1) * 0.36 - ((y2 - y1) / length) * 3;
  const y = y1 + (y2 - y1) * 0.36 + ((x2 - x1) / length) * 3;
  context.font = `bold ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = 4;
  context.strokeStyle = ground;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

function arrow(context: CanvasRenderingContext2D, [x1, y1, x2, y2]: Ends, level: number, colour: string): void {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const thick = 1.4 + 1.2 * level;
  const [near, far, head] = [1.4, 1.4 + thick, 7 + thick * 0.7];
  const [tail, tip] = [2, length - 2];
  const to = (along: number, aside: number) => [x1 + ux * along - uy * aside, y1 + uy * along + ux * aside] as const;
  context.beginPath();
  context.moveTo(...to(tail, near));
  context.lineTo(...to(tip - head, near));
  context.lineTo(...to(tip - head, near - 1));
  context.lineTo(...to(tip, near + thick / 2));
  context.lineTo(...to(tip - head, far + 2.5));
  context.lineTo(...to(tip - head, far));
  context.lineTo(...to(tail, far));
  context.closePath();
  context.fillStyle = colour;
  context.fill();
}

/** The paths of the picked job or flow, over everything else; dense cables have no lanes of their own. */
function routes(context: CanvasRenderingContext2D, scene: Scene): void {
  const lanes = sparse(scene.at);
  if (scene.routes.size === 0 && scene.picked.wire < 0) return;
  scene.layout.wires.forEach((wire, k) => {
    if ((scene.at.cells && isHostWire(scene.layout, k)) || !inSight(scene.at, k)) return;
    const [x1, y1, x2, y2] = scene.at.ends.subarray(4 * k, 4 * k + 4) as unknown as [number, number, number, number];
    if (!lanes && scene.picked.wire === k) lane(context, [x1, y1, x2, y2], 0, scene.colours.accent, 4, []);
    for (const [directions, ends] of [[wire.there, [x1, y1, x2, y2]], [wire.back, [x2, y2, x1, y1]]] as const) {
      const job = directions.map((i) => scene.routes.get(i)).find((found) => found !== undefined);
      if (job === undefined) continue;
      context.globalAlpha = lanes ? 0.5 : 0.9;
      lane(context, ends, lanes ? 3.4 : 0.8, scene.colours.jobs[job % scene.colours.jobs.length]!, lanes ? 10 : 1.6, []);
      context.globalAlpha = 1;
    }
  });
}

function boxes(context: CanvasRenderingContext2D, scene: Scene): void {
  const { layout, at, colours } = scene;
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "middle";
  // On a dense map they are pixels already.
  if (sparse(at)) cells(context, scene);
  const small = new Map<string, Path2D>();
  layout.boxes.forEach((box, i) => {
    if (at.cells && box.kind === "host") return;
    if (at.x[i]! + at.w[i]! < 0 || at.x[i]! - at.w[i]! > at.width) return;
    const state = stateOf(scene.live, box);
    const [x, y, w, h] = [at.x[i]! - at.w[i]! / 2, at.y[i]! - at.h[i]! / 2, at.w[i]!, at.h[i]!];
    const edge = state.down ? colours.bad : state.drained ? colours.warn : colours.muted;
    if (w < 7) {
      let path = small.get(edge);
      if (!path) small.set(edge, path = new Path2D());
      path.rect(x, y, w, h);
    } else {
      context.beginPath();
      context.roundRect(x, y, w, h, Math.min(7, w / 3));
      context.fillStyle = box.kind === "host" ? colours.soft : colours.card;
      context.fill();
      context.setLineDash(state.down || state.waiting ? [5, 4] : []);
      context.lineWidth = state.down || state.drained ? 2 : 1.2;
      context.strokeStyle = edge;
      context.stroke();
      context.setLineDash([]);
      label(context, state.sign, box, at.x[i]!, at.y[i]!, w, state.down ? colours.bad : state.drained ? colours.warn : colours.ink);
    }
    if (box.kind === "host" && w >= 24) badges(context, scene, box, at.x[i]!, at.y[i]! + h / 2 + 12);
  });
  for (const [colour, path] of small) {
    context.fillStyle = colour;
    context.fill(path);
  }
  tierNames(context, scene);
  for (const [i, job] of scene.marked) outline(context, at, i, colours.jobs[job % colours.jobs.length]!, 2);
  if (scene.picked.box >= 0) outline(context, at, scene.picked.box, colours.accent, 2.6);
  if (scene.focus >= 0 && scene.focus !== scene.picked.box) outline(context, at, scene.focus, colours.accent, 1.4);
}

/** What each row is, where its boxes have no room for their names. */
function tierNames(context: CanvasRenderingContext2D, { layout, at, colours }: Scene): void {
  context.textAlign = "left";
  for (const { text, top } of rowNames(layout, at)) {
    context.fillStyle = colours.card;
    context.globalAlpha = 0.9;
    context.fillRect(4, top, context.measureText(text).width + 10, ROW_NAME);
    context.globalAlpha = 1;
    context.fillStyle = colours.ink;
    context.fillText(text, 9, top + ROW_NAME / 2 + 0.5);
  }
  context.textAlign = "center";
}

/** Hosts as cells: the upper half sends, the lower half receives. */
function cells(context: CanvasRenderingContext2D, scene: Scene): void {
  const { at, colours } = scene;
  const paths = colours.levels.map(() => new Path2D());
  for (const { box, up, down } of cellsOf(scene)) {
    const [x, y, w, h] = [at.x[box]! - at.w[box]! / 2, at.y[box]! - at.h[box]! / 2, at.w[box]!, at.h[box]!];
    paths[up]!.rect(x, y, w, h / 2);
    paths[down]!.rect(x, y + h / 2, w, h / 2);
  }
  paths.forEach((path, level) => {
    context.globalAlpha = level === UNKNOWN ? 0.45 : 1;
    context.fillStyle = colours.levels[level]!;
    context.fill(path);
  });
  context.globalAlpha = 1;
}

function label(context: CanvasRenderingContext2D, sign: string, box: Box, x: number, y: number, w: number, colour: string): void {
  const name = box.kind === "group" ? `${box.id} (${box.members.length})` : box.id;
  context.fillStyle = colour;
  // No sign is narrower than this: most boxes of a large fabric need no measuring.
  if (w < 14) return;
  for (const text of [`${sign} ${name}`.trim(), name, box.kind === "group" ? box.id : sign, sign]) {
    if (text && context.measureText(text).width <= w - 8) {
      context.fillText(text, x, y + 0.5);
      return;
    }
  }
}

function badges(context: CanvasRenderingContext2D, scene: Scene, box: Box, x: number, y: number): void {
  const jobs = scene.jobsOf.get(box.id) ?? [];
  jobs.slice(0, 3).forEach((job, n) => {
    const bx = x + (n - (Math.min(3, jobs.length) - 1) / 2) * 18;
    context.beginPath();
    context.arc(bx, y, 8, 0, 2 * Math.PI);
    context.fillStyle = scene.colours.jobs[job % scene.colours.jobs.length]!;
    context.fill();
    context.fillStyle = scene.colours.card;
    context.font = `bold 11px ${FONT.slice(5)}`;
    context.fillText(String(job + 1), bx, y + 0.5);
    context.font = FONT;
  });
}

function outline(context: CanvasRenderingContext2D, at: Projected, i: number, colour: string, width: number): void {
  const [w, h] = [Math.max(at.w[i]!, 4) + 5, Math.max(at.h[i]!, 4) + 5];
  context.beginPath();
  context.roundRect(at.x[i]! - w / 2, at.y[i]! - h / 2, w, h, Math.min(8, w / 3));
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.stroke();
}

interface BoxState { sign: string; down: boolean; drained: boolean; waiting: boolean }
const READY: BoxState = { sign: SIGNS["ready"]!, down: false, drained: false, waiting: false };

function stateOf(live: Live, box: Box): BoxState {
  const single = box.members.length === 1 ? live.tables.switches[live.fabric.nodes[box.members[0]!]!] : undefined;
  if (single?.state === "ready" && !single.drained) return READY;
  const rows = box.members.map((i) => live.tables.switches[live.fabric.nodes[i]!]).filter((row) => row !== undefined);
  const down = rows.some((row) => row.state === "down");
  const drained = rows.some((row) => row.drained);
  const waiting = rows.some((row) => row.state !== "ready" && row.state !== "down");
  const sign = rows.length === 0 ? "" : down ? SIGNS["down"]! : drained ? "‖" : waiting ? SIGNS["waiting"]! : SIGNS["ready"]!;
  return { sign, down, drained, waiting };
}
