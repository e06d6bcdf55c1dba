// SPDX-License-Identifier: Apache-2.0
// Thousands of cables as pixels: faster than strokes of a canvas, and as fast on a machine without a GPU.
//
// Each cable is a line of two halves: the half at its source is the direction from there. Where each half
// begins and how it goes is computed once for a zoom; a redraw only writes pixels.

import type { Colours } from "./colours";
import { pixel } from "./colours";
import { DOWN, DRAINED, LEVELS, UNKNOWN } from "./heat";
import type { Projected } from "./project";

// More pixels than these are not seen, but take time. Chosen: those of a Full HD window.
const MOST_PIXELS = 2_100_000;
// What is drawn last is on top: what is down, then the busiest.
const ORDER = [UNKNOWN, 0, 1, 2, 3, DRAINED, 4, 5, DOWN];
/** The level of a half that is not drawn. */
export const NOTHING = 255;

/** The halves of all wires as pixels: start and step of each in 1/65536 pixels, and its first and last step. */
interface Lines {
  of: Projected;
  scale: number;
  x: Int32Array;
  y: Int32Array;
  stepX: Int32Array;
  stepY: Int32Array;
  first: Int32Array;
  last: Int32Array;
}

/** A host as a cell: its box, and the levels at which it sends and receives. */
export interface Cell { box: number; up: number; down: number }

let kept: ImageData | null = null;
let lines: Lines | null = null;

/**
 * Draw halves of wires and cells of hosts. `halves` has the levels of wire k at 2 * k (the half at its end a)
 * and 2 * k + 1; `dim`: the lines are a ground for something else.
 */
export function raster(at: Projected, halves: Uint8Array, cells: Cell[], colours: Colours, dim: boolean, density: number): ImageData {
  const scale = Math.min(density, Math.sqrt(MOST_PIXELS / (at.width * at.height)));
  const [width, height] = [Math.max(1, Math.round(at.width * scale)), Math.max(1, Math.round(at.height * scale))];
  if (kept === null || kept.width !== width || kept.height !== height) kept = new ImageData(width, height);
  if (lines === null || lines.of !== at || lines.scale !== scale) lines = linesOf(at, scale, width);
  const pixels = new Uint32Array(kept.data.buffer);
  pixels.fill(0);
  const paints = colours.levels.map((colour, level) => {
    // Idle and unknown cables are many: a faint ground for the busy ones.
    const part = (level === 0 ? 0.55 : 1) * (dim ? 0.4 : 1);
    const [on, period] = level === UNKNOWN ? [1, 4] : level === DRAINED ? [7, 11] : level === DOWN ? [4, 8] : [1, 1];
    return { colour: pixel(colour, colours.card, part), on, period, thick: level >= 4 && level !== UNKNOWN };
  });
  for (const half of byOrder(halves)) {
    const { colour, on, period, thick } = paints[halves[half]!]!;
    draw(pixels, width, lines, half, colour, on, period, thick);
  }
  const ground = colours.levels.map((colour, level) => pixel(colour, colours.card, level === UNKNOWN ? 0.45 : 1));
  for (const { box, up, down } of cells) {
    const [x, y, w, h] = [at.x[box]! - at.w[box]! / 2, at.y[box]! - at.h[box]! / 2, at.w[box]!, at.h[box]!];
    block(pixels, width, height, x * scale, y * scale, (x + w) * scale, (y + h / 2) * scale, ground[up]!);
    block(pixels, width, height, x * scale, (y + h / 2) * scale, (x + w) * scale, (y + h) * scale, ground[down]!);
  }
  return kept;
}

/** The halves that are drawn, in the order in which they are: a sort by counting. */
function byOrder(halves: Uint8Array): Int32Array {
  const counts = new Int32Array(256);
  for (let half = 0; half < halves.length; half += 1) counts[halves[half]!]! += 1;
  const next = new Int32Array(256);
  let total = 0;
  for (let turn = 0; turn < LEVELS; turn += 1) {
    next[ORDER[turn]!] = total;
    total += counts[ORDER[turn]!]!;
  }
  const sorted = new Int32Array(total);
  for (let half = 0; half < halves.length; half += 1) {
    const level = halves[half]!;
    if (level === NOTHING) continue;
    sorted[next[level]!] = half;
    next[level]! += 1;
  }
  return sorted;
}

function linesOf(at: Projected, scale: number, width: number): Lines {
  const count = at.ends.length / 2;
  const made: Lines = {
    of: at, scale, x: new Int32Array(count), y: new Int32Array(count), stepX: new Int32Array(count),
    stepY: new Int32Array(count), first: new Int32Array(count), last: new Int32Array(count),
  };
  for (let half = 0; half < count; half += 1) {
    const e = 4 * (half >> 1);
    const [near, far] = half % 2 === 0 ? [e, e + 2] : [e + 2, e];
    const [x1, y1] = [at.ends[near]! * scale, at.ends[near + 1]! * scale];
    const [dx, dy] = [(at.ends[far]! * scale - x1) / 2, (at.ends[far + 1]! * scale - y1) / 2];
    const steps = Math.max(1, Math.ceil(Math.max(Math.abs(dx), Math.abs(dy))));
    const stepX = dx / steps;
    // Only the steps in sight. The rows of the tiers are inside the picture, so only the width needs this; a
    // line may be two pixels wide.
    let first = 0;
    let last = steps;
    if (stepX !== 0) {
      const [left, right] = [-x1 / stepX, (width - 2 - x1) / stepX];
      first = Math.max(first, Math.ceil(Math.min(left, right)));
      last = Math.min(last, Math.floor(Math.max(left, right)));
    } else if (x1 < 0 || x1 > width - 2) last = -1;
    made.stepX[half] = Math.round(stepX * 65536);
    made.stepY[half] = Math.round((dy / steps) * 65536);
    made.x[half] = Math.round((x1 + first * stepX) * 65536);
    made.y[half] = Math.round((y1 + (first * dy) / steps) * 65536);
    made.first[half] = first;
    made.last[half] = last;
  }
  return made;
}

function draw(pixels: Uint32Array, width: number, of: Lines, half: number, colour: number, on: number, period: number, thick: boolean): void {
  const [stepX, stepY, last] = [of.stepX[half]!, of.stepY[half]!, of.last[half]!];
  let x = of.x[half]!;
  let y = of.y[half]!;
  for (let i = of.first[half]!; i <= last; i += 1) {
    if (period === 1 || i % period < on) {
      const at = (y >> 16) * width + (x >> 16);
      pixels[at] = colour;
      if (thick) pixels[at + 1] = colour;
    }
    x += stepX;
    y += stepY;
  }
}

function block(pixels: Uint32Array, width: number, height: number, x1: number, y1: number, x2: number, y2: number, colour: number): void {
  const [left, right] = [Math.max(0, Math.round(x1)), Math.min(width, Math.max(Math.round(x2), Math.round(x1) + 1))];
  const [top, bottom] = [Math.max(0, Math.round(y1)), Math.min(height, Math.max(Math.round(y2), Math.round(y1) + 1))];
  if (right <= left) return;
  for (let y = top; y < bottom; y += 1) pixels.fill(colour, y * width + left, y * width + right);
}
