// Layers by steps, as colours: point, click, drag or move with the arrow keys.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { HeatMap as Answer } from "../data/api";
import { linearScale, logScale } from "./colour_scale";
import { HeatLegend } from "./heat_legend";
import { cellsIn, type HeatCells } from "./heat_map_data";
import { edgesOf, nameWidth, paintHeat, stepAt, xOf, type HeatLayout } from "./heat_paint";
import { countText, numberText, percentText, plural } from "../words/number_text";
import { TENSOR_NUMBERS } from "../words/numbers";
import type { Window } from "../data/points";
import { currentPalette, onPaletteChange } from "../view/theme";
import { stepTicks } from "../charts/ticks";

interface Props {
  answer: Answer;
  window: Window;
  onOpen: (name: string) => void;
  onZoom: (from: number, to: number) => void;
}

interface Cell {
  row: number;
  point: number;
}

const MAX_HEIGHT = 480;
const AXIS_HEIGHT = 24;
const DRAG_PX = 6;
/** Of the names: room for the word at the axis, where they are as short as "0". */
const LEAST_LEFT = 40;

export function HeatMap({ answer, window, onOpen, onZoom }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const axis = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [top, setTop] = useState(0);
  const [cell, setCell] = useState<Cell | null>(null);
  const [palettes, setPalettes] = useState(0);
  const pressed = useRef<number | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);

  const isLog = TENSOR_NUMBERS.find(({ key }) => key === answer.value)?.unit !== "share";
  const text = isLog ? numberText : percentText;
  const cells = useMemo(() => cellsIn(answer, window), [answer, window.from, window.to]);
  const scale = useMemo(() => {
    if (!isLog) return linearScale(0, 1);
    return cells.low === null || cells.high === null ? null : logScale(cells.low, cells.high);
  }, [cells, isLog]);

  const rowHeight = cells.names.length > 40 ? 17 : 22;
  const whole = cells.names.length * rowHeight;
  const height = Math.min(MAX_HEIGHT, whole);
  const left = useMemo(() => {
    const pen = canvas.current?.getContext("2d");
    return pen ? Math.max(LEAST_LEFT, nameWidth(pen, cells.names, width)) : 0;
  }, [cells.names, width]);
  const layout: HeatLayout = { width, height, left, rowHeight, top, window };

  useEffect(() => {
    const sizes = new ResizeObserver(() => setWidth(scroller.current?.clientWidth ?? 0));
    sizes.observe(scroller.current!);
    const stop = onPaletteChange(() => setPalettes((count) => count + 1));
    return () => {
      sizes.disconnect();
      stop();
    };
  }, []);

  // The cell of other rows says nothing of these. Before the next key: effects of the other kind come later.
  useLayoutEffect(() => {
    setCell(null);
    scroller.current!.scrollTop = 0;
  }, [answer.rows, answer.names[0], answer.names.length]);

  useEffect(() => {
    const pen = sized(canvas.current, width, height);
    if (pen) paintHeat(pen, cells, scale, isLog, layout);
    const axisPen = sized(axis.current, width, AXIS_HEIGHT);
    if (axisPen) paintAxis(axisPen, layout);
  }, [cells, scale, width, height, top, palettes, window.from, window.to]);

  const cellAt = (event: PointerEvent): Cell | null => {
    const box = canvas.current!.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top + top) / rowHeight);
    const step = stepAt(layout, event.clientX - box.left);
    const point = cells.last.findIndex((last, i) => {
      return step <= last + 0.5 && step >= (cells.first[i] ?? last) - 0.5;
    });
    if (row < 0 || row >= cells.names.length) return null;
    return { row, point };
  };
  const xAt = (event: PointerEvent) => event.clientX - canvas.current!.getBoundingClientRect().left;

  const onPointerMove = (event: PointerEvent) => {
    setCell(cellAt(event));
    const start = pressed.current;
    if (start !== null && Math.abs(xAt(event) - start) > DRAG_PX) {
      const x = xAt(event);
      setDrag({ from: Math.max(left, Math.min(start, x)), to: Math.max(start, x) });
    }
  };
  const onPointerUp = (event: PointerEvent) => {
    const isClick = pressed.current !== null && !drag;
    pressed.current = null;
    if (drag) {
      const from = Math.max(window.from, Math.ceil(stepAt(layout, drag.from)));
      const to = Math.min(window.to, Math.floor(stepAt(layout, drag.to)));
      setDrag(null);
      if (to > from) onZoom(from, to);
    } else if (isClick) {
      const at = cellAt(event);
      if (at) onOpen(cells.names[at.row] ?? "");
    }
  };

  const onKeyDown = (event: KeyboardEvent) => {
    const moved = movedBy(event.key, cell, cells);
    if (moved) {
      setCell(moved);
      const y = moved.row * rowHeight;
      const box = scroller.current!;
      if (y < box.scrollTop) box.scrollTop = y;
      if (y + rowHeight > box.scrollTop + height) box.scrollTop = y + rowHeight - height;
    } else if (event.key === "Enter" && cell) onOpen(cells.names[cell.row] ?? "");
    else return;
    event.preventDefault();
  };

  const words = cell ? cellText(cells, cell, text) : "";
  const [from, to] = (cell && edgesOf(cells, layout)[cell.point]) ?? [left, left];
  return (
    <div class="heat">
      <HeatLegend
        scale={scale} text={text} isLog={isLog} hasBad={cells.bad.size > 0}
        isHeld={cells.hold > 0}
      />
      <div
        class="heat-scroll" ref={scroller} tabIndex={0} role="application"
        aria-roledescription="heat map" aria-describedby="heat-cell"
        aria-label={`${plural(cells.names.length, "row")} by ${plural(cells.last.length, "point")}`
          + ": arrow keys move, Enter opens the row"}
        style={{ height: `${height}px` }}
        onScroll={() => setTop(scroller.current!.scrollTop)}
        onKeyDown={onKeyDown} onBlur={() => setCell(null)}
      >
        <div class="heat-rows" style={{ height: `${whole}px` }}>
          <canvas
            ref={canvas} onPointerMove={onPointerMove} onPointerUp={onPointerUp}
            onPointerDown={(event) => { pressed.current = xAt(event); }}
            onPointerLeave={() => { setCell(null); setDrag(null); pressed.current = null; }}
          />
          {cell && (
            <div
              class="heat-cursor"
              style={{
                left: `${from}px`, width: `${Math.max(3, to - from)}px`,
                top: `${cell.row * rowHeight}px`, height: `${rowHeight}px`,
              }}
            />
          )}
          {drag && (
            <div
              class="heat-drag"
              style={{ left: `${drag.from}px`, width: `${drag.to - drag.from}px`,
                top: `${top}px`, height: `${height}px` }}
            />
          )}
        </div>
      </div>
      <canvas class="heat-axis" ref={axis} aria-hidden="true" />
      <p class="heat-cell" id="heat-cell" aria-live="polite">
        {words || "Point at a cell, or move with the arrow keys. A click opens the row."}
      </p>
    </div>
  );
}

function movedBy(key: string, cell: Cell | null, cells: HeatCells): Cell | null {
  const moves: Record<string, [number, number]> = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -Infinity], End: [0, Infinity],
  };
  const move = moves[key];
  if (!move || cells.names.length === 0 || cells.last.length === 0) return null;
  if (!cell) return { row: 0, point: cells.last.length - 1 };
  const within = (value: number, count: number) => Math.min(count - 1, Math.max(0, value));
  return {
    row: within(cell.row + move[0], cells.names.length),
    point: within(cell.point + move[1], cells.last.length),
  };
}

function cellText(cells: HeatCells, { row, point }: Cell, text: (value: number) => string): string {
  const name = cells.names[row] ?? "";
  const first = cells.first[point];
  const last = cells.last[point];
  if (first === undefined || last === undefined) return name;
  const steps = first === last
    ? `step ${countText(first)}` : `steps ${countText(first)} to ${countText(last)}`;
  const bad = cells.bad.get(row)?.get(point) ?? 0;
  const value = cells.values[row]?.[point] ?? null;
  const found = value === null ? "" : text(value);
  if (bad === 0) return `${name}, ${steps}: ${found || carriedText(cells, row, point, text)}`;
  const times = first === last ? "not finite" : `not finite in ${plural(bad, "step")}`;
  return `${name}, ${steps}: ${times}${found && `, else ${found}`}`;
}

function carriedText(
  cells: HeatCells, row: number, point: number, text: (value: number) => string,
): string {
  for (let i = point - 1; i >= 0 && !cells.bad.get(row)?.has(i); --i) {
    const value = cells.values[row]?.[i] ?? null;
    if (value !== null) return `not measured, ${text(value)} in step ${countText(cells.last[i]!)}`;
  }
  return "not measured";
}

function sized(
  canvas: HTMLCanvasElement | null, width: number, height: number,
): CanvasRenderingContext2D | null {
  if (!canvas || width <= 0 || height <= 0) return null;
  const px = devicePixelRatio;
  canvas.width = Math.round(width * px);
  canvas.height = Math.round(height * px);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen?.scale(px, px);
  return pen;
}

function paintAxis(pen: CanvasRenderingContext2D, layout: HeatLayout): void {
  const palette = currentPalette();
  pen.clearRect(0, 0, layout.width, AXIS_HEIGHT);
  pen.font = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
  pen.textBaseline = "top";
  pen.fillStyle = palette.soft;
  pen.textAlign = "right";
  pen.fillText("step", layout.left - 8, 7);
  const room = Math.max(2, Math.floor((layout.width - layout.left) / 75));
  for (const step of stepTicks(layout.window, room)) {
    const x = xOf(layout, step);
    pen.fillStyle = palette.rule;
    pen.fillRect(x, 0, 1, 4);
    pen.fillStyle = palette.soft;
    const isEdge = x > layout.width - 30;
    pen.textAlign = isEdge ? "right" : "center";
    pen.fillText(countText(step), isEdge ? layout.width - 2 : x, 7);
  }
}
