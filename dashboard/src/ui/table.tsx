// SPDX-License-Identifier: Apache-2.0
// A table of any number of rows: filtered, sorted, in pages.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<T> {
  title: string;
  /** What is shown, and by what it is sorted and found; without `show`, the text of `value`. */
  value: (row: T) => string | number | null;
  show?: (row: T) => ComponentChildren;
  number?: boolean;
}

interface Props<T> {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  picked?: (row: T) => boolean;
  empty?: string;
  /** Where a heading says the same already. */
  quiet?: boolean;
  pageSize?: number;
  /** Fetches more rows; null: these are all. */
  more?: (() => void) | null;
}

const PAGE = 25;
const compare = new Intl.Collator("en", { numeric: true }).compare;

export function DataTable<T>({ caption, columns, rows, keyOf, picked, empty, quiet, pageSize = PAGE, more = null }: Props<T>) {
  const [sort, setSort] = useState<{ by: number; up: boolean } | null>(null);
  const [words, setWords] = useState("");
  const [page, setPage] = useState(0);
  if (rows.length === 0) return <p class="muted">{empty ?? "None."}</p>;
  const wanted = words.trim().toLowerCase();
  let found = wanted ? rows.filter((row) => columns.some((c) => String(c.value(row) ?? "").toLowerCase().includes(wanted))) : rows;
  if (sort) {
    const { value } = columns[sort.by]!;
    found = [...found].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
      const order = typeof x === "number" && typeof y === "number" ? x - y : compare(String(x), String(y));
      return sort.up ? order : -order;
    });
  }
  const pages = Math.max(1, Math.ceil(found.length / pageSize));
  const at = Math.min(page, pages - 1);
  const shown = found.slice(at * pageSize, (at + 1) * pageSize);
  const long = rows.length > pageSize || more !== null;
  return (
    <div class="table-box">
      {long && (
        <div class="table-tools">
          <label>Find <input type="search" value={words} aria-label={`Find in ${caption}`} onInput={(e) => { setWords(e.currentTarget.value); setPage(0); }} /></label>
          <span class="muted">{found.length === 0 ? "none" : `${at * pageSize + 1}–${at * pageSize + shown.length} of ${found.length}${more ? " or more" : ""}`}</span>
          <button type="button" disabled={at === 0} onClick={() => setPage(at - 1)} aria-label={`Previous page of ${caption}`}>‹</button>
          <button type="button" disabled={at >= pages - 1} onClick={() => setPage(at + 1)} aria-label={`Next page of ${caption}`}>›</button>
          {more && <button type="button" onClick={more} aria-label={`More of ${caption}`}>More</button>}
        </div>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
        <table>
          <caption class={quiet ? "sr" : ""}>{caption}</caption>
          <thead>
            <tr>
              {columns.map((c, i) => (
                <th scope="col" key={c.title} class={c.number ? "number" : ""} aria-sort={sort?.by === i ? (sort.up ? "ascending" : "descending") : "none"}>
                  <button type="button" class="plain" onClick={() => setSort(sort?.by === i ? (sort.up ? { by: i, up: false } : null) : { by: i, up: true })}>
                    {c.title}{sort?.by === i ? (sort.up ? " ▲" : " ▼") : ""}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={keyOf(row)} data-row={keyOf(row)} class={picked?.(row) ? "picked" : ""}>
                {columns.map((c, i) => {
                  const content = c.show ? c.show(row) : (c.value(row) ?? "–");
                  return i === 0 ? <th scope="row" key={c.title}>{content}</th> : <td key={c.title} class={c.number ? "number" : ""}>{content}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
