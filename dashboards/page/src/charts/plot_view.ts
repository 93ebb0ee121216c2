// One uPlot chart and its life: made when the shape of its data changes, fed until then, and taken
// down without a trace.
import uPlot from "uplot";
import { paintBands, paintMarks, paintSkips } from "./band_paint";
import type { Drawn, Line } from "./chart_specs";
import { paintNever, paintSoon } from "../data/frame_queue";
import { countText } from "../words/number_text";
import type { Window } from "../data/points";
import type { Stretch } from "../data/stretches";
import { currentPalette, onPaletteChange } from "../view/theme";

export interface PlotInput {
  x: number[];
  lines: Line[];
  window: Window;
  log: boolean;
  fromZero: boolean;
  isBinary: boolean;
  own: Stretch[];
  other: Stretch[];
  /** Steps in which other incidents opened. */
  marks: number[];
  /** Steps that changed nothing. */
  skips: number[];
  /** For an axis' tick. */
  text: (value: number) => string;
}

export interface PlotEvents {
  onCursor: (index: number | null) => void;
  onZoom: (from: number, to: number) => void;
  onReset: () => void;
}

const HEIGHT = 176;
/** From here on lines lie side by side, and thinner ones tell more. */
const DENSE_POINTS = 1000;
const AXIS_FONT = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const WHOLE_STEPS = Array.from({ length: 14 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power))
  .flat();
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);
const DASHES = [[], [6, 3]];

export class PlotView {
  private plot: uPlot | null = null;
  private shape = "";
  private input: PlotInput | null = null;
  private isSeen = false;
  private readonly draw = () => this.drawNow();
  private readonly sizes: ResizeObserver;
  private readonly sights: IntersectionObserver;
  private readonly stopPalette: () => void;

  constructor(private readonly holder: HTMLElement, private readonly events: PlotEvents) {
    this.sizes = new ResizeObserver(() => {
      const width = this.width;
      if (this.plot && width > 0 && width !== this.plot.width) {
        this.plot.setSize({ width, height: HEIGHT });
      }
    });
    this.sizes.observe(holder);
    // A chart that is scrolled out of sight is painted anew when it comes back.
    this.sights = new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1)?.isIntersecting ?? true;
      if (this.isSeen) paintSoon(this.draw);
    }, { rootMargin: "100px" });
    this.sights.observe(holder);
    this.stopPalette = onPaletteChange(() => this.plot?.redraw());
  }

  destroy(): void {
    paintNever(this.draw);
    this.sizes.disconnect();
    this.sights.disconnect();
    this.stopPalette();
    this.plot?.destroy();
    this.plot = null;
  }

  private get width(): number {
    return Math.floor(this.holder.clientWidth);
  }

  show(input: PlotInput): void {
    this.input = input;
    paintSoon(this.draw);
  }

  /** Once in any case; from then on only while it is in sight. */
  private drawNow(): void {
    const { input } = this;
    if (!input || this.width <= 0 || (this.plot && !this.isSeen)) return;
    const data = dataOf(input);
    const isDense = input.x.length > DENSE_POINTS;
    const shape = [input.lines.length, input.log, input.isBinary, isDense].join(" ");
    if (!this.plot || shape !== this.shape) {
      this.shape = shape;
      this.plot?.destroy();
      this.plot = new uPlot(this.options(input), data, this.holder);
    } else {
      this.plot.setData(data);
    }
    this.events.onCursor(this.plot.cursor.idx ?? null);
  }

  /** Moves the cursor by so many points, on all charts. */
  moveCursor(by: number): void {
    const { plot } = this;
    const x = plot?.data[0];
    if (!plot || !x || x.length === 0) return;
    const now = plot.cursor.idx ?? (by > 0 ? -1 : x.length);
    const index = Math.min(x.length - 1, Math.max(0, now + by));
    placeCursor(plot, plot.valToPos(x[index] ?? 0, "x"));
  }

  hideCursor(): void {
    if (this.plot) placeCursor(this.plot, -10);
  }

  private options(input: PlotInput): uPlot.Options {
    return {
      width: this.width,
      height: HEIGHT,
      // Right: half of the last tick's words.
      padding: [10, 26, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: () => spread(this.input?.window ?? input.window) },
        y: { distr: input.log ? 3 : 1, range: (_, low, high) => this.valueRange(low, high) },
      },
      axes: [this.stepAxis(), this.valueAxis(input.isBinary)],
      series: [{}, ...input.lines.flatMap((_, i) => {
        return seriesOf(i, input.x.length > DENSE_POINTS ? 1 : 1.5);
      })],
      bands: input.lines.map((_, i) => ({
        series: [i * 3 + 3, i * 3 + 2],
        fill: () => withAlpha(currentPalette().lines[i % 2] ?? "", 0.22),
      })),
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false, dist: 4 },
        points: { size: 7, show: true },
        // Where others point is shown; what they drag is theirs.
        sync: {
          key: "steps",
          scales: ["x", null],
          setSeries: false,
          filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
        },
        bind: { dblclick: () => () => { this.events.onReset(); return null; } },
      },
      hooks: {
        drawAxes: [(plot) => {
          paintBands(plot, this.input?.own ?? [], this.input?.other ?? []);
          paintMarks(plot, this.input?.marks ?? []);
          paintSkips(plot, this.input?.skips ?? []);
        }],
        setCursor: [(plot) => this.events.onCursor(plot.cursor.idx ?? null)],
        setSelect: [(plot) => this.zoomTo(plot)],
      },
    };
  }

  private zoomTo(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 2) return;
    const from = Math.ceil(plot.posToVal(left, "x"));
    const to = Math.floor(plot.posToVal(left + width, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (to > from) this.events.onZoom(from, to);
  }

  private valueRange(low: number | null, high: number | null): [number, number] {
    const log = this.input?.log ?? false;
    if (low === null || high === null) return log ? [0.1, 10] : [0, 1];
    if (low === 0 && high === 0) return [0, 1];
    if (log) return uPlot.rangeLog(low, high, 10, false) as [number, number];
    const from = this.input?.fromZero && low > 0 ? 0 : low;
    return uPlot.rangeNum(from, high, 0.08, true) as [number, number];
  }

  private stepAxis(): uPlot.Axis {
    return {
      stroke: () => currentPalette().soft,
      font: AXIS_FONT,
      size: 26,
      gap: 4,
      space: 64,
      incrs: WHOLE_STEPS,
      values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? countText(tick) : "")),
      grid: { show: false },
      ticks: { stroke: () => currentPalette().rule, size: 4, width: 1 },
      border: { show: true, stroke: () => currentPalette().rule, width: 1 },
    };
  }

  private valueAxis(isBinary: boolean): uPlot.Axis {
    return {
      ...(isBinary && { incrs: POWERS_OF_TWO }),
      stroke: () => currentPalette().soft,
      font: AXIS_FONT,
      size: 62,
      gap: 6,
      space: 34,
      values: (_, ticks) => ticks.map((tick) => {
        return tick === null ? "" : this.input?.text(tick) ?? "";
      }),
      grid: { stroke: () => currentPalette().grid, width: 1 },
      ticks: { show: false },
    };
  }
}

/** The last argument, which tells the other charts, is missing from uPlot's types. */
function placeCursor(plot: uPlot, left: number): void {
  const place = plot.setCursor as (
    at: { left: number; top: number }, tellHooks: boolean, tellOthers: boolean) => void;
  place({ left, top: left < 0 ? -10 : 1 }, true, true);
}

/** Three of uPlot's for a line: itself, its lowest and its highest, between which is the band. */
function seriesOf(i: number, width: number): uPlot.Series[] {
  const stroke = () => currentPalette().lines[i % 2] ?? "";
  const limit: uPlot.Series = { points: { show: false }, spanGaps: false, stroke: "transparent" };
  const line: uPlot.Series = {
    stroke,
    width,
    dash: DASHES[i % 2] ?? [],
    spanGaps: false,
    points: { size: 4, fill: stroke },
  };
  return [line, limit, limit];
}

function dataOf(input: PlotInput): uPlot.AlignedData {
  const blank = new Array<null>(input.x.length).fill(null);
  const fit = (values: Drawn | null) => {
    if (!values) return blank;
    return input.log ? values.map((v) => (typeof v === "number" && v <= 0 ? null : v)) : values;
  };
  const columns = input.lines.flatMap((line) => [fit(line.last), fit(line.min), fit(line.max)]);
  return [input.x, ...columns];
}

/** A window of one step has a width too. */
function spread({ from, to }: Window): [number, number] {
  return to > from ? [from, to] : [from - 0.5, to + 0.5];
}

function withAlpha(hex: string, alpha: number): string {
  const part = (at: number) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}
