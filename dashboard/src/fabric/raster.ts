// SPDX-License-Identifier: Apache-2.0
// Thousands of cables as pixels: faster than strokes of a canvas, and as fast on a machine without a GPU.
//
// Each cable is a line of two halves: the half at its source is the direction from there.

import type { Colours } from "./colours";
import { pixel } from "./colours";
import { DOWN, DRAINED, LEVELS, UNKNOWN } from "./heat";
import type { Projected } from "./project";

// More pixels than these are not seen, but take time. Chosen: those of a Full HD window.
const MOST_PIXELS = 2_100_000;
// What is drawn last is on top: what is down, then the busiest.
const ORDER = [UNKNOWN, 0, 1, 2, 3, DRAINED, 4, 5, DOWN];

export interface Raster {
  image: ImageData;
  /** Pixels for each CSS pixel. */
  scale: number;
}

let kept: Raster | null = null;

/** Draw wires; `there` and `back` are the levels of the directions of each, 255: not drawn. */
export function raster(at: Projected, there: Uint8Array, back: Uint8Array, colours: Colours, dim: boolean, density: number): Raster {
  const scale = Math.min(density, Math.sqrt(MOST_PIXELS / (at.width * at.height)));
  const [width, height] = [Math.max(1, Math.round(at.width * scale)), Math.max(1, Math.round(at.height * scale))];
  if (kept === null || kept.image.width !== width || kept.image.height !== height) {
    kept = { image: new ImageData(width, height), scale };
  }
  kept.scale = scale;
  const pixels = new Uint32Array(kept.image.data.buffer);
  pixels.fill(0);
  const count = there.length;
  for (let turn = 0; turn < LEVELS; turn += 1) {
    const level = ORDER[turn]!;
    // Idle and unknown cables are many: a faint ground for the busy ones.
    const part = (level === 0 ? 0.55 : 1) * (dim ? 0.4 : 1);
    const colour = pixel(colours.levels[level]!, colours.card, part);
    const [on, period] = level === UNKNOWN ? [1, 4] : level === DRAINED ? [7, 11] : level === DOWN ? [4, 8] : [1, 1];
    const thick = level >= 4 && level !== UNKNOWN ? 2 : 1;
    for (let k = 0; k < count; k += 1) {
      if (there[k] !== level && back[k] !== level) continue;
      const e = 4 * k;
      const [x1, y1, x2, y2] = [at.ends[e]! * scale, at.ends[e + 1]! * scale, at.ends[e + 2]! * scale, at.ends[e + 3]! * scale];
      const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
      if (there[k] === level) line(pixels, width, x1, y1, mx, my, colour, on, period, thick);
      if (back[k] === level) line(pixels, width, x2, y2, mx, my, colour, on, period, thick);
    }
  }
  return kept;
}

function line(
  pixels: Uint32Array, width: number, x1: number, y1: number, x2: number, y2: number,
  colour: number, on: number, period: number, thick: number,
): void {
  const steps = Math.max(1, Math.ceil(Math.max(Math.abs(x2 - x1), Math.abs(y2 - y1))));
  const [dx, dy] = [(x2 - x1) / steps, (y2 - y1) / steps];
  // Only the steps in sight.
  let first = 0;
  let last = steps;
  if (dx > 0) {
    first = Math.max(first, Math.ceil(-x1 / dx));
    last = Math.min(last, Math.floor((width - thick - x1) / dx));
  } else if (dx < 0) {
    first = Math.max(first, Math.ceil((width - thick - x1) / dx));
    last = Math.min(last, Math.floor(-x1 / dx));
  } else if (x1 < 0 || x1 > width - thick) return;
  // Positions as whole numbers of 1/65536 pixels: the rows of the tiers are inside the picture, so only
  // the width needs the clipping above.
  const [stepX, stepY] = [Math.round(dx * 65536), Math.round(dy * 65536)];
  let x = Math.round((x1 + first * dx) * 65536);
  let y = Math.round((y1 + first * dy) * 65536);
  if (period === 1) {
    for (let i = first; i <= last; i += 1) {
      const at = (y >> 16) * width + (x >> 16);
      pixels[at] = colour;
      if (thick > 1) pixels[at + 1] = colour;
      x += stepX;
      y += stepY;
    }
    return;
  }
  for (let i = first; i <= last; i += 1) {
    if (i % period < on) {
      const at = (y >> 16) * width + (x >> 16);
      pixels[at] = colour;
      if (thick > 1) pixels[at + 1] = colour;
    }
    x += stepX;
    y += stepY;
  }
}
