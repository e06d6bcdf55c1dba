// SPDX-License-Identifier: Apache-2.0
// Numbers as text for people. Every function returns a dash for null (not known).

type Maybe = number | null | undefined;
const DASH = "–";
const RATES: [string, number][] = [["Tbit/s", 1e12], ["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]];

function scaled(value: number, units: [string, number][], last: string): string {
  for (const [unit, size] of units) if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  return `${Math.round(value)} ${last}`;
}

/** 21000000 -> "21.0 Mbit/s". */
export function rate(bps: Maybe): string {
  return bps == null ? DASH : scaled(bps, RATES, "bit/s");
}

/** Rates that are compared, all in the unit of the largest of `scale`: 900000000 of 1000000000 -> "0.9 of 1 Gbit/s". */
export function rateOf(bps: Maybe, of: Maybe, scale: number[] = [of ?? 0]): string {
  if (of == null) return DASH;
  const most = Math.max(...scale);
  const [unit, size] = RATES.find(([, one]) => most >= one) ?? ["bit/s", 1];
  const digits = (value: number) => (value < 999.5 ? String(Number(value.toPrecision(3))) : count(Math.round(value)));
  return bps == null ? DASH : `${digits(bps / size)} of ${digits(of / size)} ${unit}`;
}

/** 7.9e12 -> "7.9 Tflop/s". */
export function flops(value: Maybe): string {
  return value == null ? DASH : scaled(value, [["Eflop/s", 1e18], ["Pflop/s", 1e15], ["Tflop/s", 1e12], ["Gflop/s", 1e9], ["Mflop/s", 1e6]], "flop/s");
}

/** 84 -> "84 %". */
export function percent(value: Maybe): string {
  return value == null ? DASH : `${Math.round(value)} %`;
}

/** Milliseconds with one decimal, without the unit. */
export function ms(value: Maybe): string {
  return value == null ? DASH : value.toFixed(1);
}

/** Milliseconds with one decimal and the unit. */
export function unitMs(value: Maybe): string {
  return value == null ? DASH : `${value.toFixed(1)} ms`;
}

/** Milliseconds with at most one decimal, without the unit: 336, 10.5. */
export function shortMs(value: Maybe): string {
  return value == null ? DASH : String(Math.round(value * 10) / 10);
}

/** A ratio with two decimals: "1.25x"; a dash where one side is not known. */
export function ratio(of: Maybe, to: Maybe): string {
  return of == null || to == null || to === 0 ? DASH : `${(of / to).toFixed(2)}×`;
}

/** A whole number with thin spaces between thousands. */
export function count(value: Maybe): string {
  return value == null ? DASH : String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** Fabric time: 1900000000 ns -> "1.9 s", longer ones with minutes and hours. */
export function time(ns: Maybe): string {
  if (ns == null) return DASH;
  const seconds = ns / 1e9;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = `${Math.floor(seconds % 60)} s`;
  return minutes < 60 ? `${minutes} min ${rest}` : `${Math.floor(minutes / 60)} h ${minutes % 60} min ${rest}`;
}

/** Host time in ms since 1970 -> "2026-11-23 12:27:03", in UTC. */
export function utc(ms: number): string {
  return new Date(ms).toISOString().replace("T", " ").slice(0, 19);
}

/** 1 -> "once", 2 -> "twice", 3 -> "3 times". */
export function times(number: number): string {
  return ["never", "once", "twice"][number] ?? `${count(number)} times`;
}

/** At most three names, then how many more. */
export function names(list: string[]): string {
  return list.length <= 3 ? list.join(", ") : `${list.slice(0, 2).join(", ")} +${list.length - 2}`;
}

/** The nodes of a path with arrows between them. */
export function path(nodes: string[]): string {
  return nodes.join(" → ");
}
