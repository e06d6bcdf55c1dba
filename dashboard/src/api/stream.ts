// SPDX-License-Identifier: Apache-2.0
// Follows the controller's events for as long as the page is open.

import { apply, fromKeyframe, type Live } from "./live";
import type { Difference, Keyframe } from "./types";

export type Connection = "connecting" | "live" | "reconnecting";

const AGAIN_MS = 2000;

/**
 * Calls `show` with each newer state, and `connected` when the connection comes or goes; `refused` is what the
 * controller says against a stream, "" where it says nothing.
 */
export function follow(show: (live: Live) => void, connected: (state: Connection, refused: string) => void): void {
  let live: Live | null = null;
  let opened = false;

  const open = (): void => {
    const events = new EventSource("api/v1/stream");
    const again = (): void => {
      events.close();
      setTimeout(open, AGAIN_MS);
    };
    events.onopen = () => {
      opened = true;
      connected("live", "");
    };
    events.onerror = () => {
      const state = opened ? "reconnecting" : "connecting";
      // The browser reconnects by itself unless the answer was no stream: too many are open, or a proxy's error.
      if (events.readyState !== EventSource.CLOSED) return connected(state, "");
      void refusal().then((words) => {
        connected(state, words);
        again();
      });
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

/** What the controller says against a stream, which an EventSource does not tell; "" where it says nothing. */
async function refusal(): Promise<string> {
  const stop = new AbortController();
  try {
    const answer = await fetch("api/v1/stream", { signal: stop.signal });
    return answer.ok ? "" : ((await answer.json()) as { detail?: string }).detail ?? "";
  } catch {
    return "";
  } finally {
    // An answer that is a stream has no end.
    stop.abort();
  }
}
