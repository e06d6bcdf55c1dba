// SPDX-License-Identifier: Apache-2.0
// An answer of the REST API as state of a component.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, callPages, Refused } from "../api/client";

// A question that no controller answered is put again after this time. Chosen: short for who waits for a restart.
const RETRY_MS = 3000;

export interface Fetched<T> {
  value: T | null;
  etag: string | null;
  /** Why there is no newer value; null: there is one. */
  fault: Refused | null;
  /** Host time of `value` in ms; null: none yet. */
  at: number | null;
  again: () => void;
}

interface Held<T> { of: string | null; value: T | null; etag: string | null; fault: Refused | null; at: number | null }

/**
 * Fetch `path` (null: nothing) now, whenever `path` or `fresh` changes, and `everyMs` after each answer if that is
 * given. The last value stays until there is a newer one of the same `of`: of the same path, if nothing else is
 * said. One question of an `of` is open at a time, so a slow controller is not asked faster than it answers. With
 * `list`, the name of a list in the answer, its further pages are fetched too: `pages` in all.
 */
export function useAnswer<T>(path: string | null, fresh: unknown = 0, everyMs = 0, of: string | null = path, list: string | null = null, pages = Infinity): Fetched<T> {
  const [held, setHeld] = useState<Held<T>>({ of: null, value: null, etag: null, fault: null, at: null });
  const [turn, setTurn] = useState(0);
  const open = useRef<{ of: string | null; due: boolean } | null>(null);
  const timer = useRef(0);
  const again = () => setTurn((n) => n + 1);
  useEffect(() => {
    clearTimeout(timer.current);
    if (path === null) {
      open.current = null;
      return;
    }
    if (open.current?.of === of) {
      open.current.due = true;
      return;
    }
    const mine = (open.current = { of, due: false });
    const ended = (waitMs: number) => {
      open.current = null;
      if (mine.due) again();
      else if (waitMs > 0) timer.current = window.setTimeout(again, waitMs);
    };
    (list === null ? call<T>("GET", path) : callPages<T>(path, list, pages)).then(
      ({ value, etag }) => {
        if (open.current !== mine) return;
        setHeld({ of, value, etag, fault: null, at: Date.now() });
        ended(everyMs);
      },
      (error: unknown) => {
        if (open.current !== mine) return;
        const fault = error instanceof Refused ? error : new Refused(0, String(error));
        setHeld((old) => ({ ...(old.of === of ? old : { of, value: null, etag: null, at: null }), fault }));
        ended(everyMs || (fault.status === 0 || fault.status >= 500 ? RETRY_MS : 0));
      },
    );
  }, [path, of, list, pages, fresh, turn, everyMs]);
  useEffect(() => () => {
    open.current = null;
    clearTimeout(timer.current);
  }, []);
  const own = path !== null && held.of === of;
  return {
    value: own ? held.value : null,
    etag: own ? held.etag : null,
    fault: own ? held.fault : null,
    at: own ? held.at : null,
    again,
  };
}

/** As `useAnswer`, of a long `list`: its first page, and one more whenever `more` is called; null: there is none. */
export function usePages<T extends { next: string | null }>(path: string | null, list: string, fresh: unknown = 0, everyMs = 0, of: string | null = path): Fetched<T> & { more: (() => void) | null } {
  const [wanted, setWanted] = useState({ of, pages: 1 });
  const pages = wanted.of === of ? wanted.pages : 1;
  const answer = useAnswer<T>(path, fresh, everyMs, of, list, pages);
  return { ...answer, more: answer.value?.next ? () => setWanted({ of, pages: pages + 1 }) : null };
}
