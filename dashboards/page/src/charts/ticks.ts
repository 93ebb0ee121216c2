// Round steps for an axis.
import type { Window } from "../data/points";

export function stepTicks({ from, to }: Window, atMost: number): number[] {
  const rough = Math.max(1, (to - from) / atMost);
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 1);
  const ticks: number[] = [];
  for (let step = Math.ceil(from / every) * every; step <= to; step += every) ticks.push(step);
  return ticks;
}
