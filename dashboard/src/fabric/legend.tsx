// SPDX-License-Identifier: Apache-2.0
// What the colours and marks of the map mean.

import { BOUNDS, OVERLAYS, type Overlay } from "./heat";
import * as format from "../ui/format";

export function Legend({ overlay }: { overlay: Overlay }) {
  const show = (value: number) => (overlay === "load" ? `${value} %` : format.count(value));
  const { title } = OVERLAYS[overlay];
  return (
    <ul class="legend" aria-label={`${title} by colour`}>
      <li><i class="swatch load-0" />idle</li>
      {BOUNDS[overlay].map((bound, i) => <li key={bound}><i class={`swatch load-${i + 1}`} />from {show(bound)}</li>)}
      <li><i class="swatch unknown" />? unknown</li>
      <li><i class="swatch drained" />‖ drained</li>
      <li><i class="swatch down" />✕ down</li>
      <li class="muted">Each direction is drawn for itself, thicker with more {title.toLowerCase()}; on dense maps the half of a line at its source.</li>
    </ul>
  );
}
