// SPDX-License-Identifier: Apache-2.0
// The details of the chosen job, flow, link, switch or host, with the reasons of the plan.

import { badge } from "./badge.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { linkId } from "./layout.js";

/** The body of the details card. */
export function details(view, chosen, actions) {
  const body = chosen && { job, flow, link, switch: switchDetails, host }[chosen.kind](view, chosen.id, actions);
  if (!body) {
    return [
      h("p", { class: "muted" }, "Choose a job, a link, a switch or a host to see its details and the reasons of the plan."),
      view.plan ? null : h("p", { class: "muted" }, "There is no plan yet."),
    ];
  }
  return [
    body,
    h("p", {}, h("button", { type: "button", class: "link", on: { click: () => actions.choose(null) } }, "Close")),
  ];
}

/** The tooltip of what is under the pointer: [title, [[name, value], ...]], or null. */
export function brief(view, { kind, id }) {
  if (kind === "link") {
    const one = view.fabric.links.find((l) => linkId(l) === id);
    return one && [`${one.src} → ${one.dst}`, linkFacts(one)];
  }
  if (kind === "switch") {
    const one = view.fabric.switches.find((s) => s.name === id);
    return one && [one.name, [["state", one.state], ["entries", format.count(one.entries)]]];
  }
  const one = view.fabric.hosts.find((x) => x.name === id);
  return one && [one.name, [["address", one.ip], ["jobs", jobsOn(view, id).map((j) => j.name).join(", ") || "none"]]];
}

function job(view, id, actions) {
  const index = view.jobs.findIndex((j) => j.name === id);
  if (index < 0) return null;
  const one = view.jobs[index];
  const flows = (view.plan?.flows ?? []).filter((f) => f.job === id);
  return [
    h("h3", {}, badge(index, id), ` ${id} `, h("small", {}, one.model)),
    h("p", { class: "why" }, one.why ?? "The plan has no decision for this job yet."),
    facts([
      ["level", one.level ?? "–"], ["DSCP", one.dscp ?? "–"], ["intensity", format.flops(one.intensity)],
      ["shift", one.shift_ms === null ? "–" : `${format.shortMs(one.shift_ms)} ms`],
      ["iterations", format.count(one.iterations)],
      ...(one.floor_breaches === 0 ? [] : [["below its floor", format.times(one.floor_breaches)]]),
      ...(one.shares_level_with.length === 0 ? [] : [["shares its level with", one.shares_level_with.join(", ")]]),
    ]),
    h("h4", {}, flows.length === 1 ? "1 flow" : `${flows.length} flows`),
    h("ul", { class: "flows" }, flows.map((f) => flowItem(f, actions))),
  ];
}

function flow(view, id, actions) {
  const one = view.plan?.flows.find((f) => f.flow === id);
  if (!one) return null;
  return [
    h("h3", {}, one.flow),
    h("p", { class: "why" }, one.why),
    facts([
      ["path", one.path ? format.path(one.path) : "left to ECMP"],
      ["UDP source port", one.source_port ?? "chosen by the host"],
      ["DSCP", one.sent_dscp === null ? one.dscp : `sent as ${one.sent_dscp}, rewritten to ${one.dscp} by its leaf`],
      ...(one.fallback_reason === null ? [] : [["fallback", `its agent has moved it to ECMP: ${one.fallback_reason}`]]),
      ["pinned in", one.pinned_in.join(", ") || "no switch: its source port leads along the path"],
    ]),
    h("p", {}, "Flow of job ", h("button", { type: "button", class: "link", on: { click: () => actions.choose({ kind: "job", id: one.job }) } }, one.job)),
  ];
}

function flowItem(one, actions) {
  return h("li", { key: one.flow },
    h("button", { type: "button", class: "link", on: { click: () => actions.choose({ kind: "flow", id: one.flow }) } },
      one.path ? format.path(one.path) : `${one.flow.slice(one.job.length + 1).replace(">", " → ")} by ECMP`),
    h("small", {}, one.source_port === null ? `DSCP ${one.dscp}` : `source port ${one.source_port}, DSCP ${one.dscp}`),
    h("span", { class: "why" }, one.why));
}

function link(view, id, actions) {
  const one = view.fabric.links.find((l) => linkId(l) === id);
  if (!one) return null;
  // One of several cables between two switches is named by its ports.
  const is = (end, node, port) => end === node || end === `${node}:${port}`;
  const shared = view.plan?.links.find((l) => is(l.src, one.src, one.src_port) && is(l.dst, one.dst, one.dst_port));
  const flows = (view.plan?.flows ?? []).filter(
    (f) => f.path?.some((node, i) => node === one.src && f.path[i + 1] === one.dst),
  );
  return [
    h("h3", {}, `${one.src} → ${one.dst}`),
    facts([...linkFacts(one), ["ports", `${one.src_port} → ${one.dst_port}`]]),
    shared ? h("p", { class: "why" }, `Shared by ${shared.jobs.join(", ")}; compatibility score ${shared.score.toFixed(2)}.`) : null,
    h("h4", {}, flows.length === 0 ? "No planned flow uses this link" : "Planned flows on this link"),
    h("ul", { class: "flows" }, flows.map((f) => flowItem(f, actions))),
  ];
}

function linkFacts(one) {
  return [
    ["rate", `${format.rate(one.rate_bps)} of ${format.rate(one.capacity_bps)}`],
    ["load", format.percent(one.load)], ["ECN marks", format.count(one.marks)], ["state", one.up ? "up" : "down"],
  ];
}

function switchDetails(view, id) {
  const one = view.fabric.switches.find((s) => s.name === id);
  return one && [
    h("h3", {}, one.name, " ", h("small", {}, one.tier)),
    facts([
      ["state", one.state], ["P4Runtime", one.address ?? "–"], ["device id", one.device_id],
      ["table entries", format.count(one.entries)],
      ["entries for single flows", format.count((one.tables.pinned_flow ?? 0) + (one.tables.remark_flow ?? 0))],
      ["ports down", format.count(one.tables.port_state ?? 0)],
      ["illegal packets of hosts", format.count(one.strays)],
    ]),
  ];
}

function straysOf(view, host) {
  const leaf = view.fabric.switches.find((s) => s.name === host.leaf);
  return leaf ? leaf.strays_by_port.filter((s) => s.port === host.leaf_port) : [];
}

function host(view, id, actions) {
  const one = view.fabric.hosts.find((x) => x.name === id);
  return one && [
    h("h3", {}, one.name, " ", h("small", {}, "host")),
    facts([
      ["address", one.ip], ["leaf", `${one.leaf} port ${one.leaf_port}`], ["NIC", format.rate(one.rate_bps)],
      ...straysOf(view, one).map((s) => [`illegal packets: ${s.reason}`, format.count(s.packets)]),
    ]),
    h("ul", { class: "flows" }, jobsOn(view, id).map((j) => h("li", { key: j.name },
      h("button", { type: "button", class: "link", on: { click: () => actions.choose({ kind: "job", id: j.name }) } }, j.name)))),
  ];
}

function jobsOn(view, id) {
  return view.jobs.filter((j) => j.hosts.includes(id));
}

function facts(rows) {
  return h("dl", { class: "pairs" }, rows.map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))));
}
