// SPDX-License-Identifier: Apache-2.0
// Recent iteration times as a small line, and a chart of them with axes.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import * as format from "./format";

const [WIDTH, HEIGHT] = [132, 30];
// Steps of the axis of iterations and seconds: there is no half iteration.
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 1_000_000];

/** The line's scale spans at least 5 %, so that small differences look small. */
export function Spark({ values, colour, name }: { values: number[]; colour: string; name: string }) {
  if (values.length < 2) return <span class="muted">–</span>;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = Math.max(high - low, high * 0.05);
  const x = (i: number) => (2 + (i * (WIDTH - 6)) / (values.length - 1)).toFixed(1);
  const y = (value: number) => (HEIGHT - 4 - ((value - low) / span) * (HEIGHT - 8)).toFixed(1);
  const last = values.length - 1;
  const words = `${name}: last ${format.ms(values[last])} ms, recently ${format.ms(low)} to ${format.ms(high)} ms`;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} role="img" class="spark" style={{ "--job": colour }} aria-label={words}>
      <polyline points={values.map((value, i) => `${x(i)},${y(value)}`).join(" ")} />
      <circle cx={x(last)} cy={y(values[last]!)} r={2.4} />
    </svg>
  );
}

export interface Line { label: string; values: (number | null)[]; colour: string; dash?: number[] }

/** A chart with axes: `xs` in seconds or a count, `lines` with one value for each. */
export function Chart({ xs, lines, unit, xUnit, height = 180, label }: { xs: number[]; lines: Line[]; unit: string; xUnit: string; height?: number; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = JSON.stringify([lines.map((l) => [l.label, l.colour]), unit, xUnit, height, document.documentElement.dataset["theme"]]);
  useEffect(() => {
    const box = place.current!;
    const style = getComputedStyle(document.documentElement);
    const resolve = (colour: string) => colour.replace(/var\((--[\w-]+)\)/, (_, name: string) => style.getPropertyValue(name).trim());
    const axis = { stroke: resolve("var(--muted)"), grid: { stroke: resolve("var(--line)"), width: 1 }, ticks: { stroke: resolve("var(--line)") } };
    const made = new uPlot({
      width: Math.max(200, box.clientWidth), height,
      legend: { live: false },
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false } },
      axes: [{ ...axis, label: xUnit, labelSize: 18, size: 34, incrs: WHOLE }, { ...axis, label: unit, labelSize: 18, size: 56 }],
      series: [{}, ...lines.map((l) => ({ label: l.label, stroke: resolve(l.colour), width: 1.6, ...(l.dash ? { dash: l.dash } : {}), points: { show: false } }))],
    }, [xs, ...lines.map((l) => l.values)] as uPlot.AlignedData, box);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(200, box.clientWidth), height }));
    watch.observe(box);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current?.setData([xs, ...lines.map((l) => l.values)] as uPlot.AlignedData), [xs, lines]);
  return <div class="chart" ref={place} role="img" aria-label={label} />;
}
