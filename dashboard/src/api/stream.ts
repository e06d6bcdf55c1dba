// SPDX-License-Identifier: Apache-2.0
// Follows the controller's events for as long as the page is open.

import { apply, fromKeyframe, type Live } from "./live";
import type { Difference, Keyframe } from "./types";

export type Connection = "connecting" | "live" | "reconnecting";

const AGAIN_MS = 2000;

/** Calls `show` with each newer state, and `connected` when the connection comes or goes. */
export function follow(show: (live: Live) => void, connected: (state: Connection) => void): void {
  let live: Live | null = null;

  const open = (): void => {
    const events = new EventSource("api/v1/stream");
    const again = (): void => {
      events.close();
      setTimeout(open, AGAIN_MS);
    };
    let opened = false;
    events.onopen = () => {
      opened = true;
      connected("live");
    };
    events.onerror = () => {
      connected(opened ? "reconnecting" : "connecting");
      // The browser reconnects by itself unless the answer was no stream: an error of a proxy, or of a start.
      if (events.readyState === EventSource.CLOSED) again();
    };
    events.addEventListener("keyframe", (event) => {
      live = fromKeyframe(JSON.parse((event as MessageEvent<string>).data) as Keyframe, live);
      show(live);
    });
    events.addEventListener("difference", (event) => {
      if (live === null) return;
      if (apply(live, JSON.parse((event as MessageEvent<string>).data) as Difference)) show(live);
      else again();
    });
  };

  open();
}
