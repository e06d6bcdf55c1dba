// SPDX-License-Identifier: Apache-2.0
// The tables of a switch: what it should hold, what it holds, and the difference.

import { part } from "../api/client";
import type { Live } from "../api/live";
import type { TableEntry, TableSummary } from "../api/types";
import { set, state } from "../state/store";
import { useAnswer, usePages } from "../state/use_answer";
import * as format from "../ui/format";
import { Fault, Panel } from "../ui/panel";
import { DataTable } from "../ui/table";

const WHICH = ["desired", "actual", "difference"] as const;

export function SwitchTables({ name, live }: { name: string; live: Live }) {
  const base = `fabric/switches/${part(name)}/tables`;
  const tables = useAnswer<{ tables: TableSummary[]; read_ns: number | null }>(base, live.tables.switches[name]?.entries, 5000);
  const table = state.address.more["table"] || null;
  const which = WHICH.find((one) => one === state.address.more["which"]) ?? "desired";
  const entries = usePages<{ entries: TableEntry[]; next: string | null; read_ns: number | null }>(table === null ? null : `${base}/${part(table)}?state=${which}&most=500`, "entries", live.tables.switches[name]?.entries);
  return (
    <Panel id="tables" title={`Tables of ${name}`} measuredNs={tables.value?.read_ns} readAt={tables.at}>
      {tables.fault && <Fault fault={tables.fault} what="Table entries" />}
      {tables.value && (
        <DataTable
          caption="Entries by table" rows={tables.value.tables} keyOf={(one) => one.name} pageSize={12} picked={(one) => one.name === table}
          columns={[
            { title: "Table", value: (one) => one.name, show: (one) => <button type="button" class="link" aria-pressed={one.name === table} onClick={() => set({ table: one.name })}>{one.name}</button> },
            { title: "Wanted", number: true, value: (one) => one.desired },
            { title: "Read back", number: true, value: (one) => one.actual, show: (one) => (one.actual === null ? "not read yet" : format.count(one.actual)) },
          ]}
        />
      )}
      {table !== null && (
        <>
          <div class="tools" role="radiogroup" aria-label="Which entries">
            {WHICH.map((one) => (
              <label key={one} class="check"><input type="radio" name="which" checked={which === one} onChange={() => set({ which: one })} /> {{ desired: "wanted", actual: "read back", difference: "differences" }[one]}</label>
            ))}
          </div>
          {entries.fault && <Fault fault={entries.fault} what={`Entries of ${table}`} />}
          {entries.value && (
            <DataTable
              caption={`Entries of ${table}`} rows={entries.value.entries} keyOf={(one) => JSON.stringify(one)} empty={which === "difference" ? "The switch holds what it should." : "No entry."} pageSize={12} more={entries.more}
              columns={[
                { title: "Match", value: (one) => text(one.match) },
                { title: "Action", value: (one) => `${one.action}(${text(one.params)})` },
                { title: "Priority", number: true, value: (one) => one.priority },
                ...(which === "difference" ? [{ title: "Difference", value: (one: TableEntry) => (one.missing ? "missing" : "too much") }] : []),
              ]}
            />
          )}
        </>
      )}
    </Panel>
  );
}

function text(fields: Record<string, string>): string {
  return Object.entries(fields).map(([name, value]) => `${name}=${value}`).join(", ");
}
