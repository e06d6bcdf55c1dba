// SPDX-License-Identifier: Apache-2.0
// The table of jobs: iteration times, priority, and when each job communicates.

import { badge, colour } from "./badge.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { smallCircle } from "./time_shifts.js";

const COLUMNS = [
  ["Job", ""], ["GPUs", "number"], ["Hosts", ""], ["Mean ms", "number"], ["p99 ms", "number"],
  ["Iterations", ""], ["DSCP", "number"], ["Shift ms", "number"], ["Period ms", "number"], ["Circle", ""],
];
const SPARK = [132, 30];

/** The body of the jobs card. */
export function jobs(view, chosen, actions) {
  if (view.jobs.length === 0) return h("p", { class: "muted" }, "No job is running.");
  return h("div", { class: "scroll" },
    h("table", { class: "jobs" },
      h("thead", {}, h("tr", {}, COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, view.jobs.map((job, index) => row(job, index, chosen, actions)))));
}

function row(job, index, chosen, actions) {
  const picked = chosen?.kind === "job" && chosen.id === job.name;
  const choose = () => actions.choose({ kind: "job", id: job.name });
  return h("tr", { key: job.name, class: picked ? "picked" : null, "data-job": job.name, on: { click: choose } },
    h("th", { scope: "row" },
      badge(index, job.name), " ",
      h("button", { type: "button", class: "link", "aria-pressed": String(picked) }, job.name),
      h("small", {}, job.model), warning(job)),
    h("td", { class: "number" }, job.gpus),
    h("td", { title: job.hosts.join(", ") }, format.names(job.hosts)),
    h("td", { class: "number strong" }, format.ms(job.mean_ms)),
    h("td", { class: "number" }, format.ms(job.p99_ms)),
    h("td", {}, spark(job, index)),
    h("td", { class: "number" }, job.dscp ?? "–", job.level === null ? null : h("small", {}, `level ${job.level}`)),
    h("td", { class: "number" }, format.shortMs(job.shift_ms)),
    h("td", { class: "number" }, job.period_ms === null ? "no slots" : format.shortMs(job.period_ms)),
    h("td", {}, smallCircle(job, index)));
}

/** What the operator should know of a job, or null: it is in no plan, silent, or measured below its floor. */
function warning(job) {
  const said = job.left_out !== null ? "left out of plans"
    : job.silence !== null ? "reports no iterations"
    : job.shares_level_with.length > 0 ? `shares its level with ${format.names(job.shares_level_with)}`
      : job.floor_breaches > 0 ? `below its floor ${format.times(job.floor_breaches)}` : null;
  return said && h("small", { class: "warn", title: job.why }, said);
}

/** Recent iteration times as a line. Its scale spans at least 5 %, so that small differences look small. */
function spark(job, index) {
  const values = job.recent_ms;
  if (values.length < 2) return h("span", { class: "muted" }, `${format.count(job.iterations)} done`);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = Math.max(high - low, high * 0.05);
  const [width, height] = SPARK;
  const x = (i) => (2 + (i * (width - 6)) / (values.length - 1)).toFixed(1);
  const y = (value) => (height - 4 - ((value - low) / span) * (height - 8)).toFixed(1);
  const last = values.length - 1;
  return h("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "spark", style: { "--job": colour(index) },
    "aria-label": `${job.iterations} iterations; last ${format.ms(values[last])} ms, recently ${format.ms(low)} to ${format.ms(high)} ms`,
  },
    h("title", {}, `${format.count(job.iterations)} iterations, recently ${format.ms(low)} to ${format.ms(high)} ms`),
    h("polyline", { points: values.map((value, i) => `${x(i)},${y(value)}`).join(" ") }),
    h("circle", { cx: x(last), cy: y(values[last]), r: 2.4 }));
}
