// SPDX-License-Identifier: Apache-2.0
// One ring for each job on a common circle. Where shifts may be changed, the ring of a job that is held to slots
// is turned by pointer or arrows.

import { useRef } from "preact/hooks";
import { jobColour } from "../fabric/colours";
import * as format from "../ui/format";
import { arcPath, arcs, commonPeriod, onCircle, turnAt, type Rhythm } from "./geometry";

const OUTER = 120;
const INNER = 40;

interface Props {
  rhythms: Rhythm[];
  jobs: string[];
  picked?: string | undefined;
  /** Called with the shift (ms) that a ring is turned to; `over`: it is let go there. */
  turn?: (job: string, shift: number, over: boolean) => void;
}

export function Rings({ rhythms, jobs, picked, turn }: Props) {
  const svg = useRef<SVGSVGElement>(null);
  const drag = useRef<{ job: string; from: number; shift: number; to: number | null } | null>(null);
  const common = commonPeriod(rhythms.map((r) => r.period));
  const at = (event: PointerEvent): number => {
    const box = svg.current!.getBoundingClientRect();
    return turnAt(event.clientX - (box.left + box.width / 2), event.clientY - (box.top + box.height / 2));
  };
  const wrap = (shift: number, period: number) => Math.round((((shift % period) + period) % period) * 10) / 10;
  const letGo = () => {
    const held = drag.current;
    drag.current = null;
    if (held?.to != null) turn?.(held.job, held.to, true);
  };
  const step = Math.min(26, (OUTER - INNER) / Math.max(1, rhythms.length));
  return (
    <svg ref={svg} viewBox="-165 -146 330 292" class="rings" role={turn ? "group" : "img"} aria-label={describe(rhythms, common)}
      onPointerMove={(e) => {
        const held = drag.current;
        const rhythm = held && rhythms.find((r) => r.job === held.job);
        if (!held || !rhythm || !turn) return;
        held.to = wrap(held.shift + (at(e) - held.from) * (common ?? rhythm.period), rhythm.period);
        turn(held.job, held.to, false);
      }}
      onPointerUp={letGo}
      onPointerCancel={letGo}
    >
      {[0, 0.25, 0.5, 0.75].map((part) => {
        const [x1, y1] = onCircle(OUTER + 1, part);
        const [x2, y2] = onCircle(OUTER + 5, part);
        const [x, y] = onCircle(OUTER + 12, part);
        // Beside the mark, not over it.
        const anchor = ["middle", "start", "middle", "end"][part * 4];
        const down = ["-0.3em", "0.35em", "1em", "0.35em"][part * 4];
        return <g class="tick" key={part}><path d={`M${x1} ${y1}L${x2} ${y2}`} /><text x={x} y={y} dy={down} style={{ textAnchor: anchor }}>{common === null ? ["0", "¼", "½", "¾"][part * 4] : format.shortMs(common * part)}</text></g>;
      })}
      {rhythms.map((rhythm, place) => {
        const index = jobs.indexOf(rhythm.job);
        const radius = OUTER - (place + 0.5) * step;
        const phases = arcs(rhythm, common ?? rhythm.period);
        const [x, y] = onCircle(radius, phases[0] ? (phases[0][0] + phases[0][1]) / 2 : 0);
        const name = `ring${rhythm.slotted ? "" : " free"}${picked && picked !== rhythm.job ? " dim" : ""}${turn && rhythm.slotted ? " movable" : ""}`;
        return (
          <g key={rhythm.job} class={name} data-job={rhythm.job} style={{ "--job": jobColour(index) }}
            {...(turn && rhythm.slotted ? {
              tabindex: 0, role: "slider", "aria-label": `Shift of ${rhythm.job} in ms`,
              "aria-valuemin": 0, "aria-valuemax": rhythm.period, "aria-valuenow": rhythm.shift, "aria-valuetext": `${format.shortMs(rhythm.shift)} ms`,
              onPointerDown: (e: PointerEvent) => {
                drag.current = { job: rhythm.job, from: at(e), shift: rhythm.shift, to: null };
                // The ring turns on when the pointer leaves the drawing.
                svg.current!.setPointerCapture(e.pointerId);
                e.preventDefault();
              },
              onKeyDown: (e: KeyboardEvent) => {
                const by = e.shiftKey ? 0.1 : 0.01;
                const to = { ArrowRight: by, ArrowUp: by, ArrowLeft: -by, ArrowDown: -by }[e.key];
                if (to === undefined) return;
                e.preventDefault();
                turn(rhythm.job, wrap(rhythm.shift + to * rhythm.period, rhythm.period), true);
              },
            } : {})}
          >
            <circle r={radius} class="track" stroke-width={step * 0.74} />
            {phases.map(([from, to]) => <path key={from} class="up" d={arcPath(radius, from, to)} stroke-width={step * 0.74} />)}
            {step * 0.37 >= 5 && <g class="svg-badge" transform={`translate(${x} ${y})`}><circle r={Math.min(8, step * 0.37)} /><text dy="0.35em">{index + 1}</text></g>}
          </g>
        );
      })}
      <text class="centre" dy="-0.1em">{common === null ? "1 turn" : `${format.shortMs(common)} ms`}</text>
      <text class="centre-note" dy="1.5em">{common === null ? "own period" : "one turn"}</text>
    </svg>
  );
}

export function sentence({ job, period, shift, slotted, phases }: Rhythm): string {
  const up = phases.reduce((sum, [from, to]) => sum + to - from, 0);
  return `${job}: communicates ${format.shortMs(up)} of ${format.shortMs(period)} ms, ${slotted ? `shift ${format.shortMs(shift)} ms` : "no time-shift"}`;
}

function describe(rhythms: Rhythm[], common: number | null): string {
  const turn = common === null ? "each on its own period" : `on a circle of ${format.shortMs(common)} ms`;
  return `When the jobs communicate, ${turn}. ${rhythms.map(sentence).join("; ")}.`;
}
