// SPDX-License-Identifier: Apache-2.0
// The colours of the style sheet, for the canvas. style.css is the only place that names them.

import { LEVELS } from "./heat";

export interface Colours {
  card: string; ink: string; muted: string; line: string; soft: string; accent: string; bad: string; warn: string;
  /** By level (heat.ts). */
  levels: string[];
  jobs: string[];
}

const JOBS = 8;
let known: { of: string; colours: Colours } | null = null;

/** The colours of the present theme. */
export function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const of = `${read("card")} ${read("ink")}`;
  if (known?.of !== of) {
    const [card, ink, muted, line, soft, accent, bad, warn] = ["card", "ink", "muted", "line", "soft", "accent", "bad", "warn"].map(read) as [string, string, string, string, string, string, string, string];
    const levels = Array.from({ length: LEVELS }, (_, i) => (i < 6 ? read(`load-${i}`) : i === 6 ? read("unknown") : i === 7 ? warn : bad));
    const jobs = Array.from({ length: JOBS }, (_, i) => read(`job-${i + 1}`));
    known = { of, colours: { card, ink, muted, line, soft, accent, bad, warn, levels, jobs } };
  }
  return known.colours;
}

/** The CSS colour of the job with that index. */
export function jobColour(index: number): string {
  return `var(--job-${(Math.max(0, index) % JOBS) + 1})`;
}

/** A "#rrggbb" as a pixel of ImageData, mixed with another one: part 1 is the first alone. */
export function pixel(colour: string, other = colour, part = 1): number {
  const [a, b] = [rgb(colour), rgb(other)];
  const [red, green, blue] = a.map((value, i) => Math.round(value * part + b[i]! * (1 - part))) as [number, number, number];
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function rgb(colour: string): [number, number, number] {
  const hex = colour.length === 4 ? colour.replace(/[0-9a-f]/gi, "$&$&") : colour;
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as [number, number, number];
}
