// Answers of /api/v1/history, made up.
import type { History } from "../src/data/api";

export function steps(from: number, to: number, change: Partial<History> = {}): History {
  const last = Array.from({ length: to - from + 1 }, (_, i) => from + i);
  const none = last.map(() => 0);
  return {
    run: "r", rank: 0, started: 1, resolution: "steps", optimizer: 0, steps_per_point: 1,
    since: from - 1, next: to,
    first: last, last, time: last.map((step) => step / 10),
    series: { loss: { last: last.map((step) => (step % 7 === 0 ? null : step)) } },
    nonfinite: { loss: none, grad: none, weight: none }, skipped: none, ...change,
  };
}
