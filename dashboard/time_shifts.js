// SPDX-License-Identifier: Apache-2.0
// When the jobs communicate: one ring per job on a common circle, and the links that jobs share.

import { badge, colour, svgBadge } from "./badge.js";
import { arcPath, arcs, commonPeriod, onCircle, timingOf } from "./circle.js";
import { h } from "./dom.js";
import * as format from "./format.js";

const OUTER = 120;
const INNER = 40;
const LINKS_SHOWN = 6;

/** The body of the card of time-shifts. */
export function timeShifts(view, chosen, actions) {
  const rings = view.jobs.flatMap((job, index) => (timingOf(job) ? [{ job, index, ...timingOf(job) }] : []));
  if (rings.length === 0) return h("p", { class: "muted" }, "It is not known yet when the jobs communicate.");
  const common = commonPeriod(rings.map((ring) => ring.period));
  const shifted = rings.some((ring) => ring.shifted);
  return [
    h("svg", { viewBox: "-150 -146 300 292", role: "img", class: "rings", "aria-label": describe(rings, common) },
      ticks(common),
      rings.map((ring, place) => drawRing(ring, place, rings.length, common, chosen, actions)),
      h("text", { class: "centre", dy: "-0.1em" }, common === null ? "1 turn" : `${format.shortMs(common)} ms`),
      h("text", { class: "centre-note", dy: "1.5em" }, common === null ? "own period" : "one turn")),
    h("p", { class: "muted" }, shifted
      ? "Coloured: the job communicates. The outermost ring is job 1."
      : "Coloured: the job communicates. This plan has no time-shifts, so the jobs drift against each other."),
    h("ul", { class: "ring-list" }, rings.map((ring) => h("li", { key: ring.job.name }, badge(ring.index, ring.job.name), h("span", {}, summary(ring))))),
    sharedLinks(view),
  ];
}

/** The small circle of one job, for the table. */
export function smallCircle(job, index) {
  const timing = timingOf(job);
  if (!timing) return null;
  return h("svg", {
    viewBox: "-16 -16 32 32", width: 32, height: 32, role: "img", class: timing.shifted ? "small-circle" : "small-circle free",
    style: { "--job": colour(index) }, "aria-label": `${job.name}: ${summary({ job, ...timing })}`,
  },
    h("circle", { r: 12, class: "track" }),
    arcs(job, timing.period).map(([from, to]) => h("path", { class: "up", d: arcPath(12, from, to) })),
    h("path", { class: "zero", d: "M0 -15V-9" }));
}

function summary({ job, period, shift, shifted }) {
  const up = job.profile.phases.reduce((sum, phase) => sum + phase.end_ms - phase.start_ms, 0);
  return `${job.name}: communicates ${format.shortMs(up)} of ${format.shortMs(period)} ms, `
    + (shifted ? `shift ${format.shortMs(shift)} ms` : "no time-shift");
}

function describe(rings, common) {
  const turn = common === null ? "each on its own period" : `on a circle of ${format.shortMs(common)} ms`;
  return `When the jobs communicate, ${turn}. ${rings.map(summary).join("; ")}.`;
}

function ticks(common) {
  return [0, 0.25, 0.5, 0.75].map((turn) => {
    const [x1, y1] = onCircle(OUTER + 4, turn);
    const [x2, y2] = onCircle(OUTER + 9, turn);
    const [x, y] = onCircle(OUTER + 18, turn);
    return h("g", { class: "tick", key: `tick${turn}` },
      h("path", { d: `M${x1} ${y1}L${x2} ${y2}` }),
      h("text", { x, y, dy: "0.35em" }, common === null ? ["0", "¼", "½", "¾"][turn * 4] : format.shortMs(common * turn)));
  });
}

function drawRing(ring, place, total, common, chosen, actions) {
  const step = Math.min(26, (OUTER - INNER) / total);
  const radius = OUTER - (place + 0.5) * step;
  const phases = arcs(ring.job, common ?? ring.period);
  const dim = chosen?.kind === "job" && chosen.id !== ring.job.name;
  const [x, y] = onCircle(radius, (phases[0][0] + phases[0][1]) / 2);
  return h("g", {
    key: ring.job.name, class: `ring ${ring.shifted ? "" : "free"} ${dim ? "dim" : ""}`, style: { "--job": colour(ring.index) },
    on: { click: () => actions.choose({ kind: "job", id: ring.job.name }) },
  },
    h("circle", { r: radius, class: "track", "stroke-width": step * 0.74 }),
    phases.map(([from, to], i) => h("path", { key: `up${i}`, class: "up", d: arcPath(radius, from, to), "stroke-width": step * 0.74 })),
    svgBadge(ring.index, x, y, Math.min(8, step * 0.37)));
}

function sharedLinks(view) {
  const links = view.plan?.links ?? [];
  if (links.length === 0) return h("p", { class: "muted" }, "No two jobs share a link.");
  const row = (link) => h("tr", { key: `${link.src}>${link.dst}` },
    h("th", { scope: "row" }, `${link.src} → ${link.dst}`),
    h("td", {},
      view.jobs.map((job, index) => (link.jobs.includes(job.name) ? badge(index, job.name) : null)),
      h("span", { class: "sr" }, link.jobs.join(", "))),
    h("td", {}, h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: format.percent(Math.max(0, Math.min(1, link.score))).replace(" ", "") } })), link.score.toFixed(2)));
  return h("table", { class: "compact" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Shared link"), h("th", { scope: "col" }, "Jobs"), h("th", { scope: "col" }, "Compatibility"))),
    h("tbody", {}, links.slice(0, LINKS_SHOWN).map(row)),
    links.length > LINKS_SHOWN ? h("caption", { class: "below" }, `and ${links.length - LINKS_SHOWN} more`) : null);
}
