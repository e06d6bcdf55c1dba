// SPDX-License-Identifier: Apache-2.0
// The fabric at a time in the past: the loads and marks of its links, and the iterations of then and now.

import { useEffect, useState } from "preact/hooks";
import { get, part, Refused } from "../api/client";
import type { Live } from "../api/live";
import type { Columns, History } from "../api/types";
import { FabricMap } from "../fabric/map";
import * as format from "../ui/format";
import { Fault, Panel } from "../ui/panel";
import { JobName } from "../ui/pick";
import { DataTable } from "../ui/table";

// While the time is dragged nothing is asked.
const WAIT_MS = 250;
const NS = 1_000_000_000;

interface Past { at: number; links: Columns; jobs: [string, number | null][] }

export function Moment({ live, at, jobs }: { live: Live; at: number; jobs: string[] }) {
  const [past, setPast] = useState<Past | null>(null);
  const [fault, setFault] = useState<Refused | null>(null);
  useEffect(() => {
    let open = true;
    const timer = setTimeout(() => {
      momentOf(live, at, () => open).then(
        (found) => open && (setPast(found), setFault(null)),
        (error: unknown) => open && setFault(error instanceof Refused ? error : new Refused(0, String(error))),
      );
    }, WAIT_MS);
    return () => {
      open = false;
      clearTimeout(timer);
    };
  }, [at, live.fabric]);
  return (
    <Panel id="moment" title={`The fabric at ${format.time(at)}`} measuredNs={past?.at}>
      {fault && <Fault fault={fault} what="The fabric of then" />}
      {past && (
        <>
          <FabricMap live={{ ...live, links: past.links, timeNs: past.at }} flows={[]} jobs={jobs} />
          <DataTable
            caption="Iterations then and now (ms)" rows={past.jobs} keyOf={([name]) => name} empty="No iteration ended then."
            columns={[
              { title: "Job", value: ([name]) => name, show: ([name]) => <JobName name={name} jobs={jobs} /> },
              { title: "Then", number: true, value: ([, mean]) => mean, show: ([, mean]) => format.ms(mean) },
              { title: "Now", number: true, value: ([name]) => live.tables.jobs[name]?.mean_ms ?? null, show: ([name]) => format.ms(live.tables.jobs[name]?.mean_ms) },
            ]}
          />
        </>
      )}
    </Panel>
  );
}

async function momentOf(live: Live, at: number, wanted: () => boolean): Promise<Past> {
  const none: (number | null)[] = new Array<null>(live.fabric.size).fill(null);
  const links: Columns = { load: [...none], marks: [...none], queue_packets: none };
  let time = at;
  const fill = async (kind: string, each: (subject: string, value: number | null) => void): Promise<void> => {
    let cursor: string | null = null;
    do {
      const page: History = await get<History>(`history?kind=${kind}&from_ns=${Math.max(0, at - 5 * NS)}&to_ns=${at}&points=5&most=1000${cursor === null ? "" : `&cursor=${part(cursor)}`}`);
      for (const one of page.series) {
        const last = one.mean.findLastIndex((value) => value !== null);
        if (last < 0) continue;
        time = page.times_ns[last]!;
        each(one.subject, one.mean[last]!);
      }
      cursor = page.next;
    } while (cursor !== null && wanted());
  };
  for (const [kind, name] of [["loads", "load"], ["marks", "marks"]] as const) {
    await fill(kind, (subject, value) => {
      const direction = live.fabric.byId.get(subject);
      if (direction !== undefined) links[name][direction] = value === null ? null : Math.round(value);
    });
  }
  const jobs: [string, number | null][] = [];
  await fill("iterations", (subject, value) => jobs.push([subject, value]));
  return { at: time, links, jobs };
}
