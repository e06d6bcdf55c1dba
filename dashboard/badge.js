// SPDX-License-Identifier: Apache-2.0
// A job's mark all over the page: a number and a colour, so that colour is never the only cue.

import { h } from "./dom.js";

const COLOURS = 8;

/** The CSS colour of the job at a place in the list. */
export function colour(index) {
  return `var(--job-${(index % COLOURS) + 1})`;
}

/** The mark as an HTML element. */
export function badge(index, name) {
  return h("span", { class: "badge", style: { "--job": colour(index) }, title: name, "aria-hidden": "true" }, index + 1);
}

/** The mark as part of a drawing, centred at x, y. */
export function svgBadge(index, x, y, radius = 8) {
  return h("g", { class: "svg-badge", style: { "--job": colour(index) }, transform: `translate(${x} ${y})`, key: `badge${index}` },
    h("circle", { r: radius }),
    h("text", { dy: "0.35em" }, index + 1));
}
