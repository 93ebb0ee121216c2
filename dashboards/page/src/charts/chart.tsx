// A chart with its title, the values at the cursor, and words for those who cannot see it.
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Incident } from "../data/api";
import { linesOf, type ChartSpec, type Line } from "./chart_specs";
import { classText } from "../words/incident_words";
import { countText, plural } from "../words/number_text";
import { PlotView } from "./plot_view";
import { isGap, type Points, type Window } from "../data/points";
import { stretchesOf, type Stretch } from "../data/stretches";

export interface Zoom {
  zoomTo: (from: number, to: number) => void;
  reset: () => void;
}

interface Props {
  spec: ChartSpec;
  points: Points;
  window: Window;
  log: boolean;
  zoom: Zoom;
  /** Those that are no stretch of non-finite steps, which is drawn as such. */
  incidents: Incident[];
}

const SITES = ["loss", "grad", "weight"] as const;

export function Chart({ spec, points, window, log, zoom, incidents }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const view = useRef<PlotView | null>(null);
  const values = useRef<(HTMLElement | null)[]>([]);
  const place = useRef<HTMLElement>(null);

  const drawn = useMemo(() => {
    const lines = linesOf(spec, points);
    const main = points.tracks[spec.series[0]?.name ?? ""]?.last;
    const own = spec.site
      ? stretchesOf(points.bad[spec.site], points.first, points.last, main) : [];
    const any = points.last.map((_, i) => Math.max(...SITES.map((site) => points.bad[site][i]!)));
    const skips = points.last.filter((_, i) => (points.skipped[i] ?? 0) > 0);
    return { lines, own, skips, other: stretchesOf(any, points.first, points.last) };
  }, [spec, points]);
  // The plot calls back long after it was made: it must find the newest of everything.
  const now = useRef({ spec, points, lines: drawn.lines, zoom, incidents });
  now.current = { spec, points, lines: drawn.lines, zoom, incidents };

  useEffect(() => {
    const plot = new PlotView(holder.current!, {
      onCursor: (index) => {
        const { spec, points, lines, incidents } = now.current;
        const at = index ?? latestOf(points);
        lines.forEach((line, i) => {
          const element = values.current[i];
          if (element) element.textContent = valueText(spec, points, line, at);
        });
        const isPointedAt = index !== null;
        if (place.current) {
          place.current.textContent = placeText(points, at, isPointedAt, incidents);
        }
        describe(holder.current!, spec, points, lines, at, incidents);
      },
      onZoom: (from, to) => now.current.zoom.zoomTo(from, to),
      onReset: () => now.current.zoom.reset(),
    });
    view.current = plot;
    return () => plot.destroy();
  }, []);

  useEffect(() => {
    view.current?.show({
      x: points.last,
      lines: drawn.lines,
      window,
      log: log && spec.canLog === true,
      fromZero: spec.fromZero === true,
      isBinary: spec.isBinary === true,
      own: drawn.own,
      other: drawn.other,
      marks: incidents.map((incident) => incident.first_step),
      skips: drawn.skips,
      text: spec.text,
    });
  }, [drawn, window.from, window.to, log, incidents]);

  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, number> = {
      ArrowLeft: -1, ArrowRight: 1, PageDown: -20, PageUp: 20, Home: -Infinity, End: Infinity,
    };
    const by = moves[event.key];
    if (by !== undefined) view.current?.moveCursor(event.shiftKey ? by * 10 : by);
    else if (event.key === "+" || event.key === "=") narrow(window, zoom);
    else if (event.key === "-") widen(window, zoom);
    else return;
    event.preventDefault();
  };

  const note = badText(drawn.own, points.stepsPerPoint);
  const id = `chart-${spec.id.replace(/\W/g, "-")}`;
  return (
    <figure class="chart">
      <figcaption>
        <h3>
          {spec.title} {spec.unit && <span class="unit">{spec.unit}</span>}
        </h3>
        <span class="at" ref={place} />
        <span class="keys">
          {drawn.lines.map((line, i) => (
            <span class="key" key={line.label}>
              <i class={`swatch swatch-${i % 2}`} />
              {drawn.lines.length > 1 && `${line.label} `}
              <b ref={(element) => { values.current[i] = element; }} />
            </span>
          ))}
        </span>
        {note && <span class="bad" id={`${id}-note`}>{note}</span>}
      </figcaption>
      <div
        class="canvas" ref={holder} tabIndex={0} role="slider" onKeyDown={onKeyDown}
        onBlur={() => view.current?.hideCursor()} id={id}
        aria-label={`${spec.title} by step`} aria-describedby={note ? `${id}-note` : undefined}
        aria-valuenow={0}
      />
    </figure>
  );
}

function latestOf(points: Points): number {
  return points.last.length - 1;
}

function placeText(
  points: Points, at: number, isPointedAt: boolean, incidents: Incident[],
): string {
  const first = points.first[at];
  const last = points.last[at];
  if (first === undefined || last === undefined || isGap(points, at)) return "";
  const steps = first === last
    ? `step ${countText(last)}` : `steps ${countText(first)}–${countText(last)}`;
  if (!isPointedAt) return `latest, ${steps}`;
  const here = incidents.filter((each) => each.first_step <= last && each.last_step >= first);
  const skipped = points.skipped[at] ?? 0;
  const skips = skipped > 0 ? [first === last ? "skipped" : `${countText(skipped)} skipped`] : [];
  return [steps, ...skips, ...here.map((each) => classText(each.class))].join(" · ");
}

function valueText(spec: ChartSpec, points: Points, line: Line, at: number): string {
  if (at < 0) return "–";
  if (isGap(points, at)) return "not recorded";
  const steps = (points.last[at] ?? 0) - (points.first[at] ?? 0) + 1;
  const limits = limitsText(spec, line.min?.[at] ?? null, line.max?.[at] ?? null);
  const bad = badIn(spec, points, at);
  if (bad > 0 && steps <= 1) return "NaN";
  if (bad > 0) {
    const share = `NaN in ${countText(bad)} of ${plural(steps, "step")}`;
    return limits ? `${share}, else ${limits}` : share;
  }
  const value = line.last[at] ?? null;
  if (value === null) return measuredBefore(spec, points, line, at);
  return limits ? `${spec.text(value)} (${limits})` : spec.text(value);
}

function badIn(spec: ChartSpec, points: Points, at: number): number {
  return spec.site ? points.bad[spec.site][at] ?? 0 : 0;
}

/** Nothing where they would read the same. */
function limitsText(spec: ChartSpec, low: number | null, high: number | null): string {
  if (low === null || high === null) return "";
  const [from, to] = [spec.text(low), spec.text(high)];
  return from === to ? "" : `${from} to ${to}`;
}

/** Some are not measured in every step: then it is the value before, and its step. */
function measuredBefore(spec: ChartSpec, points: Points, line: Line, at: number): string {
  for (let i = at - 1; i >= 0 && !isGap(points, i); --i) {
    const step = `(step ${countText(points.last[i]!)})`;
    if (badIn(spec, points, i) > 0) return `NaN ${step}`;
    const value = line.last[i];
    if (typeof value === "number") return `${spec.text(value)} ${step}`;
  }
  return "–";
}

/** As a slider over the steps: arrow keys move it, and a screen reader reads out its text. */
function describe(
  element: HTMLElement, spec: ChartSpec, points: Points, lines: Line[], at: number,
  incidents: Incident[],
): void {
  const words = lines.map((line) => `${line.label} ${valueText(spec, points, line, at)}`);
  const place = placeText(points, at, true, incidents);
  element.setAttribute("aria-valuemin", String(points.first[0] ?? 0));
  element.setAttribute("aria-valuemax", String(points.last.at(-1) ?? 0));
  element.setAttribute("aria-valuenow", String(points.last[at] ?? 0));
  element.setAttribute("aria-valuetext", [place, ...words].join(", "));
}

function badText(own: Stretch[], stepsPerPoint: number): string {
  const first = own[0];
  if (!first) return "";
  const from = Math.ceil(first.from);
  const to = Math.floor(first.to);
  const steps = from === to
    ? `step ${countText(from)}` : `steps ${countText(from)}–${countText(to)}`;
  const others = own.length - 1;
  const more = others > 0 ? ` and ${plural(others, "other stretch", "other stretches")}` : "";
  // A point that covers several steps does not say which of them it was.
  return `not finite ${stepsPerPoint > 1 ? "within" : "in"} ${steps}${more}`;
}

function narrow({ from, to }: Window, zoom: Zoom): void {
  const quarter = Math.floor((to - from) / 4);
  if (quarter >= 1) zoom.zoomTo(from + quarter, to - quarter);
}

function widen({ from, to }: Window, zoom: Zoom): void {
  const half = Math.max(1, Math.floor((to - from) / 2));
  zoom.zoomTo(Math.max(1, from - half), to + half);
}
