// SPDX-License-Identifier: Apache-2.0
// The present minute under every policy, by the simulator: bars side by side, with the worst-off job named.

import { useState } from "preact/hooks";
import { call, Refused } from "../api/client";
import type { Live } from "../api/live";
import type { InstalledPolicy, WhatIf } from "../api/types";
import { jobColour } from "../fabric/colours";
import { set, state } from "../state/store";
import { useAnswer } from "../state/use_answer";
import * as format from "../ui/format";
import { Fault, Panel } from "../ui/panel";
import { JobName } from "../ui/pick";

// Columns of jobs. Chosen: more do not fit; the worst-off jobs come first.
const JOBS_SHOWN = 12;

type Result = WhatIf["results"][number];

export function WhatIfView({ live, jobs }: { live: Live; jobs: string[] }) {
  const all = useAnswer<{ policies: InstalledPolicy[] }>("policies");
  const [answer, setAnswer] = useState<WhatIf | null>(null);
  const [fault, setFault] = useState<Refused | null>(null);
  const [busy, setBusy] = useState(false);
  const policies = (all.value?.policies ?? []).filter((one) => !one.simulator_only && !one.fault).map((one) => one.name);
  // The address holds the policies that are left out, so that it can be sent to others.
  const without = new Set((state.address.more["without"] ?? "").split(",").filter(Boolean));
  const asked = policies.filter((name) => !without.has(name));
  const turn = (name: string) => {
    if (!without.delete(name)) without.add(name);
    set({ without: [...without].join(",") });
  };
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
        {policies.map((name) => <label class="check" key={name}><input type="checkbox" checked={!without.has(name)} onChange={() => turn(name)} /> {name}</label>)}
        <button type="button" disabled={busy || asked.length === 0} onClick={() => void ask()}>{busy ? "Simulating …" : "Simulate"}</button>
      </fieldset>
      {busy && <p class="muted" role="status">The simulator works; this takes up to half a minute.</p>}
      {fault && <Fault fault={fault} what="What-if" />}
      {answer && <Results answer={answer} jobs={jobs} present={live.tables.status.plan?.policy ?? ""} />}
    </Panel>
  );
}

function Results({ answer, jobs, present }: { answer: WhatIf; jobs: string[]; present: string }) {
  const slowdowns = new Map(answer.results.map((one) => [one.policy, new Map(one.jobs.map((job) => [job.job, slowdown(job)]))]));
  const most = Math.max(1, ...[...slowdowns.values()].flatMap((one) => [...one.values()].map((value) => value ?? 0)));
  const reference = slowdowns.get(present) ?? [...slowdowns.values()].find((one) => one.size > 0) ?? new Map<string, number | null>();
  const names = [...reference.keys()].sort((a, b) => (reference.get(b) ?? 0) - (reference.get(a) ?? 0));
  const shown = names.slice(0, JOBS_SHOWN);
  return (
    <>
      <p>{format.time(answer.horizon_ms * 1e6)} of the fabric were simulated. Bars of jobs: mean iteration, as a multiple of the iteration alone; shorter is better.</p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Iterations by policy">
        <table class="bars">
          <caption>Iterations by policy{names.length > shown.length ? `; the ${shown.length} worst off of ${names.length} jobs` : ""}</caption>
          <thead><tr><th scope="col">Policy</th><th scope="col">Worst off</th><th scope="col">GPUs compute</th>{shown.map((name) => <th scope="col" key={name}><JobName name={name} jobs={jobs} /></th>)}</tr></thead>
          <tbody>{answer.results.map((one) => <Row key={one.policy} one={one} shown={shown} jobs={jobs} most={most} present={present} />)}</tbody>
        </table>
      </div>
    </>
  );
}

function Row({ one, shown, jobs, most, present }: { one: Result; shown: string[]; jobs: string[]; most: number; present: string }) {
  const found = new Map(one.jobs.map((job) => [job.job, job]));
  return (
    <tr data-row={one.policy} class={one.policy === present ? "picked" : ""}>
      <th scope="row">{one.policy}{one.policy === present && <small> in force</small>}</th>
      <td>{one.fault ?? (one.worst ? <><strong>{one.worst.job}</strong> {one.worst.ratio === null ? "ends no iteration" : `${one.worst.ratio.toFixed(2)}×`}</> : "–")}{one.note && <small>{one.note}</small>}</td>
      <td>{one.gpu_utilisation == null ? "–" : <><Bar part={one.gpu_utilisation} colour="var(--accent)" />{format.percent(100 * one.gpu_utilisation)} of the time</>}</td>
      {shown.map((name) => {
        const job = found.get(name);
        const value = job ? slowdown(job) : null;
        return (
          <td key={name}>
            {value !== null && <Bar part={value / most} colour={jobColour(jobs.indexOf(name))} />}
            <span>{job?.mean_ms == null ? "–" : `${format.ms(job.mean_ms)} ms`}{value === null ? "" : `, ${value.toFixed(2)}×`}</span>
          </td>
        );
      })}
    </tr>
  );
}

function Bar({ part, colour }: { part: number; colour: string }) {
  return <span class="bar" style={{ "--job": colour }} aria-hidden="true"><i style={{ width: `${100 * Math.min(1, part)}%` }} /></span>;
}

function slowdown(job: { mean_ms: number | null; alone_ms: number | null }): number | null {
  return job.mean_ms === null || !job.alone_ms ? null : job.mean_ms / job.alone_ms;
}
