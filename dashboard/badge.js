// SPDX-License-Identifier: Apache-2.0
// The badge of a job on the whole page: a number and a colour, so that colour is never the only cue.

import { h } from "./dom.js";

const COLOURS = 8;

/** The CSS colour of the job with that index in the list of jobs. */
export function colour(index) {
  return `var(--job-${(index % COLOURS) + 1})`;
}

/** The badge as an HTML element. */
export function badge(index, name) {
  return h("span", { class: "badge", style: { "--job": colour(index) }, title: name, "aria-hidden": "true" }, index + 1);
}

/** The badge as part of an SVG drawing, centred at x, y. */
export function svgBadge(index, x, y, radius = 8) {
  return h("g", { class: "svg-badge", style: { "--job": colour(index) }, transform: `translate(${x} ${y})`, key: `badge${index}` },
    h("circle", { r: radius }),
    h("text", { dy: "0.35em" }, index + 1));
}
