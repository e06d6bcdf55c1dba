// SPDX-License-Identifier: Apache-2.0
// The controller's views as they come, over server-sent events, for as long as the page is open.

const REOPEN_MS = 2000;

/**
 * Calls `onView(view)` for each view, and `onState(state)` with "live" or "reconnecting".
 * The browser reconnects by itself after a lost connection, but not after an HTTP error: we do then.
 */
export function follow(url, onView, onState) {
  const events = new EventSource(url);
  events.addEventListener("open", () => onState("live"));
  events.addEventListener("view", (event) => onView(JSON.parse(event.data)));
  events.addEventListener("error", () => {
    onState("reconnecting");
    if (events.readyState === EventSource.CLOSED) {
      setTimeout(() => follow(url, onView, onState), REOPEN_MS);
    }
  });
}
