import { useEffect, useMemo } from "preact/hooks";
import type { Status } from "../data/api";
import type { TabProps } from "./props";
import { Chart, type Zoom } from "../charts/chart";
import { specsFor, type ChartSpec } from "../charts/chart_specs";
import { csvOf, fileName, save } from "../words/csv";
import { IncidentLine } from "./incident_line";
import { isNonfinite, openFirst } from "../words/incident_words";
import { plural } from "../words/number_text";
import { OptimizerChoice } from "../view/optimizer_choice";
import {
  extentOf, isGap, needsWholeRun, pointsIn, windowOf, type Points, type Window,
} from "../data/points";
import { grainText, RangeBar } from "../view/range_bar";
import { Tiles } from "./tiles";
import { tabLink } from "../view/view";

const WHOLE_RUN_MS = 3_000;
const SHOWN_INCIDENTS = 3;

export function Overview({ data, live, view, change }: TabProps) {
  const { ring, whole } = data;
  const status = data.status!;
  const extent = extentOf(ring, whole);
  const window = extent ? windowOf(view, extent) : null;
  const needsWhole = extent && window ? needsWholeRun(ring, extent, window) : false;

  useEffect(() => {
    if (!needsWhole || data.link === "recording") return;
    const timer = setInterval(() => {
      if (!document.hidden) void live.refreshWhole();
    }, WHOLE_RUN_MS);
    return () => clearInterval(timer);
  }, [needsWhole, data.link, live]);

  const names = [...new Set([...ring.names, ...Object.keys(whole?.series ?? {})])].join("\n");
  const hasSeveral = status.optimizers.length > 1;
  const specs = useMemo(() => specsFor(names.split("\n"), hasSeveral), [names, hasSeveral]);
  const points = useMemo(
    () => (window ? pointsIn(ring, whole, window) : null),
    [data.version, window?.from, window?.to],
  );
  const marked = useMemo(
    () => status.incidents.filter((incident) => !isNonfinite(incident)), [status.incidents]);
  const zoom = useMemo<Zoom>(() => ({
    zoomTo: (from, to) => change({ zoom: { from, to } }),
    reset: () => change({ zoom: null }),
  }), [change]);

  return (
    <>
      <OptimizerChoice data={data} view={view} change={change} />
      <Tiles data={data} />
      {status.incidents.length > 0 && (
        <section class="latest-incidents" aria-label="Latest incidents">
          <ul class="incidents">
            {openFirst(status.incidents).slice(0, SHOWN_INCIDENTS).map((incident) => (
              <IncidentLine key={incident.id} incident={incident} view={view} />
            ))}
          </ul>
          {status.incidents_total > SHOWN_INCIDENTS && (
            <p class="more">
              <a href={tabLink(view, "incidents")}>
                All {plural(status.incidents_total, "incident")}
              </a>
            </p>
          )}
        </section>
      )}
      {window && points ? (
        <>
          <RangeBar
            view={view} change={change} window={window}
            grain={grainText(points.stepsPerPoint, points.exact)}
          >
            <label class="check">
              <input
                type="checkbox" checked={view.log}
                onChange={(event) => change({ log: event.currentTarget.checked })}
              /> log scale
            </label>
            <button
              type="button"
              onClick={() => {
                save(csvName(status, data.optimizer, window), csvOfPoints(points, specs, window));
              }}
            >
              Export CSV
            </button>
          </RangeBar>
          <h2 class="unseen">Charts</h2>
          <div class="chart-grid">
            {specs.map((spec) => (
              <Chart
                key={spec.id} spec={spec} points={points} window={window} log={view.log}
                zoom={zoom} incidents={marked}
              />
            ))}
          </div>
        </>
      ) : <p class="empty">{emptyText(status)}</p>}
    </>
  );
}

function emptyText({ steps }: Status): string {
  if (steps > 0) return "No step of this optimizer is kept.";
  return "No step has been seen yet. Charts appear with the first.";
}

function csvName(status: Status, optimizer: number, { from, to }: Window): string {
  const whose = status.model.optimizers.length > 1 ? `optimizer${optimizer}-` : "";
  return fileName(status.run, status.rank, `${whose}steps-${from}-${to}`);
}

/** What the charts show: the same steps, as they were measured, before any scale. */
export function csvOfPoints(points: Points, specs: ChartSpec[], window: Window): string {
  const names = specs.flatMap((spec) => spec.series.map(({ name }) => name));
  const withLimits = names.filter((name) => points.tracks[name]?.min);
  const head = [
    "first_step", "last_step", "time", ...names,
    ...withLimits.flatMap((name) => [`${name}_min`, `${name}_max`]),
    "nonfinite_loss_steps", "nonfinite_grad_steps", "nonfinite_weight_steps", "skipped_steps",
  ];
  const rows = [];
  for (let i = 0; i < points.last.length; ++i) {
    const [first, last] = [points.first[i]!, points.last[i]!];
    if (isGap(points, i) || last < window.from || first > window.to) continue;
    rows.push([
      first, last, points.time[i],
      ...names.map((name) => points.tracks[name]?.last[i]),
      ...withLimits.flatMap((name) => {
        return [points.tracks[name]?.min?.[i], points.tracks[name]?.max?.[i]];
      }),
      points.bad.loss[i], points.bad.grad[i], points.bad.weight[i], points.skipped[i],
    ]);
  }
  return csvOf(head, rows);
}
