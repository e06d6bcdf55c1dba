// SPDX-License-Identifier: Apache-2.0
// The page: keeps the newest view and what is chosen, and draws both at most once per frame of the browser.

import { brief, details } from "./details.js";
import { h, patch } from "./dom.js";
import { fabric } from "./fabric.js";
import { jobs } from "./jobs.js";
import { connection, facts } from "./status.js";
import { follow } from "./stream.js";
import { timeShifts } from "./time_shifts.js";

const at = (selector) => document.querySelector(selector);
const state = { view: null, connection: "connecting", chosen: null, hovered: null, pointer: [0, 0], seen: Date.now() };
let due = false;

const actions = {
  /** Choose {kind, id}; choosing the same again, or null, ends the choice. */
  choose(what) {
    const same = what && state.chosen && what.kind === state.chosen.kind && what.id === state.chosen.id;
    state.chosen = same ? null : what;
    redraw();
  },
  /** The pointer is over {kind, id}; null: over nothing. */
  hover(what, event) {
    state.hovered = what;
    if (event) state.pointer = [event.clientX, event.clientY];
    redraw();
  },
};

function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

function draw() {
  const { view, chosen } = state;
  patch(at("#connection"), connection(state.connection, Math.floor((Date.now() - state.seen) / 1000)));
  if (!view) {
    patch(at("#fabric .body"), h("p", { class: "muted" }, "Waiting for the first data from the controller."));
    return;
  }
  document.title = `${view.scenario} · Polyrhythm`;
  patch(at("#scenario"), view.scenario);
  patch(at("#facts"), facts(view));
  patch(at("#fabric .body"), fabric(view, chosen, actions));
  patch(at("#time-shifts .body"), timeShifts(view, chosen, actions));
  patch(at("#jobs .body"), jobs(view, chosen, actions));
  patch(at("#details .body"), details(view, chosen, actions));
  tooltip(view);
}

function tooltip(view) {
  const box = at("#tooltip");
  const shown = state.hovered && brief(view, state.hovered);
  box.hidden = !shown;
  if (!shown) return;
  const [title, rows] = shown;
  patch(box, h("strong", {}, title), rows.map(([name, value]) => h("div", {}, h("span", {}, name), " ", value)));
  const [x, y] = state.pointer;
  box.style.left = `${Math.min(x + 14, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.min(y + 14, innerHeight - box.offsetHeight - 8)}px`;
}

follow(
  "api/v1/events",
  (view) => {
    state.view = view;
    state.seen = Date.now();
    redraw();
  },
  (connectionState) => {
    state.connection = connectionState;
    redraw();
  },
);
addEventListener("keydown", (event) => event.key === "Escape" && actions.choose(null));
setInterval(redraw, 1000);
redraw();
