// SPDX-License-Identifier: Apache-2.0
// Time drawn as a circle (CASSINI, section 4.3): one turn is one period, clockwise from the top.

// The common circle is at most this many times the longest period. Chosen: more turns are not readable.
const MAX_TURNS = 8;
// Periods are rounded to 1/GRAIN ms before their common multiple is computed.
const GRAIN = 10;

/** The period and time-shift with which a job is drawn: those of the plan, else its profile's period and 0. */
export function timingOf(job) {
  const profile = job.profile;
  if (!profile || profile.period_ms <= 0) return null;
  return { period: job.period_ms ?? profile.period_ms, shift: job.shift_ms ?? 0, shifted: job.period_ms !== null };
}

/** The perimeter (ms) of a circle on which all periods fit (their least common multiple); null if too long. */
export function commonPeriod(periods) {
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

/** The job's communication phases on a circle of `perimeter` ms: [[start, end], ...] as fractions of a turn. */
export function arcs(job, perimeter) {
  const timing = timingOf(job);
  const turns = Math.max(1, Math.round(perimeter / timing.period));
  const result = [];
  for (let turn = 0; turn < turns; turn += 1) {
    for (const phase of job.profile.phases) {
      const start = (timing.shift + phase.start_ms) / timing.period;
      const length = Math.min(1, (phase.end_ms - phase.start_ms) / timing.period);
      result.push([(turn + start) / turns, (turn + start + length) / turns]);
    }
  }
  return result;
}

/** An SVG path along a circle around 0,0 from one fraction of a turn to another. */
export function arcPath(radius, start, end) {
  if (end - start >= 0.9999) return `${arcPath(radius, 0, 0.5)}${arcPath(radius, 0.5, 1).replace("M", "L")}`;
  const [x1, y1] = onCircle(radius, start);
  const [x2, y2] = onCircle(radius, end);
  return `M${x1} ${y1}A${radius} ${radius} 0 ${end - start > 0.5 ? 1 : 0} 1 ${x2} ${y2}`;
}

/** The point at a fraction of a turn. */
export function onCircle(radius, turn) {
  const angle = 2 * Math.PI * turn;
  return [round(radius * Math.sin(angle)), round(-radius * Math.cos(angle))];
}

function round(value) {
  return Math.round(value * 100) / 100;
}

function gcd(a, b) {
  return b === 0 ? a : gcd(b, a % b);
}
