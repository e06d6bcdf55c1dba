// SPDX-License-Identifier: Apache-2.0
// The fabric at a time in the past: its busiest links, and the iterations of then beside those of now.

import type { Live } from "../api/live";
import { FabricMap } from "../fabric/map";
import { useAnswer } from "../state/use_answer";
import * as format from "../ui/format";
import { Fault, Panel } from "../ui/panel";
import { JobName } from "../ui/pick";
import { DataTable } from "../ui/table";

interface Past { time_ns: number; links: { load: (number | null)[]; marks: (number | null)[] }; jobs: Record<string, { mean_ms: number | null }> }

export function Moment({ live, at, jobs }: { live: Live; at: number; jobs: string[] }) {
  const { value, fault } = useAnswer<Past>(`history/moment?time_ns=${at}`);
  return (
    <Panel id="moment" title={`The fabric at ${format.time(at)}`} measuredNs={value?.time_ns}>
      {fault && <Fault fault={fault} what="The fabric of then" />}
      {value && (
        <>
          <FabricMap live={{ ...live, links: { ...value.links, queue_packets: value.links.load.map(() => null) }, timeNs: value.time_ns }} flows={[]} jobs={jobs} />
          <DataTable
            caption="Iterations then and now (ms)" rows={Object.entries(value.jobs)} keyOf={([name]) => name}
            columns={[
              { title: "Job", value: ([name]) => name, show: ([name]) => <JobName name={name} jobs={jobs} /> },
              { title: "Then", number: true, value: ([, one]) => one.mean_ms, show: ([, one]) => format.ms(one.mean_ms) },
              { title: "Now", number: true, value: ([name]) => live.tables.jobs[name]?.mean_ms ?? null, show: ([name]) => format.ms(live.tables.jobs[name]?.mean_ms) },
            ]}
          />
        </>
      )}
    </Panel>
  );
}
