// The exact steps, in memory that does not grow: the newest 4096, one typed array for each series.
import type { History, Site } from "./api";

export const RING_STEPS = 4096;
/** User series beyond these are not drawn; the API has them. */
export const MAX_SERIES = 64;

const SITES: readonly Site[] = ["loss", "grad", "weight"];

export class StepRing {
  private readonly step = new Float64Array(RING_STEPS);
  private readonly own = new Float64Array(RING_STEPS);
  private readonly time = new Float64Array(RING_STEPS);
  private readonly bad = {
    loss: new Uint8Array(RING_STEPS),
    grad: new Uint8Array(RING_STEPS),
    weight: new Uint8Array(RING_STEPS),
  };
  private readonly skip = new Uint8Array(RING_STEPS);
  /** NaN stands for "not measured": what is not finite is told by `bad`. */
  private readonly values = new Map<string, Float64Array>();
  private begin = 0;
  private count = 0;

  get length(): number {
    return this.count;
  }

  get names(): string[] {
    return [...this.values.keys()];
  }

  clear(): void {
    this.begin = 0;
    this.count = 0;
    this.values.clear();
  }

  /** Takes what is newer than all it has; the answer may overlap with the one before. */
  append(answer: History): void {
    const newest = this.newestOwn;
    const own = answer.own_last ?? answer.last;
    let from = 0;
    while (from < own.length && (own[from] ?? 0) <= newest) ++from;
    for (const name of Object.keys(answer.series)) this.seriesNamed(name);
    for (let i = from; i < answer.last.length; ++i) this.push(answer, i);
  }

  /** The optimizer's own count of the newest step. */
  get newestOwn(): number {
    return this.count > 0 ? this.ownAt(this.count - 1) : -Infinity;
  }

  private seriesNamed(name: string): void {
    if (this.values.has(name) || this.values.size >= MAX_SERIES) return;
    this.values.set(name, new Float64Array(RING_STEPS).fill(NaN));
  }

  private push(answer: History, i: number): void {
    const slot = (this.begin + this.count) % RING_STEPS;
    if (this.count < RING_STEPS) ++this.count;
    else this.begin = (this.begin + 1) % RING_STEPS;
    this.step[slot] = answer.last[i] ?? 0;
    this.own[slot] = (answer.own_last ?? answer.last)[i] ?? 0;
    this.time[slot] = answer.time[i] ?? NaN;
    for (const site of SITES) this.bad[site][slot] = answer.nonfinite[site]?.[i] ? 1 : 0;
    this.skip[slot] = answer.skipped[i] ? 1 : 0;
    for (const [name, values] of this.values) {
      values[slot] = answer.series[name]?.last[i] ?? NaN;
    }
  }

  private slot(i: number): number {
    return (this.begin + i) % RING_STEPS;
  }

  stepAt(i: number): number {
    return this.step[this.slot(i)] ?? NaN;
  }

  ownAt(i: number): number {
    return this.own[this.slot(i)] ?? NaN;
  }

  timeAt(i: number): number {
    return this.time[this.slot(i)] ?? NaN;
  }

  isBad(site: Site, i: number): boolean {
    return this.bad[site][this.slot(i)] === 1;
  }

  isSkipped(i: number): boolean {
    return this.skip[this.slot(i)] === 1;
  }

  valueAt(name: string, i: number): number | null {
    const value = this.values.get(name)?.[this.slot(i)];
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  /** Index of the first step at or after `step`. */
  indexOf(step: number): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stepAt(middle) < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
