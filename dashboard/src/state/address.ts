// SPDX-License-Identifier: Apache-2.0
// What the page shows, as the fragment of its address: "#/jobs?pick=job:vgg19&at=120000000".

export const VIEWS = ["fabric", "jobs", "circles", "timeline", "what-if", "operations"] as const;
export type ViewName = (typeof VIEWS)[number];
export type Kind = "job" | "flow" | "link" | "switch" | "host" | "group";
export interface Pick { kind: Kind; id: string }

export interface Address {
  view: ViewName;
  pick: Pick | null;
  /** Other settings of the views: overlay, fold, link, at. */
  more: Record<string, string>;
}

const KINDS: readonly string[] = ["job", "flow", "link", "switch", "host", "group"];

export function parse(hash: string): Address {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const view = (VIEWS as readonly string[]).includes(path) ? (path as ViewName) : "fabric";
  const { pick, ...more } = Object.fromEntries(new URLSearchParams(query));
  const [, kind, id] = /^(\w+):(.+)$/s.exec(pick ?? "") ?? [];
  return { view, pick: kind && id && KINDS.includes(kind) ? { kind: kind as Kind, id } : null, more };
}

export function format({ view, pick, more }: Address): string {
  const query = new URLSearchParams();
  if (pick) query.set("pick", `${pick.kind}:${pick.id}`);
  for (const [name, value] of Object.entries(more)) if (value !== "") query.set(name, value);
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}
