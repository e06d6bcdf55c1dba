// SPDX-License-Identifier: Apache-2.0
// The state of the page, and the one place that changes it. Whoever draws is called once per frame.

import type { Live } from "../api/live";
import type { Connection } from "../api/stream";
import { format, parse, type Address, type Pick, type ViewName } from "./address";

export interface State {
  live: Live | null;
  /** Grows with each newer state; `live` is changed in place. */
  revision: number;
  connection: Connection;
  /** What the controller says against a stream of events; "": nothing. */
  refused: string;
  /** Host time of the last event, in ms. */
  seenAt: number;
  address: Address;
}

export const state: State = { live: null, revision: 0, connection: "connecting", refused: "", seenAt: Date.now(), address: parse(location.hash) };

let draw: () => void = () => {};
let due = false;

/** Draw soon. */
export function changed(): void {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw();
  });
}

export function drawBy(how: () => void): void {
  draw = how;
  addEventListener("hashchange", () => {
    state.address = parse(location.hash);
    changed();
  });
}

function go(address: Address, replace = false): void {
  state.address = address;
  const hash = format(address);
  if (hash !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", hash);
  changed();
}

/** Show another view; what is picked stays. */
export function show(view: ViewName, more: Record<string, string> = {}): void {
  go({ ...state.address, view, more: { ...state.address.more, ...more } });
}

/** Pick something; picking the same again, or null, ends the choice. */
export function choose(pick: Pick | null): void {
  const now = state.address.pick;
  const same = pick !== null && now !== null && pick.kind === now.kind && pick.id === now.id;
  go({ ...state.address, pick: same ? null : pick });
}

/**
 * Change a setting of a view, such as the overlay; an empty value is the usual one. `replace`: the browser's way
 * back skips the setting before.
 */
export function set(more: Record<string, string>, replace = false): void {
  go({ ...state.address, more: { ...state.address.more, ...more } }, replace);
}

/** Where picking something leads, for links. */
export function hrefOf(pick: Pick | null, view: ViewName = state.address.view): string {
  return format({ ...state.address, view, pick });
}
