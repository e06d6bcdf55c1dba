// SPDX-License-Identifier: Apache-2.0
// The fabric at a time in the past: its links, the plan that was in force, and the iterations of then and now.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Live } from "../api/live";
import type { CableRow, MomentOfPast } from "../api/types";
import { FabricMap } from "../fabric/map";
import { useAnswer } from "../state/use_answer";
import * as format from "../ui/format";
import { Facts, Fault, Panel } from "../ui/panel";
import { JobName } from "../ui/pick";
import { DataTable } from "../ui/table";

// While the time is dragged nothing is asked.
const WAIT_MS = 250;

export function Moment({ live, at, jobs }: { live: Live; at: number; jobs: string[] }) {
  const [asked, setAsked] = useState<number | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(at), WAIT_MS);
    return () => clearTimeout(timer);
  }, [at]);
  const { value, fault } = useAnswer<MomentOfPast>(asked === null ? null : `history/moment?time_ns=${asked}`);
  const then = useMemo(() => (value ? liveOf(live, value) : null), [live.fabric, value]);
  return (
    <Panel id="moment" title={`The fabric at ${format.time(value?.time_ns ?? at)}`} measuredNs={value?.time_ns}>
      {fault && <Fault fault={fault} what="The fabric of then" />}
      {!value && !fault && <p class="muted">…</p>}
      {value && then && (
        <>
          <FabricMap live={then} flows={[]} jobs={jobs} />
          <Facts rows={[
            ["plan", value.plan ? `version ${value.plan.version} of ${value.plan.policy}` : "not known"],
            ["made because", value.plan?.reason || "–"],
            ["down", listed(value.down, "nothing")],
            ["alarms", listed(value.alarms?.map((one) => one.text) ?? null, "none")],
          ]} />
          <DataTable
            caption="Iterations then and now (ms)" rows={Object.entries(value.jobs)} keyOf={([name]) => name} empty="No iteration ended then."
            columns={[
              { title: "Job", value: ([name]) => name, show: ([name]) => <JobName name={name} jobs={jobs} /> },
              { title: "Then", number: true, value: ([, row]) => row.mean_ms, show: ([, row]) => format.ms(row.mean_ms) },
              { title: "Now", number: true, value: ([name]) => live.tables.jobs[name]?.mean_ms ?? null, show: ([name]) => format.ms(live.tables.jobs[name]?.mean_ms) },
            ]}
          />
        </>
      )}
    </Panel>
  );
}

/** Names, a word for none, or that they are not known. */
function listed(names: string[] | null, none: string): string {
  return names === null ? "not known" : names.length > 0 ? format.names(names) : none;
}

function whole(values: (number | null)[]): (number | null)[] {
  return values.map((value) => (value === null ? null : Math.round(value)));
}

/** The map's state of then. Queues are not kept; drained parts are those of no time. */
function liveOf(live: Live, { time_ns, links, down }: MomentOfPast): Live {
  const rates = live.fabric.columns.cables.rate_bps;
  const cables: Record<string, CableRow> = {};
  const switches = { ...live.tables.switches };
  for (const name in switches) switches[name] = { ...switches[name]!, drained: false, state: "ready" };
  for (const name of down ?? []) {
    if (name in switches) switches[name] = { ...switches[name]!, state: "down" };
    else cables[name] = { up: false, drained: false };
  }
  return {
    ...live, timeNs: time_ns,
    links: { load: whole(links.load), marks: whole(links.marks), queue_packets: rates.flatMap(() => [null, null]) },
    tables: { ...live.tables, cables, switches },
  };
}
