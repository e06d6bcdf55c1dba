// SPDX-License-Identifier: Apache-2.0
// The line of facts at the top of the page, and the state of the connection.

import { h } from "./dom.js";
import * as format from "./format.js";

const CONNECTIONS = {
  connecting: "◌ connecting…",
  live: "● live",
  reconnecting: "◌ reconnecting…",
};

/** The state of the connection, and for how long a live connection has brought no data. */
export function connection(state, quietSeconds) {
  const quiet = state === "live" && quietSeconds >= 5 ? `, no new data for ${quietSeconds} s` : "";
  return h("span", { class: `pill ${state}` }, CONNECTIONS[state] + quiet);
}

/** The facts: fabric time, policy, plan, verified paths, flows back on ECMP, switches, links. */
export function facts(view) {
  const { plan, fabric } = view;
  const ready = fabric.switches.filter((s) => s.state === "ready").length;
  const down = [...new Set(fabric.links.filter((link) => !link.up).map((link) => [link.src, link.dst].sort().join(" – ")))];
  const paths = fabric.verified_paths + fabric.unverified_paths;
  return [
    fact("Fabric time", format.time(view.time_ns)),
    fact("Policy", plan ? plan.policy.name : "–", plan && `${plan.policy.routing} · ${plan.policy.priority} · ${plan.policy.timing}`),
    fact("Plan", plan ? `version ${plan.version}` : "none yet"),
    fact("Verified paths", paths === 0 ? "–" : `${fabric.verified_paths} of ${paths}`, paths > 0 && "by INT probes", fabric.unverified_paths > 0),
    ...(view.fallback_flows.length === 0 ? [] : [fact("Back on ECMP", `${view.fallback_flows.length} flows`, format.names(view.fallback_flows.map((f) => `${f.flow}: ${f.why}`)), true)]),
    fact("Switches", `${ready} of ${fabric.switches.length} ready`, null, ready < fabric.switches.length),
    fact("Links", down.length === 0 ? "all up" : `${down.length} down`, format.names(down), down.length > 0),
  ];
}

function fact(name, value, note, warn) {
  return h("div", { key: name, class: warn ? "fact warn" : "fact" },
    h("dt", {}, name),
    h("dd", {}, warn ? "⚠ " : null, value, note ? h("small", {}, note) : null));
}
