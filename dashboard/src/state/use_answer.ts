// SPDX-License-Identifier: Apache-2.0
// An answer of the REST API as state of a component.

import { useEffect, useState } from "preact/hooks";
import { call, Refused } from "../api/client";

export interface Fetched<T> {
  value: T | null;
  etag: string | null;
  /** Why there is no newer value; null: there is one. */
  fault: Refused | null;
  /** Host time of `value` in ms; null: none yet. */
  at: number | null;
  again: () => void;
}

/**
 * Fetch `path` (null: nothing) now, whenever `fresh` changes, and every `everyMs` if that is given. The last
 * value stays until there is a newer one of the same path.
 */
export function useAnswer<T>(path: string | null, fresh: unknown = 0, everyMs = 0): Fetched<T> {
  const [state, setState] = useState<{ path: string | null; value: T | null; etag: string | null; fault: Refused | null; at: number | null }>(
    { path: null, value: null, etag: null, fault: null, at: null },
  );
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    let open = true;
    call<T>("GET", path).then(
      ({ value, etag }) => open && setState({ path, value, etag, fault: null, at: Date.now() }),
      (fault: unknown) => open && setState((old) => ({
        ...(old.path === path ? old : { path, value: null, etag: null, at: null }),
        fault: fault instanceof Refused ? fault : new Refused(0, String(fault)),
      })),
    );
    const timer = everyMs > 0 ? setTimeout(() => setTurn((n) => n + 1), everyMs) : 0;
    return () => {
      open = false;
      clearTimeout(timer);
    };
  }, [path, fresh, turn, everyMs]);
  const own = state.path === path;
  return {
    value: own ? state.value : null,
    etag: own ? state.etag : null,
    fault: own ? state.fault : null,
    at: own ? state.at : null,
    again: () => setTurn((n) => n + 1),
  };
}
