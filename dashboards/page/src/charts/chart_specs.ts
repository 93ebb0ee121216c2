// What each chart of the overview shows.
import type { Column, Site } from "../data/api";
import { bytesText, durationText, numberText, percentText } from "../words/number_text";
import { STEP_NUMBERS, TENSOR_NUMBERS } from "../words/numbers";
import { isGap, type Points } from "../data/points";

/** null breaks the line; undefined, which was not measured, does not. */
export type Drawn = (number | null | undefined)[];

export interface Line {
  label: string;
  last: Drawn;
  min: Drawn | null;
  max: Drawn | null;
}

export interface ChartSpec {
  id: string;
  title: string;
  /** After the title: what the numbers are. */
  unit: string;
  /** Where that was not finite, the line is broken. */
  site: Site | null;
  series: { name: string; label: string }[];
  text: (value: number) => string;
  /** 1/x: a step's seconds told as steps per second. */
  isInverse?: boolean;
  /** By the time between this optimizer's steps: a step's seconds are since that of any of them. */
  isFromTimes?: boolean;
  /** Changes over orders of magnitude, so that a log scale helps. */
  canLog?: boolean;
  fromZero?: boolean;
  /** Bytes: round numbers are powers of two. */
  isBinary?: boolean;
}

type Unit = (typeof STEP_NUMBERS | typeof TENSOR_NUMBERS)[number]["unit"];

const seconds = (value: number) => durationText(value);
const rate = (value: number) => `${numberText(value)}/s`;

const SPECS: ChartSpec[] = [
  {
    id: "loss", title: "Loss", unit: "", site: "loss", text: numberText, canLog: true,
    series: [{ name: "loss", label: "loss" }],
  },
  {
    id: "norm", title: "Gradient norm", unit: "", site: "grad", text: numberText, canLog: true,
    series: [
      { name: "grad_norm", label: "before clipping" },
      { name: "grad_norm_at_step", label: "after clipping" },
    ],
  },
  {
    id: "lr", title: "Learning rate", unit: "the largest of the groups", site: null,
    text: numberText, series: [{ name: "lr", label: "learning rate" }], fromZero: true,
  },
  {
    id: "speed", title: "Speed", unit: "steps per second", site: null, text: rate, fromZero: true,
    series: [{ name: "step_seconds", label: "steps per second" }], isInverse: true,
  },
  {
    id: "update_ratio", title: "Update / weight", unit: "estimate", site: "weight",
    text: numberText, canLog: true,
    series: [{ name: "update_ratio", label: "update / weight" }],
  },
  {
    id: "weight_norm", title: "Weight norm", unit: "", site: "weight", text: numberText,
    series: [{ name: "weight_norm", label: "weight norm" }],
  },
  {
    id: "zeros", title: "Zeros among gradients", unit: "share", site: "grad", text: percentText,
    series: [{ name: "grad_zero_ratio", label: "share of zeros" }],
  },
  {
    id: "abs_max", title: "Largest gradient", unit: "magnitude", site: "grad", text: numberText,
    series: [{ name: "grad_abs_max", label: "largest magnitude" }], canLog: true,
  },
  {
    id: "scale", title: "Loss scale", unit: "of the gradient scaler", site: null,
    text: numberText, series: [{ name: "loss_scale", label: "loss scale" }], canLog: true,
  },
  {
    id: "tokens", title: "Tokens", unit: "per second", site: null, text: rate, fromZero: true,
    series: [{ name: "tokens_per_second", label: "tokens per second" }],
  },
  {
    id: "syncs", title: "Host syncs", unit: "per step", site: null, text: numberText,
    series: [{ name: "host_syncs", label: "calls that waited" }], fromZero: true,
  },
  {
    id: "sync_time", title: "Blocked in host syncs", unit: "per step", site: null, text: seconds,
    series: [{ name: "host_sync_seconds", label: "time blocked" }], fromZero: true,
  },
  {
    id: "rank_wait", title: "Waiting for other ranks", unit: "per step", site: null, text: seconds,
    series: [{ name: "rank_wait_seconds", label: "time waited" }], fromZero: true,
  },
  {
    id: "memory", title: "Memory", unit: "", site: null, text: bytesText, fromZero: true,
    isBinary: true,
    series: [
      { name: "process_resident_bytes", label: "resident" },
      { name: "device_allocated_bytes", label: "on the device" },
    ],
  },
  {
    id: "cost", title: "Cost of the agent", unit: "per step", site: null, text: seconds,
    series: [{ name: "agent_seconds", label: "in its hooks" }], fromZero: true,
  },
];

function userSpec(name: string): ChartSpec {
  const label = name.slice("user.".length);
  return {
    id: name, title: label, unit: "logged by the loop", site: null, text: numberText,
    series: [{ name, label }],
  };
}

/** Without those that were never measured; a second line too only where there is one. */
export function specsFor(names: Iterable<string>, hasSeveralOptimizers = false): ChartSpec[] {
  const known = new Set(names);
  const specs: ChartSpec[] = [];
  for (const spec of [...SPECS, ...otherSpecs()]) {
    const series = spec.series.filter(({ name }) => known.has(name));
    if (series.length === 0) continue;
    const isFromTimes = spec.isInverse === true && hasSeveralOptimizers;
    specs.push({ ...spec, series, isFromTimes });
  }
  const own = [...known].filter((name) => name.startsWith("user.")).sort();
  return [...specs, ...own.map(userSpec)];
}

const UNIT_TEXTS: Record<Unit, (value: number) => string> = {
  plain: numberText, share: percentText, ratio: numberText, seconds, bytes: bytesText, per_second: rate,
  calls: numberText,
};
const UNIT_WORDS: Partial<Record<Unit, string>> = { share: "share", ratio: "estimate", seconds: "per step" };

export const PARAM_SPECS: ChartSpec[] = TENSOR_NUMBERS.map((number) => ({
  id: number.key, title: number.title, unit: UNIT_WORDS[number.unit] ?? "", site: "grad",
  text: UNIT_TEXTS[number.unit], canLog: number.unit !== "share",
  series: [{ name: number.key, label: number.title.toLowerCase() }],
}));

/** Charts of the numbers that have none of their own above. */
function otherSpecs(): ChartSpec[] {
  const shown = new Set(SPECS.flatMap((spec) => spec.series.map(({ name }) => name)));
  return STEP_NUMBERS.filter(({ key }) => !shown.has(key)).map((number) => ({
    id: number.key, title: number.title, unit: UNIT_WORDS[number.unit] ?? "", site: number.site || null,
    text: UNIT_TEXTS[number.unit], canLog: number.unit === "plain",
    series: [{ name: number.key, label: number.words }],
  }));
}

const inverse = (value: number | null | undefined) => {
  return value === null || value === undefined ? value : value > 0 ? 1 / value : undefined;
};

/** Nothing where the step before is not known. */
function ratesOf(points: Points): Drawn {
  return points.last.map((_, i) => {
    if (isGap(points, i)) return null;
    const time = (points.time[i] ?? NaN) - (points.time[i - 1] ?? NaN);
    return time > 0 ? ((points.own[i] ?? NaN) - (points.own[i - 1] ?? NaN)) / time : undefined;
  });
}

/**
 * The lines of a chart. Where the site was not finite in any step of a point, the line is broken
 * and nothing bridges it; the lowest and highest of the finite steps of such a point stay.
 */
export function linesOf(spec: ChartSpec, points: Points): Line[] {
  const bad = spec.site ? points.bad[spec.site] : null;
  return spec.series.map(({ name, label }) => {
    if (spec.isFromTimes) return { label, last: ratesOf(points), min: null, max: null };
    const track = points.tracks[name];
    const last = brokenAt((i) => isGap(points, i) || (bad?.[i] ?? 0) > 0, track?.last, points);
    const min = track?.min ? brokenAt((i) => isGap(points, i), track.min, points) : null;
    const max = track?.max ? brokenAt((i) => isGap(points, i), track.max, points) : null;
    if (!spec.isInverse) return { label, last, min, max };
    return {
      label,
      last: last.map(inverse),
      min: max?.map(inverse) ?? null,
      max: min?.map(inverse) ?? null,
    };
  });
}

/** A break reaches to the next measurement on either side: what lies between is not known. */
function brokenAt(
  isBroken: (i: number) => boolean, values: Column | undefined, points: Points,
): Drawn {
  const drawn: Drawn = points.last.map((_, i) => (isBroken(i) ? null : values?.[i] ?? undefined));
  const spread = (i: number, isAfterBreak: boolean) => {
    if (drawn[i] === undefined && isAfterBreak) drawn[i] = null;
    return drawn[i] === null;
  };
  let isAfterBreak = false;
  for (let i = 0; i < drawn.length; ++i) isAfterBreak = spread(i, isAfterBreak);
  isAfterBreak = false;
  for (let i = drawn.length - 1; i >= 0; --i) isAfterBreak = spread(i, isAfterBreak);
  return drawn;
}
