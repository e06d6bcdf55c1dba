// SPDX-License-Identifier: Apache-2.0
// The plans of the past: what differs from the one in force, and the way back.

import type { Live } from "../api/live";
import type { PastPlan } from "../api/types";
import { set, state } from "../state/store";
import { useAnswer, usePages } from "../state/use_answer";
import * as format from "../ui/format";
import { Fault, Panel } from "../ui/panel";
import { DataTable } from "../ui/table";
import { Said, useChange } from "./action";

interface Difference { jobs: { job: string }[]; flows: { flow: string }[]; next: string | null }

export function Plans({ live }: { live: Live }) {
  const { value, fault, at, again, more } = usePages<{ plans: PastPlan[]; next: string | null }>("plans?most=50", "plans", live.tables.status.plan?.version, 10_000);
  const compared = Number(state.address.more["compare"] ?? "") || null;
  const difference = useAnswer<Difference>(compared === null ? null : `plans/${compared}/diff?most=50`, live.tables.status.plan?.version);
  const [outcome, send] = useChange(again);
  return (
    <Panel id="plans" title="Plans" readAt={at}>
      {fault && <Fault fault={fault} what="The history of plans" />}
      {value && (
        <DataTable
          caption="Plans, the newest first" rows={value.plans} keyOf={(one) => String(one.version)} empty="No plan is stored yet." pageSize={8} more={more}
          picked={(one) => one.version === compared}
          columns={[
            { title: "Plan", number: true, value: (one) => one.version },
            { title: "In force since (UTC)", value: (one) => one.time_ns, show: (one) => format.utc(one.time_ns / 1e6) },
            { title: "Policy", value: (one) => one.policy },
            { title: "Reason", value: (one) => one.reason ?? null },
            {
              title: "Change", value: () => "",
              show: (one) => (one.in_force ? <strong>in force</strong> : (
                <>
                  <button type="button" onClick={() => set({ compare: String(one.version) })}>Compare {one.version}</button>{" "}
                  <button type="button" disabled={outcome.busy} onClick={() => send(`plan ${one.version} is in force again, under a new number`, "POST", `plans/${one.version}/rollback`)}>Roll back to {one.version}</button>
                </>
              )),
            },
          ]}
        />
      )}
      <Said outcome={outcome} />
      {difference.fault && <Fault fault={difference.fault} what="The comparison" />}
      {difference.value && (
        <p role="status">
          Plan {compared} differs from the one in force in {format.count(difference.value.jobs.length)} jobs
          {difference.value.jobs.length > 0 && ` (${format.names(difference.value.jobs.map((one) => one.job))})`} and
          {difference.value.next ? " more than" : ""} {format.count(difference.value.flows.length)} flows
          {difference.value.flows.length > 0 && ` (${format.names(difference.value.flows.map((one) => one.flow))})`}.
        </p>
      )}
    </Panel>
  );
}
