import assert from "node:assert/strict";
import { test } from "node:test";
import { stretchesOf } from "../src/data/stretches";
import { linesOf, specsFor } from "../src/charts/chart_specs";
import { extentOf, isGap, joined, pointsIn, windowOf } from "../src/data/points";
import { StepRing } from "../src/data/step_ring";
import { steps } from "./steps";

function ringOf(...batches: Parameters<typeof steps>[]): StepRing {
  const ring = new StepRing();
  for (const batch of batches) ring.append(steps(...batch));
  return ring;
}

test("a gap in the steps breaks the line", () => {
  const points = pointsIn(ringOf([1, 3], [10, 12]), null, { from: 1, to: 12 });
  assert.deepEqual(points.last, [1, 2, 3, 6.5, 10, 11, 12]);
  assert.ok(isGap(points, 3));
  const [line] = linesOf(specsFor(["loss"])[0]!, points);
  assert.deepEqual(line?.last, [1, 2, 3, null, 10, 11, 12]);
});

test("what was not measured is bridged, but never next to what was not finite", () => {
  const bad = [0, 0, 0, 0, 1, 0, 0, 0, 0];
  const loss = [1, null, 3, null, null, null, 7, null, 9];
  const ring = ringOf([1, 9, {
    series: { loss: { last: loss } }, nonfinite: { loss: bad, grad: bad, weight: bad },
  }]);
  const points = pointsIn(ring, null, { from: 1, to: 9 });
  const [line] = linesOf(specsFor(["loss"])[0]!, points);
  assert.deepEqual(line?.last, [1, undefined, 3, null, null, null, 7, undefined, 9]);
});

test("bad readings with nothing measured between them are one stretch", () => {
  const at = [1, 2, 3, 4, 5];
  assert.deepEqual(stretchesOf([1, 0, 1, 0, 0], at, at, [null, null, null, null, 5]),
    [{ from: 0.5, to: 3.5 }]);
  assert.deepEqual(stretchesOf([1, 0, 1, 0, 0], at, at, [null, 2, null, null, 5]),
    [{ from: 0.5, to: 1.5 }, { from: 2.5, to: 3.5 }]);
  assert.deepEqual(stretchesOf([0, 1, 1, 0, 0], at, at), [{ from: 1.5, to: 3.5 }]);
});

test("exact steps are shown where they reach back far enough, else those of the whole run", () => {
  const ring = ringOf([901, 1000]);
  const whole = steps(1, 4, {
    resolution: "run", steps_per_point: 250,
    first: [1, 251, 501, 751], last: [250, 500, 750, 1000],
    series: { loss: { last: [4, 3, 2, 1], min: [3, 2, 1, 0], max: [5, 4, 3, 2] } },
  });
  const extent = extentOf(ring, whole)!;
  assert.deepEqual(extent, { from: 1, to: 1000 });
  const recent = windowOf({ range: "100", zoom: null }, extent);
  assert.deepEqual(recent, { from: 901, to: 1000 });
  assert.equal(pointsIn(ring, whole, recent).exact, true);
  const all = pointsIn(ring, whole, windowOf({ range: "run", zoom: null }, extent));
  assert.equal(all.exact, false);
  assert.deepEqual(all.tracks["loss"]?.max, [5, 4, 3, 2]);
});

test("of several optimizers the speed is that of one's own steps, and none across a gap", () => {
  const ring = ringOf([1, 3], [7, 8]);
  const points = pointsIn(ring, null, { from: 1, to: 8 });
  const [speed] = specsFor(["step_seconds"], true);
  assert.deepEqual(linesOf(speed!, points)[0]?.last.map((rate) => rate && Math.round(rate)),
    [undefined, 10, 10, null, undefined, 10]);
  assert.equal(specsFor(["step_seconds"])[0]?.isFromTimes, false);
});

test("an optimizer that steps in every fifth step of the run has a line of its own", () => {
  const ring = new StepRing();
  const every = (own: number[]) => steps(1, own.length, {
    first: own.map((i) => 5 * i), last: own.map((i) => 5 * i), own_first: own, own_last: own,
    time: own, series: { loss: { last: own } },
  });
  ring.append(every([1, 2, 3, 5]));
  const points = pointsIn(ring, null, { from: 1, to: 100 });
  assert.deepEqual(points.last, [5, 10, 15, 20, 25]);
  assert.deepEqual(points.tracks["loss"]?.last, [1, 2, 3, null, 5]);
});

test("steps of an optimizer within one step of the run are all kept, in whichever answer", () => {
  const ring = new StepRing();
  const five = (from: number, to: number) => {
    const own = Array.from({ length: to - from + 1 }, (_, i) => from + i);
    const last = own.map((i) => Math.ceil(i / 5));
    return steps(1, own.length, {
      first: last, last, own_first: own, own_last: own, time: own, series: { loss: { last: own } },
    });
  };
  ring.append(five(1, 7));
  ring.append(five(6, 12));
  assert.deepEqual(Array.from({ length: ring.length }, (_, i) => ring.ownAt(i)),
    Array.from({ length: 12 }, (_, i) => i + 1));
});

test("newer points of the whole run take the place of those they cover", () => {
  const track = (values: number[]) => ({ loss: { last: values, min: values, max: values } });
  const whole = steps(1, 3, {
    steps_per_point: 2, first: [1, 3, 5], last: [2, 4, 5], series: track([1, 2, 3]),
  });
  const more = steps(1, 2, {
    steps_per_point: 2, first: [5, 7], last: [6, 7], series: track([30, 40]),
  });
  const both = joined(whole, more)!;
  assert.deepEqual(both.last, [2, 4, 6, 7]);
  assert.deepEqual(both.series["loss"]?.min, [1, 2, 30, 40]);
  assert.equal(joined(whole, { ...more, steps_per_point: 4 }), null);
  assert.equal(joined(whole, { ...more, started: 2 }), null);
});
