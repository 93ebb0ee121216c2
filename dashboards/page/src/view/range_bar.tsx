// Which steps are looked at, for all charts at once.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { countText } from "../words/number_text";
import type { Window } from "../data/points";
import type { ChangeView } from "./use_view";
import { RANGES, type Range, type View } from "./view";

const WORDS: Record<Range, string> = {
  100: "Last 100", 500: "Last 500", 2000: "Last 2,000", run: "Whole run",
};

interface Props {
  view: View;
  change: ChangeView;
  window: Window;
  /** How fine the points are, in words. */
  grain: string;
  children?: ComponentChildren;
}

export function RangeBar({ view, change, window, grain, children }: Props) {
  return (
    <div class="bar">
      <div class="choice" role="group" aria-label="Steps">
        {RANGES.map((range) => (
          <button
            key={range} type="button" aria-pressed={!view.zoom && view.range === range}
            onClick={() => change({ range, zoom: null })}
          >
            {WORDS[range]}
          </button>
        ))}
      </div>
      <ZoomFields view={view} change={change} window={window} />
      <span class="grain">{grain}</span>
      <span class="push" />
      {children}
    </div>
  );
}

function ZoomFields({ view, change, window }: Omit<Props, "grain" | "children">) {
  const set = (from: number, to: number) => {
    if (Number.isInteger(from) && Number.isInteger(to) && from >= 0 && from <= to) {
      change({ zoom: { from, to } });
    }
  };
  return (
    <span class="zoom">
      <StepField label="from" step={window.from} onChange={(from) => set(from, window.to)} />
      <StepField label="to" step={window.to} onChange={(to) => set(window.from, to)} />
      {view.zoom && (
        <button type="button" class="plain" onClick={() => change({ zoom: null })}>
          Reset zoom
        </button>
      )}
    </span>
  );
}

/** Follows the run, but not while someone types in it. */
function StepField(
  { label, step, onChange }: { label: string; step: number; onChange: (step: number) => void },
) {
  const [typed, setTyped] = useState<string | null>(null);
  return (
    <label>
      {label}{" "}
      <input
        type="number" min={0} step={1} value={typed ?? String(step)}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => {
          setTyped(null);
          onChange(event.currentTarget.valueAsNumber);
        }}
        onBlur={() => setTyped(null)}
      />
    </label>
  );
}

export function grainText(stepsPerPoint: number, isExact: boolean): string {
  if (isExact || stepsPerPoint <= 1) return "every step";
  return `${countText(stepsPerPoint)} steps a point`;
}
