// SPDX-License-Identifier: Apache-2.0
// The map of the fabric with its tools: overlay, fold, zoom, search, pointer and keyboard.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Live } from "../api/live";
import type { Flow } from "../api/types";
import type { Pick } from "../state/address";
import { choose, set, state } from "../state/store";
import { brief } from "./brief";
import { colours } from "./colours";
import { column, levels, OVERLAYS, type Overlay } from "./heat";
import { place, type Fold } from "./layout";
import { Legend } from "./legend";
import { paint, type Scene } from "./paint";
import { boxAt, neighbour, routesOf, wireAt } from "./picks";
import { clampCamera, hit, project, type Camera, type Hit } from "./project";

const FOLDS: Record<Fold, string> = { none: "Every node", hosts: "Hosts folded", pods: "By pod", tiers: "By tier" };
// User Timing keeps every measure; this many are enough for whoever looks at them.
const MOST_MEASURES = 500;
let drawn = 0;

export function FabricMap({ live, flows, jobs }: { live: Live; flows: Flow[]; jobs: string[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; moved: boolean } | null>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [camera, setCamera] = useState<Camera>({ zoom: 1, middle: 0.5 });
  const [hover, setHover] = useState<{ hit: Hit; x: number; y: number } | null>(null);
  const [focus, setFocus] = useState(-1);
  const { pick, more } = state.address;
  const overlay: Overlay = more["overlay"] === "queue" || more["overlay"] === "marks" ? more["overlay"] : "load";
  const fold: Fold = more["fold"] && more["fold"] in FOLDS ? (more["fold"] as Fold) : "none";
  const layout = useMemo(() => place(live.fabric, fold), [live.fabric, fold]);
  const most = Math.max(1, layout.boxes.length / 4);
  const at = useMemo(() => project(layout, size.width, size.height, clampCamera(camera, most)), [layout, size, camera]);
  const words = useMemo(() => summary(live, overlay), [live, overlay]);

  // Measured at once too, so that the first picture need not wait for the observer.
  useLayoutEffect(() => {
    const frame = box.current!;
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = frame;
      setSize((old) => (old.width === width && old.height === height ? old : { width, height }));
    };
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(frame);
    return () => watch.disconnect();
  }, []);

  // Before the browser paints, so that the map is not a frame behind the rest.
  useLayoutEffect(() => {
    const target = canvas.current;
    if (!target || size.width === 0) return;
    const started = performance.now();
    const density = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(size.width * density), Math.round(size.height * density)];
    if (target.width !== w || target.height !== h) {
      target.width = w;
      target.height = h;
    }
    const names = live.fabric.columns.hosts.name;
    // Cells of hosts have no badges.
    const jobsOf = new Map<string, number[]>();
    if (!at.cells) jobs.forEach((name, index) => live.tables.jobs[name]?.hosts.forEach((i) => jobsOf.set(names[i]!, [...(jobsOf.get(names[i]!) ?? []), index])));
    const marked = new Map<number, number>();
    const chosen = pick?.kind === "job" ? jobs.indexOf(pick.id) : -1;
    if (chosen >= 0) for (const i of live.tables.jobs[jobs[chosen]!]!.hosts) marked.set(layout.boxOf[live.fabric.index.get(names[i]!)!]!, chosen);
    const scene: Scene = {
      live, layout, at, levels: levels(live, overlay), colours: colours(), routes: routesOf(live, flows, jobs),
      picked: { box: boxAt(live, layout, pick), ...wireAt(live, layout, pick) }, focus, marked, jobsOf, density,
    };
    paint(target, scene);
    performance.measure("fabric map", { start: started });
    drawn += 1;
    if (drawn % MOST_MEASURES === 0) performance.clearMeasures("fabric map");
  }, [live, state.revision, layout, at, overlay, flows, pick?.kind, pick?.id, focus, document.documentElement.dataset["theme"]]);

  const pickOf = (found: Hit): Pick | null => {
    if (!found) return null;
    if ("box" in found) return { kind: layout.boxes[found.box]!.kind, id: layout.boxes[found.box]!.id };
    const wire = layout.wires[found.wire]!;
    return { kind: "link", id: live.fabric.direction((found.there ? wire.there : wire.back)[0]!).id };
  };
  const pointAt = (event: PointerEvent | MouseEvent): [number, number] => {
    const rect = canvas.current!.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  };
  const found = (event: PointerEvent | MouseEvent): Hit => hit(layout, at, ...pointAt(event));
  const zoomBy = (factor: number, around = 0.5) => setCamera((old) => {
    const zoom = Math.min(Math.max(1, old.zoom * factor), most);
    return clampCamera({ zoom, middle: old.middle + (around - 0.5) * (1 / old.zoom - 1 / zoom) }, most);
  });
  const panBy = (part: number) => setCamera((old) => clampCamera({ ...old, middle: old.middle + part / old.zoom }, most));
  const centre = (index: number, zoom?: number) => setCamera((old) => clampCamera({ zoom: zoom ?? old.zoom, middle: layout.boxes[index]!.x }, most));

  const onKey = (event: KeyboardEvent) => {
    const { key } = event;
    if (key === "+" || key === "=") zoomBy(1.5);
    else if (key === "-") zoomBy(1 / 1.5);
    else if (key === "0") setCamera({ zoom: 1, middle: 0.5 });
    else if (key.startsWith("Arrow") && event.shiftKey) panBy(key === "ArrowLeft" ? -0.25 : key === "ArrowRight" ? 0.25 : 0);
    else if (key.startsWith("Arrow")) {
      const next = neighbour(layout, focus, key);
      setFocus(next);
      if (next >= 0 && Math.abs(layout.boxes[next]!.x - camera.middle) > 0.45 / camera.zoom) centre(next);
    } else if ((key === "Enter" || key === " ") && focus >= 0) choose({ kind: layout.boxes[focus]!.kind, id: layout.boxes[focus]!.id });
    else return;
    event.preventDefault();
  };
  const search = (words: string) => {
    const name = words.trim();
    const node = live.fabric.index.get(name);
    const job = live.tables.jobs[name];
    if (node !== undefined) {
      const index = layout.boxOf[node]!;
      choose({ kind: node < live.fabric.columns.switches.name.length ? "switch" : "host", id: name });
      centre(index, Math.max(camera.zoom, Math.min(most, 0.06 / layout.boxes[index]!.room)));
    } else if (job) choose({ kind: "job", id: name });
    else if (live.fabric.byId.has(name.replace(/\s*(?:→|->)\s*/, ">"))) choose({ kind: "link", id: name.replace(/\s*(?:→|->)\s*/, ">") });
    else return false;
    return true;
  };
  const tip = hover?.hit ? brief(live, layout, hover.hit, overlay) : null;
  const focused = focus >= 0 && layout.boxes[focus] ? `${layout.boxes[focus]!.tier} ${layout.boxes[focus]!.id}` : "";
  return (
    <div class="map">
      <div class="tools">
        <label>Show <select value={overlay} onChange={(e) => set({ overlay: e.currentTarget.value === "load" ? "" : e.currentTarget.value })}>
          {Object.entries(OVERLAYS).map(([name, { title }]) => <option key={name} value={name}>{title}</option>)}
        </select></label>
        <label>Fold <select value={fold} onChange={(e) => set({ fold: e.currentTarget.value === "none" ? "" : e.currentTarget.value })}>
          {Object.entries(FOLDS).map(([name, title]) => <option key={name} value={name}>{title}</option>)}
        </select></label>
        <Search search={search} />
        <span class="zoom" role="group" aria-label="Zoom">
          <button type="button" onClick={() => panBy(-0.4)} disabled={camera.zoom === 1} aria-label="Move left">‹</button>
          <button type="button" onClick={() => zoomBy(1 / 1.5)} disabled={camera.zoom === 1} aria-label="Zoom out">−</button>
          <button type="button" onClick={() => zoomBy(1.5)} aria-label="Zoom in">+</button>
          <button type="button" onClick={() => panBy(0.4)} disabled={camera.zoom === 1} aria-label="Move right">›</button>
        </span>
      </div>
      <div class="canvas" ref={box}>
        <canvas
          ref={canvas} tabIndex={0} role="application" aria-label={words} aria-describedby="map-keys"
          onKeyDown={onKey}
          onBlur={() => setFocus(-1)}
          onWheel={(e) => {
            if (!e.ctrlKey && !e.shiftKey && e.deltaX === 0 && camera.zoom === 1 && e.deltaY > 0) return;
            if (e.ctrlKey || e.shiftKey || camera.zoom > 1) {
              e.preventDefault();
              zoomBy(Math.exp(-(e.deltaY || e.deltaX) / 400), pointAt(e)[0] / size.width);
            }
          }}
          onPointerDown={(e) => {
            drag.current = { x: e.clientX, moved: false };
          }}
          onPointerMove={(e) => {
            if (drag.current && e.buttons) {
              const step = e.clientX - drag.current.x;
              if (drag.current.moved || Math.abs(step) > 4) {
                drag.current = { x: e.clientX, moved: true };
                panBy(-step / size.width);
                setHover(null);
              }
              return;
            }
            const [x, y] = pointAt(e);
            setHover({ hit: found(e), x, y });
          }}
          onPointerLeave={() => setHover(null)}
          onClick={(e) => {
            const moved = drag.current?.moved;
            drag.current = null;
            if (!moved) {
              const to = pickOf(found(e));
              if (to || pick) choose(to);
            }
          }}
        />
        {tip && hover && (
          <div class="tooltip" role="tooltip" style={{ left: `${Math.min(hover.x + 14, Math.max(0, size.width - 230))}px`, top: `${hover.y + 14}px` }}>
            <strong>{tip.title}</strong>
            {tip.rows.map(([name, value]) => <div key={name}><span>{name}</span> {value}</div>)}
          </div>
        )}
        <p class="sr" aria-live="polite">{focused}</p>
        <p class="sr" id="map-keys">Arrow keys go from node to node, Enter picks it, plus and minus zoom, 0 shows everything. The tables below hold the same.</p>
      </div>
      <Legend overlay={overlay} />
    </div>
  );
}

function Search({ search }: { search: (words: string) => boolean }) {
  const [fault, setFault] = useState("");
  return (
    <form role="search" onSubmit={(e) => {
      e.preventDefault();
      const words = new FormData(e.currentTarget).get("name") as string;
      setFault(search(words) ? "" : `No node, link or job ${words}`);
    }}>
      <label>Find <input type="search" name="name" placeholder="leaf3, h17, leaf1>spine2" aria-describedby="map-find" /></label>
      <button type="submit">Go</button>
      <span id="map-find" class="fault" role="status">{fault}</span>
    </form>
  );
}

/** A description of the drawing in one line, for screen readers. */
function summary(live: Live, overlay: Overlay): string {
  const values = column(live, overlay);
  let most = -1;
  values.forEach((value, i) => {
    if (value !== null && (most < 0 || value > (values[most] ?? -1))) most = i;
  });
  const down = Object.entries(live.tables.cables).filter(([, row]) => row.up === false).map(([name]) => name);
  const { switches, hosts } = live.fabric.columns;
  const one = most < 0 ? null : live.fabric.direction(most);
  return `Fabric map: ${switches.name.length} switches, ${hosts.name.length} hosts. `
    + (one ? `Highest ${OVERLAYS[overlay].title}: ${one.src} to ${one.dst}, ${values[most]} ${OVERLAYS[overlay].unit}. ` : "Nothing is measured yet. ")
    + (down.length > 0 ? `Down: ${down.slice(0, 5).join(", ")}.` : "No link is down.");
}
