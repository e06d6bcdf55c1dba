// SPDX-License-Identifier: Apache-2.0
// A change of the controller by the operator: sent once, and what came of it said beside the button.

import { useState } from "preact/hooks";
import { call, Refused } from "../api/client";

export interface Outcome { done: string | null; fault: Refused | null; busy: boolean }

const NONE: Outcome = { done: null, fault: null, busy: false };

/** The outcome of the last change, and the function that makes one. */
export function useChange(after: () => void): [Outcome, (words: string, method: string, path: string, body?: unknown, etag?: string | null) => Promise<void>] {
  const [outcome, setOutcome] = useState<Outcome>(NONE);
  const send = async (words: string, method: string, path: string, body?: unknown, etag?: string | null): Promise<void> => {
    setOutcome({ ...NONE, busy: true });
    try {
      await call<unknown>(method, path, body, etag);
      setOutcome({ ...NONE, done: words });
    } catch (error) {
      setOutcome({ ...NONE, fault: error instanceof Refused ? error : new Refused(0, String(error)) });
    }
    after();
  };
  return [outcome, send];
}

/** What came of a change. A conflict says that the figures here are those of now, so that it can be tried again. */
export function Said({ outcome }: { outcome: Outcome }) {
  if (outcome.busy) return <p class="muted" role="status">…</p>;
  if (outcome.fault) {
    const { status, message } = outcome.fault;
    const more = status === 412 ? " Somebody has changed it meanwhile: what is shown now is the present state; try again if you still want to."
      : status === 401 || status === 403 ? " Enter a token for changes above." : "";
    return <p class={status === 412 ? "fault conflict" : "fault"} role="alert">{message}.{more}</p>;
  }
  return outcome.done ? <p class="done" role="status">{outcome.done}</p> : null;
}
