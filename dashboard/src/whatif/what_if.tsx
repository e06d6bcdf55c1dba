// SPDX-License-Identifier: Apache-2.0
// The present minute under every policy, by the simulator: bars side by side, with the worst-off job named.

import { useState } from "preact/hooks";
import { call, Refused } from "../api/client";
import type { Live } from "../api/live";
import type { InstalledPolicy, WhatIf } from "../api/types";
import { jobColour } from "../fabric/colours";
import { useAnswer } from "../state/use_answer";
import * as format from "../ui/format";
import { Fault, Panel } from "../ui/panel";
import { JobName } from "../ui/pick";

export function WhatIfView({ live, jobs }: { live: Live; jobs: string[] }) {
  const all = useAnswer<{ policies: InstalledPolicy[] }>("policies");
  const [without, setWithout] = useState<Set<string>>(new Set());
  const [answer, setAnswer] = useState<WhatIf | null>(null);
  const [fault, setFault] = useState<Refused | null>(null);
  const [busy, setBusy] = useState(false);
  const policies = (all.value?.policies ?? []).filter((one) => !one.simulator_only && !one.fault).map((one) => one.name);
  const asked = policies.filter((name) => !without.has(name));
  const ask = async () => {
    setBusy(true);
    setFault(null);
    try {
      setAnswer((await call<WhatIf>("POST", "what-if", { policies: asked })).value);
    } catch (error) {
      setFault(error instanceof Refused ? error : new Refused(0, String(error)));
    }
    setBusy(false);
  };
  return (
    <Panel id="what-if" title="What if another policy made the plans" measuredNs={answer?.time_ns} wide>
      <p class="muted">The simulator lets the present jobs run on the present fabric under each policy. Nothing is changed.</p>
      {all.fault && <Fault fault={all.fault} what="The policies" />}
      <fieldset class="tools">
        <legend>Policies</legend>
        {policies.map((name) => (
          <label class="check" key={name}><input type="checkbox" checked={!without.has(name)} onChange={() => setWithout((old) => {
            const next = new Set(old);
            if (!next.delete(name)) next.add(name);
            return next;
          })} /> {name}</label>
        ))}
        <button type="button" disabled={busy || asked.length === 0} onClick={() => void ask()}>{busy ? "Simulating …" : "Simulate"}</button>
      </fieldset>
      {fault && <Fault fault={fault} what="What-if" />}
      {answer && <Results answer={answer} jobs={jobs} present={live.tables.status.plan?.policy ?? ""} />}
    </Panel>
  );
}

function Results({ answer, jobs, present }: { answer: WhatIf; jobs: string[]; present: string }) {
  const most = Math.max(1, ...answer.results.flatMap((one) => one.jobs.map((job) => slowdown(job) ?? 0)));
  return (
    <>
      <p>{format.shortMs(answer.horizon_ms)} ms of the fabric were simulated. Bars: mean iteration, as a multiple of the iteration alone; shorter is better.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Iterations by policy">
        <table class="bars">
          <caption>Iterations by policy</caption>
          <thead><tr><th scope="col">Policy</th><th scope="col">Worst off</th>{answer.results[0]?.jobs.map((one) => <th scope="col" key={one.job}><JobName name={one.job} jobs={jobs} /></th>)}</tr></thead>
          <tbody>
            {answer.results.map((one) => (
              <tr key={one.policy} class={one.policy === present ? "picked" : ""}>
                <th scope="row">{one.policy}{one.policy === present && <small> in force</small>}</th>
                <td>{one.fault ?? (one.worst ? <><strong>{one.worst.job}</strong> {one.worst.ratio.toFixed(2)}×</> : "–")}</td>
                {one.jobs.map((job) => {
                  const value = slowdown(job);
                  return (
                    <td key={job.job}>
                      {value !== null && <span class="bar" style={{ "--job": jobColour(jobs.indexOf(job.job)) }} aria-hidden="true"><i style={{ width: `${(100 * value) / most}%` }} /></span>}
                      <span>{format.ms(job.mean_ms)} ms{value === null ? "" : `, ${value.toFixed(2)}×`}</span>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function slowdown(job: { mean_ms: number | null; alone_ms: number | null }): number | null {
  return job.mean_ms === null || !job.alone_ms ? null : job.mean_ms / job.alone_ms;
}
