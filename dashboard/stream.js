// SPDX-License-Identifier: Apache-2.0
// Receives the controller's views by server-sent events while the page is open.

const REOPEN_MS = 2000;

/**
 * Calls `onView(view)` for each view, and `onState(state)` with "live" or "reconnecting".
 * The browser reconnects by itself after a lost connection, but not after an HTTP error; then this does.
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
