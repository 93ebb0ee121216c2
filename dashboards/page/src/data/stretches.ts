// Stretches of steps that were not finite.
import type { Column } from "./api";

export interface Stretch {
  from: number;
  to: number;
}

/**
 * Neighbouring points that are bad make one stretch; so do those between which nothing was
 * measured: weights are read in every fiftieth step only.
 */
export function stretchesOf(
  bad: number[], first: number[], last: number[], values?: Column,
): Stretch[] {
  const stretches: Stretch[] = [];
  let isUnbroken = false;
  bad.forEach((steps, i) => {
    if (steps <= 0) {
      if (!values || (values[i] ?? null) !== null) isUnbroken = false;
      return;
    }
    const from = (first[i] ?? 0) - 0.5;
    const to = (last[i] ?? 0) + 0.5;
    const before = stretches.at(-1);
    if (before && isUnbroken) before.to = to;
    else stretches.push({ from, to });
    isUnbroken = true;
  });
  return stretches;
}
