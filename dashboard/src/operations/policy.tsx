// SPDX-License-Identifier: Apache-2.0
// The policy that makes the plans: which, what another one would change, and the change to it.

import { useState } from "preact/hooks";
import { call, Refused } from "../api/client";
import type { InstalledPolicy, PolicySetting } from "../api/types";
import { useAnswer } from "../state/use_answer";
import * as format from "../ui/format";
import { Facts, Fault, Panel } from "../ui/panel";
import { JobName } from "../ui/pick";
import { DataTable } from "../ui/table";
import { Said, useChange } from "./action";

interface DryRun {
  plan: { jobs: { job: string; level: number; shift_ms: number; expected_ms: number | null; ecmp_ms: number | null }[] };
  entries: Record<string, string[]>;
  messages: string[];
}

export function PolicyPanel({ jobs }: { jobs: string[] }) {
  const setting = useAnswer<PolicySetting>("policy", 0, 5000);
  const all = useAnswer<{ policies: InstalledPolicy[] }>("policies");
  const [name, setName] = useState<string | null>(null);
  const [options, setOptions] = useState("");
  const [tried, setTried] = useState<{ name: string; value: DryRun } | null>(null);
  const [refused, setRefused] = useState<Refused | null>(null);
  const [trying, setTrying] = useState(false);
  const [outcome, send] = useChange(() => {
    setting.again();
    // The choice stays, but the tag of the next try is the one of the present state.
  });
  // The tag that the operator has seen: a change by somebody else in between must not be overwritten.
  const [seen, setSeen] = useState<string | null>(null);
  const present = setting.value?.policy;
  const chosen = name ?? present?.name ?? "";
  const parsed = optionsOf(options);
  const choose = (next: string) => {
    setName(next);
    setSeen(setting.etag);
  };
  const apply = () => send(`${chosen} makes the plans now`, "PUT", "policy", { name: chosen, options: parsed.value }, seen ?? setting.etag).then(() => setSeen(null));
  const dryRun = async () => {
    setRefused(null);
    setTrying(true);
    try {
      setTried({ name: chosen, value: (await call<DryRun>("POST", "plan/dry-run", { policy: chosen, options: parsed.value })).value });
    } catch (error) {
      setRefused(error instanceof Refused ? error : new Refused(0, String(error)));
    }
    setTrying(false);
  };
  return (
    <Panel id="policy" title="Policy" readAt={setting.at}>
      {setting.fault && <Fault fault={setting.fault} what="The policy" />}
      {present && (
        <Facts rows={[
          ["in use", `${present.name}${setting.value!.in_force ? "" : " (its plan is being made)"}`], ["chosen by", setting.value!.chosen ? "an operator" : "the start"],
          ["paths", present.routing || "–"], ["levels", present.priority || "–"], ["shifts", present.timing || "–"],
          ["options", Object.entries(present.options).map(([key, value]) => `${key}=${value}`).join(", ") || "none"],
        ]} />
      )}
      <form class="tools" onSubmit={(e) => { e.preventDefault(); void dryRun(); }}>
        <label>Policy <select value={chosen} disabled={!present} onChange={(e) => choose(e.currentTarget.value)}>
          {(all.value?.policies ?? (present ? [{ name: present.name, policy: present, simulator_only: false, fault: "" }] : []))
            .filter((one) => !one.simulator_only && !one.fault).map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
        </select></label>
        <label>Options <input value={options} placeholder="priority.levels=4" onInput={(e) => { setOptions(e.currentTarget.value); setSeen((old) => old ?? setting.etag); }} /></label>
        <button type="submit" disabled={!chosen || trying || parsed.fault !== null}>Dry run</button>
        <button type="button" disabled={!chosen || outcome.busy || parsed.fault !== null} onClick={apply}>Use this policy</button>
        <button type="button" disabled={!setting.value?.chosen || outcome.busy} onClick={() => send("the policy of the start makes the plans now", "DELETE", "policy", undefined, setting.etag)}>Use the one of the start</button>
      </form>
      {parsed.fault && <p class="fault" role="status">{parsed.fault}</p>}
      <Said outcome={outcome} />
      {trying && <p class="muted" role="status">planning …</p>}
      {refused && <Fault fault={refused} what="The dry run" />}
      {tried && (
        <>
          <p role="status">{tried.name} would change {format.count(Object.values(tried.value.entries).reduce((sum, list) => sum + list.length, 0))} table entries of {Object.keys(tried.value.entries).length} switches and send {format.count(tried.value.messages.length)} messages to agents. Nothing is changed.</p>
          <DataTable
            caption={`Plan of ${tried.name}`} rows={tried.value.plan.jobs} keyOf={(one) => one.job}
            columns={[
              { title: "Job", value: (one) => one.job, show: (one) => <JobName name={one.job} jobs={jobs} /> },
              { title: "Level", number: true, value: (one) => one.level },
              { title: "Shift ms", number: true, value: (one) => one.shift_ms, show: (one) => format.shortMs(one.shift_ms) },
              { title: "Expected ms", number: true, value: (one) => one.expected_ms, show: (one) => format.ms(one.expected_ms) },
              { title: "Against ECMP", number: true, value: (one) => one.expected_ms, show: (one) => format.ratio(one.ecmp_ms, one.expected_ms) },
            ]}
          />
        </>
      )}
    </Panel>
  );
}

/** "a=1, b=x" as an object; numbers, true, false and none are values of their own. */
function optionsOf(text: string): { value: Record<string, unknown>; fault: string | null } {
  const value: Record<string, unknown> = {};
  for (const one of text.split(",").map((words) => words.trim()).filter(Boolean)) {
    const [key = "", given] = one.split("=", 2).map((words) => words.trim());
    if (!key || given === undefined || given === "") return { value, fault: `${one}: legal: name=value, several with commas between them` };
    value[key] = given === "true" ? true : given === "false" ? false : given === "none" ? null : Number.isFinite(Number(given)) ? Number(given) : given;
  }
  return { value, fault: null };
}
