// SPDX-License-Identifier: Apache-2.0
// Numbers as text for people. Every function returns a dash for null (not known).

const DASH = "–";

/** 21000000 -> "21.0 Mbit/s". */
export function rate(bps) {
  if (bps === null) return DASH;
  for (const [unit, size] of [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) {
    if (bps >= size) return `${(bps / size).toFixed(1)} ${unit}`;
  }
  return `${bps} bit/s`;
}

/** 0.843 -> "84 %". */
export function percent(fraction) {
  return fraction === null ? DASH : `${Math.round(fraction * 100)} %`;
}

/** Milliseconds with one decimal, without the unit. */
export function ms(value) {
  return value === null ? DASH : value.toFixed(1);
}

/** Milliseconds with at most one decimal, without the unit: 336, 10.5. */
export function shortMs(value) {
  return value === null ? DASH : String(Math.round(value * 10) / 10);
}

/** A whole number with thin spaces between thousands. */
export function count(value) {
  return value === null ? DASH : String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** 7.9e12 -> "7.9 Tflop/s". */
export function flops(value) {
  if (value === null) return DASH;
  for (const [unit, size] of [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6]]) {
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}flop/s`;
  }
  return `${value.toFixed(0)} flop/s`;
}

/** Fabric time: 1900000000 ns -> "1.9 s", longer ones with minutes and hours. */
export function time(ns) {
  const seconds = ns / 1e9;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = `${Math.floor(seconds % 60)} s`;
  return minutes < 60 ? `${minutes} min ${rest}` : `${Math.floor(minutes / 60)} h ${minutes % 60} min ${rest}`;
}

/** 1 -> "once", 2 -> "twice", 3 -> "3 times". */
export function times(number) {
  return ["never", "once", "twice"][number] ?? `${count(number)} times`;
}

/** At most three names, then how many more. */
export function names(list) {
  return list.length <= 3 ? list.join(", ") : `${list.slice(0, 2).join(", ")} +${list.length - 2}`;
}

/** The nodes of a path with arrows between them. */
export function path(nodes) {
  return nodes.join(" → ");
}
