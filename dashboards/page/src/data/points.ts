// The points that are looked at: exact steps where they are still kept, else points of the whole
// run that cover several steps each. Where steps are missing, a point without values breaks the
// lines.
import type { Column, History, Site, Track } from "./api";
import type { StepRing } from "./step_ring";
import type { Range, View } from "../view/view";

export interface Window {
  from: number;
  to: number;
}

export interface Points {
  exact: boolean;
  stepsPerPoint: number;
  first: number[];
  last: number[];
  /** The optimizer's own count at the end of each. */
  own: number[];
  /** NaN where a point stands for steps that nobody recorded. */
  time: number[];
  /** Steps of each point in which the site was not finite. */
  bad: Record<Site, number[]>;
  skipped: number[];
  tracks: Record<string, Track>;
}

const empty = (exact: boolean, tracks: Record<string, Track>): Points => ({
  exact,
  stepsPerPoint: 1,
  first: [],
  last: [],
  own: [],
  time: [],
  bad: { loss: [], grad: [], weight: [] },
  skipped: [],
  tracks,
});

const EMPTY = empty(true, {});

export function isGap(points: Points, i: number): boolean {
  return Number.isNaN(points.time[i] ?? NaN);
}

/** First and last step that are known at all; null before the first. */
export function extentOf(ring: StepRing, whole: History | null): Window | null {
  const oldest = Math.min(
    ring.length > 0 ? ring.stepAt(0) : Infinity, whole?.first[0] ?? Infinity);
  const newest = Math.max(
    ring.length > 0 ? ring.stepAt(ring.length - 1) : -Infinity, whole?.last.at(-1) ?? -Infinity);
  return newest >= oldest ? { from: oldest, to: newest } : null;
}

export function windowOf(view: Pick<View, "range" | "zoom">, extent: Window): Window {
  if (view.zoom) return view.zoom;
  return { from: startOf(view.range, extent), to: extent.to };
}

function startOf(range: Range, extent: Window): number {
  return range === "run" ? extent.from : Math.max(extent.from, extent.to - Number(range) + 1);
}

/** True where the exact steps do not reach back to the start of what is looked at. */
export function needsWholeRun(ring: StepRing, extent: Window, window: Window): boolean {
  const start = Math.max(window.from, extent.from);
  return ring.length === 0 || ring.stepAt(0) > start;
}

export function pointsIn(ring: StepRing, whole: History | null, window: Window): Points {
  const extent = extentOf(ring, whole);
  if (!extent) return EMPTY;
  if (whole && needsWholeRun(ring, extent, window)) return wholeRunPoints(ring, whole, window);
  return exactPoints(ring, window);
}

/** A step more on either side, so that lines run to the edges. */
function exactPoints(ring: StepRing, window: Window): Points {
  const from = Math.max(0, ring.indexOf(window.from) - 1);
  const to = Math.min(ring.length, ring.indexOf(window.to + 1) + 1);
  const points = new PointList(ring.names, false);
  for (let i = from; i < to; ++i) addStep(points, ring, i);
  return points.done(1);
}

function addStep(points: PointList, ring: StepRing, i: number): void {
  const step = ring.stepAt(i);
  points.breakBefore(step, ring.ownAt(i));
  points.add(step, step, ring.ownAt(i), ring.timeAt(i), {
    loss: ring.isBad("loss", i) ? 1 : 0,
    grad: ring.isBad("grad", i) ? 1 : 0,
    weight: ring.isBad("weight", i) ? 1 : 0,
  }, ring.isSkipped(i) ? 1 : 0, (track, name) => {
    const value = ring.valueAt(name, i);
    track.last.push(value);
    track.min?.push(value);
    track.max?.push(value);
  });
}

/** And one by one the steps that came since it was asked for. */
function wholeRunPoints(ring: StepRing, whole: History, window: Window): Points {
  const points = new PointList(Object.keys(whole.series), true);
  const inside = whole.last.findIndex((last) => last >= window.from);
  const beyond = whole.first.findIndex((first) => first > window.to);
  const from = Math.max(0, (inside < 0 ? whole.last.length : inside) - 1);
  const to = beyond < 0 ? whole.last.length : beyond + 1;
  for (let i = from; i < to; ++i) {
    const last = whole.last[i] ?? 0;
    const first = whole.first[i] ?? last;
    points.breakBefore(first, whole.own_first?.[i] ?? first);
    points.add(first, last, whole.own_last?.[i] ?? last, whole.time[i] ?? NaN, {
      loss: whole.nonfinite.loss[i] ?? 0,
      grad: whole.nonfinite.grad[i] ?? 0,
      weight: whole.nonfinite.weight[i] ?? 0,
    }, whole.skipped[i] ?? 0, (track, name) => {
      const all = whole.series[name];
      track.last.push(all?.last[i] ?? null);
      track.min?.push(all?.min?.[i] ?? null);
      track.max?.push(all?.max?.[i] ?? null);
    });
  }
  const newer = beyond < 0 ? ring.indexOf((whole.last.at(-1) ?? 0) + 1) : ring.length;
  for (let i = newer; i < ring.length && ring.stepAt(i) <= window.to; ++i) addStep(points, ring, i);
  return points.done(whole.steps_per_point);
}

/** Of one parameter: the answer of /api/v1/param has points, and no lows and highs. */
export function parameterPoints(
  answer: { first: number[]; last: number[]; time: number[]; nonfinite: number[];
    series: Record<string, Column>; steps_per_point: number },
  window: Window,
): Points {
  const points = new PointList(Object.keys(answer.series), false);
  answer.last.forEach((last, i) => {
    const first = answer.first[i] ?? last;
    if (last < window.from || first > window.to) return;
    points.breakBefore(first, first);
    const bad = answer.nonfinite[i] ?? 0;
    points.add(first, last, last, answer.time[i] ?? NaN, { loss: 0, grad: bad, weight: bad }, 0,
      (track, name) => track.last.push(answer.series[name]?.[i] ?? null));
  });
  return { ...points.done(answer.steps_per_point), exact: answer.steps_per_point === 1 };
}

class PointList {
  private readonly points: Points;

  constructor(names: string[], hasLimits: boolean) {
    const tracks: Record<string, Track> = {};
    for (const name of names) {
      tracks[name] = hasLimits ? { last: [], min: [], max: [] } : { last: [] };
    }
    this.points = empty(!hasLimits, tracks);
  }

  /** Where the optimizer's own count has a hole: it need not step in every step of the run. */
  breakBefore(first: number, own: number): void {
    const { last, own: count } = this.points;
    const before = last.at(-1);
    const ownBefore = count.at(-1);
    if (before === undefined || ownBefore === undefined || own <= ownBefore + 1) return;
    const middle = (before + first) / 2;
    const none = { loss: 0, grad: 0, weight: 0 };
    this.add(middle, middle, (ownBefore + own) / 2, NaN, none, 0, (track) => {
      track.last.push(null);
      track.min?.push(null);
      track.max?.push(null);
    });
  }

  add(
    first: number, last: number, own: number, time: number, bad: Record<Site, number>,
    skipped: number,
    fill: (track: Track, name: string) => void,
  ): void {
    const { points } = this;
    points.first.push(first);
    points.last.push(last);
    points.own.push(own);
    points.time.push(time);
    points.bad.loss.push(bad.loss);
    points.bad.grad.push(bad.grad);
    points.bad.weight.push(bad.weight);
    points.skipped.push(skipped);
    for (const name in points.tracks) fill(points.tracks[name]!, name);
  }

  done(stepsPerPoint: number): Points {
    this.points.stepsPerPoint = stepsPerPoint;
    return this.points;
  }
}

/** The answer to a later question joined to what is there; null: ask for all of it again. */
export function joined(whole: History, more: History): History | null {
  if (more.steps_per_point !== whole.steps_per_point || more.started !== whole.started) return null;
  const start = more.first[0];
  if (start === undefined) return whole;
  const known = whole.first.findIndex((first) => first >= start);
  const keep = known < 0 ? whole.first.length : known;
  const join = <T>(before: T[] | undefined, after: T[] | undefined, blank: T): T[] => [
    ...(before ?? new Array<T>(keep).fill(blank)).slice(0, keep),
    ...(after ?? new Array<T>(more.first.length).fill(blank)),
  ];
  const series: Record<string, Track> = {};
  for (const name of new Set([...Object.keys(whole.series), ...Object.keys(more.series)])) {
    const [before, after] = [whole.series[name], more.series[name]];
    series[name] = {
      last: join(before?.last, after?.last, null),
      min: join(before?.min, after?.min, null),
      max: join(before?.max, after?.max, null),
    };
  }
  return {
    ...more,
    first: join(whole.first, more.first, 0),
    last: join(whole.last, more.last, 0),
    own_first: join(whole.own_first ?? whole.first, more.own_first ?? more.first, 0),
    own_last: join(whole.own_last ?? whole.last, more.own_last ?? more.last, 0),
    time: join(whole.time, more.time, 0),
    skipped: join(whole.skipped, more.skipped, 0),
    nonfinite: {
      loss: join(whole.nonfinite.loss, more.nonfinite.loss, 0),
      grad: join(whole.nonfinite.grad, more.nonfinite.grad, 0),
      weight: join(whole.nonfinite.weight, more.nonfinite.weight, 0),
    },
    series,
  };
}
