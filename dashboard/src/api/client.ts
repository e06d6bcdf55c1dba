// SPDX-License-Identifier: Apache-2.0
// Requests to the REST API: problems as text for people, ETags, and the token for changes.

const PREFIX = "api/v1";
const TOKEN_KEY = "polyrhythm-token";
// A question without an answer is given up after this time, and may be put again. Chosen: above all pauses of a
// controller that works. Changes wait for their outcome.
const ANSWER_MS = 60_000;

/** An answer that is no success. `status` 0: the controller was not reached. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

export interface Answer<T> {
  value: T;
  etag: string | null;
}

/** The token that changes are sent with; it lives as long as this browser tab. */
export const token = {
  get: (): string => sessionStorage.getItem(TOKEN_KEY) ?? "",
  set: (value: string): void => {
    if (value) sessionStorage.setItem(TOKEN_KEY, value);
    else sessionStorage.removeItem(TOKEN_KEY);
  },
};

/** Send a request to a path below /api/v1. Throws `Refused`. */
export async function call<T>(method: string, path: string, body?: unknown, etag?: string | null): Promise<Answer<T>> {
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = etag;
  if (token.get()) headers["Authorization"] = `Bearer ${token.get()}`;
  let response: Response;
  try {
    response = await fetch(`${PREFIX}/${path}`, {
      method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }), ...(method === "GET" ? { signal: AbortSignal.timeout(ANSWER_MS) } : {}),
    });
  } catch {
    throw new Refused(0, "the controller does not answer");
  }
  const text = await response.text().catch(() => {
    throw new Refused(0, "the controller has broken off its answer");
  });
  let value: unknown = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    throw new Refused(response.status, `the answer of ${path} is not JSON`);
  }
  // /readyz answers 503 with what is missing.
  if (!response.ok && !(path === "readyz" && response.status === 503)) throw new Refused(response.status, problem(value, response));
  return { value: value as T, etag: response.headers.get("ETag") };
}

/**
 * GET a list whose pages name the next one: the answer of the first page, with the items of all, or of the first
 * `pages`; `next` is that of the last one. `list` is the name of the list in the answer. Throws `Refused`.
 */
export async function callPages<T>(path: string, list: string, pages = Infinity): Promise<Answer<T>> {
  const first = await call<Record<string, unknown>>("GET", path);
  const items = [...(first.value[list] as unknown[])];
  let next = first.value["next"];
  for (let read = 1; typeof next === "string" && read < pages; read += 1) {
    const page = await get<Record<string, unknown>>(`${path}${path.includes("?") ? "&" : "?"}cursor=${part(next)}`);
    items.push(...(page[list] as unknown[]));
    next = page["next"];
  }
  return { value: { ...first.value, [list]: items, next } as T, etag: first.etag };
}

export async function get<T>(path: string): Promise<T> {
  return (await call<T>("GET", path)).value;
}

function problem(value: unknown, response: Response): string {
  const { detail, title, faults } = (value ?? {}) as { detail?: string; title?: string; faults?: unknown[] };
  const words = detail ?? title ?? response.statusText;
  return faults?.length ? `${words}: ${faults.map((fault) => JSON.stringify(fault)).join("; ")}` : words;
}

/** A name as part of a path. */
export const part = encodeURIComponent;
