// Joins answers of /api/v1/heatmap, and cuts out what is looked at.
import type { HeatMap } from "../data/api";
import type { Window } from "../data/points";

/** null: the points or rows are others now, and all of it must be asked for again. */
export function joinedHeat(map: HeatMap, more: HeatMap): HeatMap | null {
  const isSame = more.steps_per_point === map.steps_per_point && more.started === map.started
    && more.value === map.value && more.rows === map.rows && more.names.length === map.names.length;
  if (!isSame) return null;
  const start = more.first[0];
  if (start === undefined) return { ...map, next: more.next };
  const known = map.first.findIndex((first) => first >= start);
  const keep = known < 0 ? map.first.length : known;
  return {
    ...more,
    first: [...map.first.slice(0, keep), ...more.first],
    last: [...map.last.slice(0, keep), ...more.last],
    time: [...map.time.slice(0, keep), ...more.time],
    values: more.values.map((row, i) => [...(map.values[i] ?? []).slice(0, keep), ...row]),
    nonfinite: [
      ...map.nonfinite.filter(([, point]) => point < keep),
      ...more.nonfinite.map(([row, point, steps]): [number, number, number] => {
        return [row, point + keep, steps];
      }),
    ],
  };
}

export interface HeatCells {
  names: string[];
  first: number[];
  last: number[];
  /** One for each row: null where it was not measured. */
  values: (number | null)[][];
  /** By row, then point: steps that were not finite. */
  bad: Map<number, Map<number, number>>;
  /** Of all finite values above zero that are seen; null where there is none. */
  low: number | null;
  high: number | null;
  /** For how many steps a reading holds: until the next is due. */
  hold: number;
}

/** The usual way from one reading to the next, and a little more; 0 where each point has one. */
function holdOf(values: (number | null)[][], last: number[]): number {
  for (const row of values) {
    const read = last.filter((_, i) => (row[i] ?? null) !== null);
    if (read.length === last.length) return 0;
    if (read.length < 3) continue;
    const ways = read.slice(1).map((step, i) => step - read[i]!).sort((a, b) => a - b);
    return 1.2 * ways[Math.floor(ways.length * 0.9)]!;
  }
  return 0;
}

export function cellsIn(map: HeatMap, window: Window): HeatCells {
  const inside = map.last.findIndex((last) => last >= window.from);
  const from = inside < 0 ? map.last.length : inside;
  const beyond = map.first.findIndex((first) => first > window.to);
  const to = beyond < 0 ? map.first.length : beyond;
  const bad = new Map<number, Map<number, number>>();
  for (const [row, point, steps] of map.nonfinite) {
    if (point < from || point >= to) continue;
    const ofRow = bad.get(row) ?? new Map<number, number>();
    ofRow.set(point - from, steps);
    bad.set(row, ofRow);
  }
  let low = Infinity;
  let high = -Infinity;
  const values = map.values.map((row) => row.slice(from, to));
  for (const row of values) {
    for (const value of row) {
      if (value === null || value <= 0) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  const last = map.last.slice(from, to);
  return {
    names: map.names,
    first: map.first.slice(from, to),
    last,
    values,
    bad,
    low: low <= high ? low : null,
    high: low <= high ? high : null,
    hold: holdOf(values, last),
  };
}
