// SPDX-License-Identifier: Apache-2.0
// Follows the controller's events for as long as the page is open.

import { apply, fromKeyframe, type Live } from "./live";
import type { Difference, Keyframe } from "./types";
import { keyframeOf, type View } from "./view_events";

export type Connection = "connecting" | "live" | "reconnecting";

const AGAIN_MS = 2000;

/** Calls `show` with each newer state, and `connected` when the connection comes or goes. */
export function follow(show: (live: Live) => void, connected: (state: Connection) => void): void {
  let live: Live | null = null;

  const open = (path: string, listen: (events: EventSource) => void, missing: () => void): void => {
    const events = new EventSource(path);
    let opened = false;
    events.onopen = () => {
      opened = true;
      connected("live");
    };
    events.onerror = () => {
      connected(opened ? "reconnecting" : "connecting");
      // The browser reconnects by itself unless the answer was no stream: an error of a proxy, or of a start.
      if (events.readyState !== EventSource.CLOSED) return;
      if (opened) setTimeout(() => open(path, listen, missing), AGAIN_MS);
      else missing();
    };
    listen(events);
  };

  const differences = (): void => open("api/v1/stream", (events) => {
    events.addEventListener("keyframe", (event) => {
      live = fromKeyframe(JSON.parse((event as MessageEvent<string>).data) as Keyframe, live);
      show(live);
    });
    events.addEventListener("difference", (event) => {
      if (live === null) return;
      if (apply(live, JSON.parse((event as MessageEvent<string>).data) as Difference)) show(live);
      else {
        events.close();
        differences();
      }
    });
  }, () => setTimeout(views, 0));

  // A controller without /stream sends whole views.
  const views = (): void => open("api/v1/events", (events) => {
    events.addEventListener("view", (event) => {
      live = fromKeyframe(keyframeOf(JSON.parse((event as MessageEvent<string>).data) as View), live);
      show(live);
    });
  }, () => setTimeout(differences, AGAIN_MS));

  differences();
}
