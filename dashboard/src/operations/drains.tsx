// SPDX-License-Identifier: Apache-2.0
// Switches and links out of use: drain, undrain, and on an emulated fabric cut and mend.

import { useState } from "preact/hooks";
import { part } from "../api/client";
import type { Live } from "../api/live";
import type { Drain } from "../api/types";
import { CutLink } from "../fabric/cut";
import { state } from "../state/store";
import { useAnswer } from "../state/use_answer";
import { Fault } from "../ui/panel";
import { DataTable } from "../ui/table";
import { Said, useChange } from "./action";

/** What is picked as a part that can be drained. */
function pickedPart(live: Live): string {
  const pick = state.address.pick;
  if (pick?.kind === "switch") return pick.id;
  const direction = pick?.kind === "link" ? live.fabric.byId.get(pick.id) : undefined;
  return direction === undefined ? "" : live.fabric.direction(direction).cable;
}

export function Drains({ live }: { live: Live }) {
  const picked = pickedPart(live);
  const [typed, setTyped] = useState<{ name: string; of: string }>({ name: picked, of: picked });
  const name = typed.of === picked ? typed.name : picked;
  const [cutOff, setCutOff] = useState(false);
  const { value, fault, etag, again } = useAnswer<{ drains: Drain[] }>("drains", JSON.stringify(live.tables.cables), 3000);
  const [outcome, send] = useChange(again);
  const isSwitch = name in live.tables.switches;
  const direction = live.fabric.byId.get(name);
  const cable = live.fabric.cables.has(name) ? name : direction === undefined ? undefined : live.fabric.direction(direction).cable;
  const target = isSwitch ? `fabric/switches/${part(name)}` : `fabric/links/${part(cable ?? name)}`;
  const drained = value?.drains.some((one) => one.name === (isSwitch ? name : cable ?? name)) ?? false;
  return (
    <>
      <form class="tools" onSubmit={(e) => e.preventDefault()}>
        <label>Switch or link <input value={name} placeholder="spine3, leaf1-spine2" onInput={(e) => setTyped({ name: e.currentTarget.value.trim(), of: picked })} /></label>
        <label class="check"><input type="checkbox" checked={cutOff} onChange={(e) => setCutOff(e.currentTarget.checked)} /> also if flows have no other path</label>
        <button type="button" disabled={!name || outcome.busy || drained} onClick={() => send(`${name} is being drained`, "PUT", `${target}/drain`, { cut_off: cutOff }, etag)}>Drain</button>
        <button type="button" disabled={!name || outcome.busy || !drained} onClick={() => send(`${name} is in use again`, "DELETE", `${target}/drain`, undefined, etag)}>Undrain</button>
      </form>
      <Said outcome={outcome} />
      {cable !== undefined && <CutLink key={cable} live={live} cable={cable} />}
      {fault && <Fault fault={fault} what="Drains" />}
      {value && (
        <DataTable
          caption="Out of use" rows={value.drains} keyOf={(one) => one.name} empty="Nothing is drained."
          columns={[
            { title: "Name", value: (one) => one.name },
            { title: "Part", value: (one) => one.part },
            { title: "State", value: (one) => one.state },
            { title: "Change", value: () => "", show: (one) => <button type="button" onClick={() => send(`${one.name} is in use again`, "DELETE", `fabric/${one.part === "switch" ? "switches" : "links"}/${part(one.name)}/drain`, undefined, etag)}>Undrain {one.name}</button> },
          ]}
        />
      )}
      <p class="muted">A drained part still works, and nothing uses it any more.{live.fabric.columns.emulated ? " A link that is cut loses its light at both ends." : ""}</p>
    </>
  );
}
