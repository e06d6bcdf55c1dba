// SPDX-License-Identifier: Apache-2.0
// Cut a link of an emulated fabric, see where its flows go, and mend it.

import { useEffect, useRef, useState } from "preact/hooks";
import { callPages, get, part } from "../api/client";
import type { Live } from "../api/live";
import type { Flow } from "../api/types";
import { Said, useChange } from "../operations/action";
import { useAnswer } from "../state/use_answer";
import * as format from "../ui/format";
import { Fault } from "../ui/panel";
import { PickButton } from "../ui/pick";
import { DataTable } from "../ui/table";

// Flows of a link that are followed. Chosen: more rows are not read.
const FOLLOWED = 200;
const ASK_AGAIN_MS = 1000;

interface Props {
  live: Live;
  cable: string;
  /** Called with the flows that crossed the link before it was cut, on their paths of now. */
  moved?: (flows: Flow[]) => void;
}

export function CutLink({ live, cable, moved }: Props) {
  const index = live.fabric.cables.get(cable);
  const { src, dst } = live.fabric.direction(2 * (index ?? 0));
  const version = live.tables.status.plan?.version;
  const down = live.tables.cables[cable]?.up === false;
  const cuts = useAnswer<{ cuts: { name: string }[] }>("fabric/cuts", down, 5000);
  const [outcome, send] = useChange(cuts.again);
  const [asking, setAsking] = useState(false);
  const [before, setBefore] = useState<Flow[] | null>(null);
  // null: not known yet.
  const [now, setNow] = useState<Flow[] | null>(null);
  const [lost, setLost] = useState(0);
  const confirm = useRef<HTMLButtonElement>(null);
  const mine = cuts.value?.cuts.some((one) => one.name === cable) ?? false;

  useEffect(() => {
    if (asking) confirm.current?.focus();
  }, [asking]);
  // The paths of now, after each new plan.
  useEffect(() => {
    if (before === null) return undefined;
    let open = true;
    let timer = 0;
    const names = new Set(before.map((flow) => flow.flow));
    const jobs = [...new Set(before.map((flow) => flow.job))];
    Promise.all(jobs.map((job) => callPages<{ flows: Flow[] }>(`flows?job=${part(job)}&most=1000`, "flows"))).then(
      (answers) => open && setNow(answers.flatMap((one) => one.value.flows).filter((flow) => names.has(flow.flow))),
      () => {
        if (open) timer = window.setTimeout(() => setLost((n) => n + 1), ASK_AGAIN_MS);
      },
    );
    return () => {
      open = false;
      clearTimeout(timer);
    };
  }, [before, version, lost]);
  useEffect(() => moved?.(now ?? []), [now]);
  useEffect(() => () => moved?.([]), []);

  if (index === undefined || !live.fabric.columns.emulated) return null;
  const cut = async () => {
    setAsking(false);
    const flows = await get<{ flows: Flow[] }>(`flows?through=${part(`${src}-${dst}`)}&most=${FOLLOWED}`).then((one) => one.flows, () => []);
    setNow(null);
    await send(`${cable} is cut`, "PUT", `fabric/links/${part(cable)}/cut`);
    setBefore(flows);
  };
  const paths = new Map((now ?? []).map((flow) => [flow.flow, flow]));
  return (
    <div class="cut">
      {!asking && !down && <button type="button" class="danger" disabled={outcome.busy} onClick={() => setAsking(true)}>Cut {cable}</button>}
      {asking && (
        <p role="group" aria-label={`Cut ${cable}?`}>
          Cut {cable}? Both ends lose their light, and packets on their way are lost.{" "}
          <button type="button" class="danger" ref={confirm} onClick={() => void cut()}>Yes, cut it</button>{" "}
          <button type="button" onClick={() => setAsking(false)}>Leave it</button>
        </p>
      )}
      {down && mine && <button type="button" disabled={outcome.busy} onClick={() => send(`${cable} is mended`, "DELETE", `fabric/links/${part(cable)}/cut`)}>Mend {cable}</button>}
      {down && cuts.value && !mine && <p class="muted">{cable} is down, but nobody has cut it here.</p>}
      {cuts.fault && <Fault fault={cuts.fault} what="Cuts" />}
      <Said outcome={outcome} />
      {before !== null && before.length === 0 && <p class="muted">No planned flow crossed it.</p>}
      {before !== null && before.length > 0 && (
        <DataTable
          caption="Its flows before the cut, and now" rows={before} keyOf={(flow) => flow.flow} pageSize={10}
          columns={[
            { title: "Flow", value: (flow) => flow.flow, show: (flow) => <PickButton pick={{ kind: "flow", id: flow.flow }}>{flow.flow}</PickButton> },
            { title: "Before", value: (flow) => inner(flow) },
            { title: "Now", value: (flow) => inner(paths.get(flow.flow)), show: (flow) => (now === null ? <span class="muted">…</span> : !paths.has(flow.flow) ? <span class="muted">the flow has ended</span> : inner(paths.get(flow.flow)) === inner(flow) ? <span class="muted">the same path, until there is a new plan</span> : inner(paths.get(flow.flow))) },
          ]}
        />
      )}
    </div>
  );
}

/** The switches of a flow's path. */
function inner(flow: Flow | undefined): string {
  return flow?.path ? format.path(flow.path.slice(1, -1)) : "by ECMP";
}
