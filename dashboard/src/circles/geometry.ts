// SPDX-License-Identifier: Apache-2.0
// Time drawn as a circle (CASSINI, section 4.3): one turn is one period, clockwise from the top. Pure.

// The common circle is at most this many times the longest period. Chosen: more turns are not readable.
const MAX_TURNS = 8;
// Periods are rounded to 1/GRAIN ms before their common multiple is computed.
const GRAIN = 10;

/** When a job communicates: its phases in ms after its shift, once every period. */
export interface Rhythm { job: string; period: number; shift: number; slotted: boolean; phases: [start: number, end: number][] }

/** The perimeter (ms) of a circle on which all periods fit (their least common multiple); null if too long. */
export function commonPeriod(periods: number[]): number | null {
  if (periods.length === 0) return null;
  const grains = periods.map((p) => Math.max(1, Math.round(p * GRAIN)));
  const limit = Math.max(...grains) * MAX_TURNS;
  let all = 1;
  for (const grain of grains) {
    all = (all / gcd(all, grain)) * grain;
    if (all > limit) return null;
  }
  return all / GRAIN;
}

/** The communication phases on a circle of `perimeter` ms: [start, end] as fractions of a turn. */
export function arcs(rhythm: Rhythm, perimeter: number): [number, number][] {
  const { period, shift, phases } = rhythm;
  const turns = Math.max(1, Math.round(perimeter / period));
  const result: [number, number][] = [];
  for (let turn = 0; turn < turns; turn += 1) {
    for (const [from, to] of phases) {
      const start = (shift + from) / period;
      const length = Math.min(1, (to - from) / period);
      result.push([(turn + start) / turns, (turn + start + length) / turns]);
    }
  }
  return result;
}

/** An SVG path along a circle around 0,0 from one fraction of a turn to another. */
export function arcPath(radius: number, start: number, end: number): string {
  if (end - start >= 0.9999) return `${arcPath(radius, 0, 0.5)}${arcPath(radius, 0.5, 1).replace("M", "L")}`;
  const [x1, y1] = onCircle(radius, start);
  const [x2, y2] = onCircle(radius, end);
  return `M${x1} ${y1}A${radius} ${radius} 0 ${end - start > 0.5 ? 1 : 0} 1 ${x2} ${y2}`;
}

/** The point at a fraction of a turn. */
export function onCircle(radius: number, turn: number): [number, number] {
  const angle = 2 * Math.PI * turn;
  return [round(radius * Math.sin(angle)), round(-radius * Math.cos(angle))];
}

/** The fraction of a turn at a point, 0 to 1. */
export function turnAt(x: number, y: number): number {
  return (Math.atan2(x, -y) / (2 * Math.PI) + 1) % 1;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}
