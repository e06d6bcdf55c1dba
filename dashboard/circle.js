// SPDX-License-Identifier: Apache-2.0
// Time rolled around a circle (CASSINI, section 4.3): one turn is one period, clockwise from the top.

const MAX_TURNS = 8;
const GRAIN = 10;

/** The period and shift a job is drawn with: the plan's, else those of its profile run free. */
export function rhythmOf(job) {
  const profile = job.profile;
  if (!profile || profile.period_ms <= 0) return null;
  return { period: job.period_ms ?? profile.period_ms, shift: job.shift_ms ?? 0, held: job.period_ms !== null };
}

/** The perimeter of a circle on which all periods close (their least common multiple), or null. */
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

/** The job's Up phases on a circle of `perimeter` ms: [[start, end], ...] as fractions of a turn. */
export function arcs(job, perimeter) {
  const rhythm = rhythmOf(job);
  const turns = Math.max(1, Math.round(perimeter / rhythm.period));
  const result = [];
  for (let turn = 0; turn < turns; turn += 1) {
    for (const phase of job.profile.phases) {
      const start = (rhythm.shift + phase.start_ms) / rhythm.period;
      const length = Math.min(1, (phase.end_ms - phase.start_ms) / rhythm.period);
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
