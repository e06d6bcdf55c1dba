// SPDX-License-Identifier: Apache-2.0
// Starts the page.

import { render } from "preact";
import { follow } from "./api/stream";
import { App } from "./app";
import { changed, drawBy, state } from "./state/store";
import "./style.css";

const place = document.getElementById("app")!;

drawBy(() => {
  if (state.live) document.title = [state.live.scenario, "Polyrhythm"].filter(Boolean).join(" · ");
  render(<App {...state} />, place);
});

follow(
  (live) => {
    // A new object lets components tell that something in it has changed.
    state.live = { ...live };
    state.revision += 1;
    state.seenAt = Date.now();
    changed();
  },
  (connection, refused) => {
    state.connection = connection;
    state.refused = refused;
    changed();
  },
);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
changed();
