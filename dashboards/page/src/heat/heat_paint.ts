// Paints the heat map's cells. What is not finite is red with a hatch; zero has a grey of its own
// on a log scale, since a dead layer is no small number; what was not measured stays blank. A value
// that is read every so many steps only holds until the next reading is due.
import type { ColourScale } from "./colour_scale";
import { shade } from "./colour_scale";
import type { HeatCells } from "./heat_map_data";
import type { Window } from "../data/points";
import { currentPalette } from "../view/theme";

export interface HeatLayout {
  width: number;
  height: number;
  /** Where the cells begin, right of the names. */
  left: number;
  rowHeight: number;
  /** How far it is scrolled. */
  top: number;
  window: Window;
}

const RIGHT = 8;
const NAME_FONT = '12px ui-monospace, "DejaVu Sans Mono", monospace';

export function xOf(layout: HeatLayout, step: number): number {
  const { from, to } = layout.window;
  const share = (step - (from - 0.5)) / (to - from + 1);
  return layout.left + share * (layout.width - layout.left - RIGHT);
}

export function stepAt(layout: HeatLayout, x: number): number {
  const { from, to } = layout.window;
  const share = (x - layout.left) / (layout.width - layout.left - RIGHT);
  return from - 0.5 + share * (to - from + 1);
}

const LEAST_BAD = 3;

export function paintHeat(
  ctx: CanvasRenderingContext2D, cells: HeatCells, scale: ColourScale | null, isLog: boolean,
  layout: HeatLayout,
): void {
  const palette = currentPalette();
  const { rowHeight, top, height } = layout;
  ctx.clearRect(0, 0, layout.width, height);
  const hatch = hatchPattern(ctx, palette.bad, palette.card);
  const edges = edgesOf(cells, layout);
  const colourOf = (value: number) => {
    if (isLog && value <= 0) return palette.zero;
    return shade(scale ? scale.shareOf(value) : 0);
  };
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  ctx.font = NAME_FONT;
  const firstRow = Math.floor(top / rowHeight);
  const lastRow = Math.min(cells.names.length, Math.ceil((top + height) / rowHeight));
  for (let row = firstRow; row < lastRow; ++row) {
    const y = row * rowHeight - top;
    const bad = cells.bad.get(row);
    ctx.fillStyle = bad ? palette.bad : palette.ink;
    const name = fitting(ctx, cells.names[row] ?? "", layout.left - 12);
    ctx.fillText(name, layout.left - 8, y + rowHeight / 2);
    const values = cells.values[row] ?? [];
    let held: number | null = null;
    let heldSince = 0;
    for (let point = 0; point < cells.last.length; ++point) {
      const [x, end] = edges[point]!;
      const isBad = (bad?.get(point) ?? 0) > 0;
      const value: number | null = values[point] ?? null;
      if (isBad) {
        ctx.fillStyle = hatch;
        // A bad step in a long run is thinner than a pixel, and still must be seen.
        const width = Math.max(LEAST_BAD, end - x);
        ctx.fillRect(Math.min(x, layout.width - RIGHT - width), y, width, rowHeight - 1);
        held = null;
        continue;
      }
      const step = cells.last[point] ?? 0;
      if (value !== null) {
        held = value;
        heldSince = step;
      }
      if (held === null || step > heldSince + cells.hold) continue;
      ctx.fillStyle = colourOf(held);
      ctx.fillRect(x, y, end - x, rowHeight - 1);
    }
  }
}

/** On whole device pixels, or neighbours would let the paper shine through between them. */
export function edgesOf(cells: HeatCells, layout: HeatLayout): [number, number][] {
  const px = devicePixelRatio;
  // A point may cover more steps than are looked at.
  const right = layout.width - RIGHT;
  const whole = (x: number) => {
    return Math.round(Math.min(right, Math.max(layout.left, x)) * px) / px;
  };
  const isWide = cells.last.length > 0 && (layout.width - layout.left) / cells.last.length > 8;
  const gap = isWide ? 1 : 0;
  return cells.last.map((last, i): [number, number] => {
    const x = whole(xOf(layout, (cells.first[i] ?? last) - 0.5));
    const end = whole(xOf(layout, last + 0.5)) - gap;
    return [x, Math.max(end, x + 1 / px)];
  });
}

/** Room for the longest name, where there is room. */
export function nameWidth(ctx: CanvasRenderingContext2D, names: string[], width: number): number {
  ctx.font = NAME_FONT;
  const longest = names.reduce((most, name) => (name.length > most.length ? name : most), "");
  return Math.ceil(Math.min(ctx.measureText(longest).width + 14, Math.max(90, width * 0.32)));
}

function hatchPattern(
  ctx: CanvasRenderingContext2D, ink: string, paper: string,
): CanvasPattern | string {
  const size = 6;
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const pen = tile.getContext("2d");
  if (!pen) return ink;
  pen.fillStyle = ink;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = paper;
  pen.lineWidth = 1.4;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  return ctx.createPattern(tile, "repeat") ?? ink;
}

/** Names differ at their ends and begin alike: it is the middle that can go. */
export function fitting(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  let low = 1;
  let high = text.length;
  while (low < high) {
    const keep = (low + high + 1) >> 1;
    if (ctx.measureText(shortened(text, keep)).width <= width) low = keep;
    else high = keep - 1;
  }
  return shortened(text, low);
}

function shortened(text: string, keep: number): string {
  const tail = Math.ceil(keep * 0.65);
  return `${text.slice(0, keep - tail)}…${text.slice(text.length - tail)}`;
}
