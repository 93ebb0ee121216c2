// One parameter: what it is, and its history.
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Incident, Param, ParamHistory } from "../data/api";
import type { TabProps } from "./props";
import { Chart } from "../charts/chart";
import { PARAM_SPECS } from "../charts/chart_specs";
import { countText, kindText, plural, siteText } from "../words/number_text";
import { parameterPoints, windowOf } from "../data/points";
import { grainText } from "../view/range_bar";
import { usePolled } from "../data/use_polled";

const NONE: Incident[] = [];

type Props = Omit<TabProps, "live"> & { onClose: () => void };

export function ParamPanel({ data, view, change, onClose }: Props) {
  const panel = useRef<HTMLElement>(null);
  const { answer, error } = usePolled<ParamHistory>(data, "param", { name: view.param });
  const isIt = answer?.param.name === view.param || answer?.param.aliases?.includes(view.param);
  const known = answer && isIt ? answer : null;
  const isKnown = known !== null;
  useEffect(() => panel.current?.scrollIntoView({ block: "nearest" }), [view.param, isKnown]);

  const points = useMemo(() => {
    if (!known || known.first.length === 0) return null;
    const window = windowOf(view, { from: known.first[0]!, to: known.last.at(-1)! });
    return { window, points: parameterPoints(known, window) };
  }, [known, view.range, view.zoom]);
  const zoom = useMemo(() => ({
    zoomTo: (from: number, to: number) => change({ zoom: { from, to } }),
    reset: () => change({ zoom: null }),
  }), [change]);
  const specs = PARAM_SPECS.filter((spec) => {
    return spec.series.some(({ name }) => known?.series[name]?.some((value) => value !== null));
  });

  return (
    <section class="param-panel" ref={panel} aria-label={`Parameter ${view.param}`}>
      <div class="bar">
        <h2><code>{view.param}</code></h2>
        {points && <span class="grain">{grainText(points.points.stepsPerPoint, false)}</span>}
        <span class="push" />
        <button type="button" onClick={onClose}>Close</button>
      </div>
      {known ? <Facts param={known.param} /> : <p class="empty">{error || "Loading …"}</p>}
      {points && (
        <div class="chart-grid">
          {specs.map((spec) => (
            <Chart
              key={spec.id} spec={spec} points={points.points} window={points.window}
              log={view.log} zoom={zoom} incidents={NONE}
            />
          ))}
        </div>
      )}
    </section>
  );
}

function Facts({ param }: { param: Param }) {
  const rows: [string, string][] = [
    ["state", param.state],
    ["shape", `${param.shape.join(" × ") || "scalar"}, ${plural(param.numel, "element")}`],
    ["type", `${param.dtype} on ${param.device}`],
  ];
  if (param.group) rows.push(["group", param.group]);
  if (param.aliases) rows.push(["also named", param.aliases.join(", ")]);
  const bad = param.first_nonfinite;
  if (bad) {
    const at = bad.position ? `, element [${bad.position.join(", ")}]` : "";
    rows.push(["not finite", `in ${plural(param.nonfinite_steps, "step")}, first in step `
      + `${countText(bad.run_step)}: ${kindText(bad.kind)} in the ${siteText(bad.site)}${at}`]);
  }
  return (
    <dl class="facts">
      {rows.map(([label, value]) => (
        <div key={label} class={label === "not finite" ? "bad" : ""}>
          <dt>{label}</dt><dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
