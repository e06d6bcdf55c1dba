// SPDX-License-Identifier: Apache-2.0
// The frame of each part of the page, which says when its figures were measured.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Refused } from "../api/client";
import * as format from "./format";

interface Props {
  id: string;
  title: string;
  /** Fabric time of the figures; null: not measured yet. */
  measuredNs?: number | null | undefined;
  /** Host time in ms at which they were fetched, for what has no fabric time. */
  readAt?: number | null;
  wide?: boolean;
  children: ComponentChildren;
}

export function Panel({ id, title, measuredNs, readAt, wide, children }: Props) {
  return (
    <section class={wide ? "card wide" : "card"} id={id} aria-labelledby={`${id}-title`}>
      <div class="card-head">
        <h2 id={`${id}-title`}>{title}</h2>
        <Measured ns={measuredNs} at={readAt} />
      </div>
      <div class="body">{children}</div>
    </section>
  );
}

function Measured({ ns, at }: { ns: number | null | undefined; at: number | null | undefined }) {
  if (ns != null) return <p class="measured">measured at {format.time(ns)} of fabric time</p>;
  if (at != null) return <p class="measured">read <Ago at={at} /></p>;
  return <p class="measured">not measured yet</p>;
}

/** How long ago a host time was. */
export function Ago({ at }: { at: number }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.max(0, Math.floor((now - at) / 1000));
  return <>{seconds < 2 ? "just now" : seconds < 120 ? `${seconds} s ago` : `${Math.floor(seconds / 60)} min ago`}</>;
}

/** Why something is not shown. */
export function Fault({ fault, what }: { fault: Refused; what: string }) {
  const words = fault.status === 404 ? `${what}: not available on this controller${fault.message.includes("legal:") ? "" : ` (${fault.message})`}` : `${what}: ${fault.message}`;
  return <p class="fault" role="status">{words}</p>;
}

/** Names and values. */
export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return <dl class="pairs">{rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}
