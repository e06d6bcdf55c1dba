// SPDX-License-Identifier: Apache-2.0
// The drawing of the fabric. Each direction of a cable is an arrow; its colour and thickness show the load.

import { colour, svgBadge } from "./badge.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { linkId, place } from "./layout.js";

const STATE_SIGNS = { ready: "●", connecting: "◌", down: "✕" };
let placed = { of: "", layout: null };

/** The body of the fabric card. `chosen` is what is highlighted, `actions` what a click or hover does. */
export function fabric(view, chosen, actions) {
  const layout = layoutOf(view.fabric);
  const routes = highlighted(view, chosen);
  const links = view.fabric.links.filter((link) => layout.wires.has(linkId(link)));
  return [
    h("svg", {
      viewBox: `0 0 ${layout.width} ${layout.height}`, role: "img", "aria-label": summary(view),
      class: routes.size > 0 ? "fabric has-route" : "fabric",
    },
      links.map((link) => wire(link, layout.wires.get(linkId(link)), chosen, routes, actions)),
      [...layout.nodes.values()].map((node) => box(node, view, chosen, actions))),
    legend(),
    tables(view, actions),
  ];
}

/** A description of the drawing in one line, for screen readers. */
function summary(view) {
  const { switches, hosts, links } = view.fabric;
  const down = links.filter((link) => !link.up);
  const busiest = links.reduce((a, b) => ((b.load ?? 0) > (a?.load ?? 0) ? b : a), null);
  return `${switches.length} switches, ${hosts.length} hosts. `
    + (busiest ? `Busiest link: ${busiest.src} to ${busiest.dst}, ${format.percent(busiest.load)}. ` : "")
    + (down.length > 0 ? `Down: ${down.map((link) => `${link.src} to ${link.dst}`).join(", ")}.` : "All links up.");
}

function layoutOf(value) {
  const of = JSON.stringify([
    value.name, value.hosts.map((x) => x.name), value.switches.map((x) => x.name), value.links.map(linkId),
  ]);
  if (of !== placed.of) placed = { of, layout: place(value) };
  return placed.layout;
}

/** The link directions on the paths of the chosen job or flow: "src>dst" -> CSS colour. */
function highlighted(view, chosen) {
  const routes = new Map();
  for (const flow of view.plan?.flows ?? []) {
    const wanted = (chosen?.kind === "job" && flow.job === chosen.id) || (chosen?.kind === "flow" && flow.flow === chosen.id);
    if (!wanted || !flow.path) continue;
    const index = view.jobs.findIndex((job) => job.name === flow.job);
    flow.path.slice(1).forEach((node, i) => routes.set(`${flow.path[i]}>${node}`, colour(Math.max(0, index))));
  }
  return routes;
}

function wire(link, ends, chosen, routes, actions) {
  const id = linkId(link);
  const route = routes.get(`${link.src}>${link.dst}`);
  const level = link.load === null || link.load < 0.01 ? 0 : Math.min(5, 1 + Math.floor(link.load * 5));
  const picked = chosen?.kind === "link" && chosen.id === id;
  const names = ["wire", `load-${level}`, link.up ? "" : "down", route ? "route" : "", picked ? "picked" : ""];
  const broken = lane(ends, 3);
  // Drawn after a third of the length, so that the signs of the two directions do not cover each other.
  const [x, y] = broken.at(broken.start + (broken.end - broken.start) * 0.36, broken.offset);
  return h("g", {
    key: id, class: names.filter(Boolean).join(" "), "data-link": `${link.src}>${link.dst}`,
    style: route ? { "--job": route } : {},
    on: {
      pointermove: (event) => actions.hover({ kind: "link", id }, event),
      pointerleave: () => actions.hover(null),
      click: () => actions.choose({ kind: "link", id }),
    },
  },
    h("path", { class: "halo", d: line(lane(ends, 6)) }),
    link.up
      ? h("path", { class: "arrow", d: arrow(ends, link.load ?? 0) })
      : [h("path", { class: "broken", d: line(broken) }), h("text", { x, y, dy: "0.35em" }, "✕")]);
}

/**
 * The lane of one direction of a cable, `offset` to the right of the cable's axis, seen from source to
 * destination. at(along, aside) is a point; the lane starts and ends at the edges of the two nodes.
 */
function lane({ x1, y1, x2, y2 }, offset) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const slip = uy === 0 ? 0 : (-offset * ux) / uy;
  const at = (along, aside) => [fix(x1 + ux * along - uy * aside), fix(y1 + uy * along + ux * aside)];
  return { at, offset, start: slip, end: length + slip };
}

function line({ at, offset, start, end }) {
  return `M${at(start, offset)}L${at(end, offset)}`;
}

/** The outline of an arrow from source to destination; its thickness shows the load. */
function arrow(ends, load) {
  const thick = 1.6 + 7 * Math.min(1, Math.max(0, load));
  const [near, far, head] = [1.8, 1.8 + thick, 8 + thick * 0.7];
  const { at, offset, start, end } = lane(ends, near + thick / 2);
  const [tail, tip] = [start + 3, end - 3];
  return `M${at(tail, near)}L${at(tip - head, near)}L${at(tip - head, near - 1.2)}L${at(tip, offset)}`
    + `L${at(tip - head, far + 3)}L${at(tip - head, far)}L${at(tail, far)}Z`;
}

function fix(value) {
  return Math.round(value * 10) / 10;
}

function box(node, view, chosen, actions) {
  const kind = node.tier === "host" ? "host" : "switch";
  const state = view.fabric.switches.find((s) => s.name === node.name)?.state;
  const picked = chosen?.kind === kind && chosen.id === node.name;
  const jobs = kind === "host" ? view.jobs.flatMap((job, i) => (job.hosts.includes(node.name) ? [i] : [])) : [];
  const label = state ? `${STATE_SIGNS[state]} ${node.name}` : node.name;
  return h("g", {
    key: `node ${node.name}`, class: `node ${node.tier} ${state ?? ""} ${picked ? "picked" : ""}`,
    transform: `translate(${fix(node.x)} ${node.y})`,
    on: {
      pointermove: (event) => actions.hover({ kind, id: node.name }, event),
      pointerleave: () => actions.hover(null),
      click: () => actions.choose({ kind, id: node.name }),
    },
  },
    h("rect", { x: -node.w / 2, y: -node.h / 2, width: node.w, height: node.h, rx: 7 }),
    h("text", { dy: "0.35em" }, label),
    jobs.map((index, i) => svgBadge(index, (i - (jobs.length - 1) / 2) * 19, node.h / 2 + 13)));
}

function legend() {
  return h("p", { class: "legend" },
    "Load of each direction: ",
    [0, 1, 2, 3, 4, 5].map((level) => h("span", { class: `swatch load-${level}`, "aria-hidden": "true" })),
    " 0 to 100 %; a thicker arrow has more load. ",
    h("span", { class: "swatch down", "aria-hidden": "true" }), " down. ",
    "Numbers are jobs (see the table below).");
}

function tables(view, actions) {
  const choose = (kind, id, text) =>
    h("button", { type: "button", class: "link", on: { click: () => actions.choose({ kind, id }) } }, text);
  return h("details", {},
    h("summary", {}, "As tables"),
    h("div", { class: "scroll" },
      h("table", { class: "compact" },
        h("caption", {}, "Links"),
        h("thead", {}, h("tr", {}, ["Link", "Rate", "Load", "ECN marks", "State"].map((t) => h("th", { scope: "col" }, t)))),
        h("tbody", {}, view.fabric.links.map((link) => h("tr", { key: linkId(link) },
          h("th", { scope: "row" }, choose("link", linkId(link), `${link.src} → ${link.dst}`)),
          h("td", {}, format.rate(link.rate_bps)), h("td", {}, format.percent(link.load)),
          h("td", {}, format.count(link.marks)), h("td", {}, link.up ? "up" : "down"))))),
      h("table", { class: "compact" },
        h("caption", {}, "Switches"),
        h("thead", {}, h("tr", {}, ["Switch", "State", "Entries", "Address"].map((t) => h("th", { scope: "col" }, t)))),
        h("tbody", {}, view.fabric.switches.map((s) => h("tr", { key: s.name },
          h("th", { scope: "row" }, choose("switch", s.name, s.name)),
          h("td", {}, s.state), h("td", {}, format.count(s.entries)), h("td", {}, s.address ?? "–")))))));
}
