import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_SERIES, RING_STEPS, StepRing } from "../src/data/step_ring";
import { steps } from "./steps";

test("the newest steps stay, the oldest go, and the memory is the same", () => {
  const ring = new StepRing();
  for (let from = 1; from <= 20_000; from += 100) ring.append(steps(from, from + 99));
  assert.equal(ring.length, RING_STEPS);
  assert.equal(ring.stepAt(0), 20_000 - RING_STEPS + 1);
  assert.equal(ring.stepAt(RING_STEPS - 1), 20_000);
  assert.equal(ring.valueAt("loss", ring.indexOf(19_999)), null);
  assert.equal(ring.valueAt("loss", ring.indexOf(20_000)), 20_000);
});

test("steps that come twice are taken once", () => {
  const ring = new StepRing();
  ring.append(steps(1, 50));
  ring.append(steps(40, 60));
  assert.equal(ring.length, 60);
  assert.equal(ring.stepAt(59), 60);
});

test("a series that begins late was not measured before", () => {
  const ring = new StepRing();
  ring.append(steps(1, 5));
  ring.append(steps(6, 7, { series: { loss: { last: [1, 2] }, lr: { last: [3, 4] } } }));
  assert.deepEqual([0, 4, 5, 6].map((i) => ring.valueAt("lr", i)), [null, null, 3, 4]);
  ring.append(steps(8, 8, { series: {} }));
  assert.equal(ring.valueAt("loss", 7), null);
});

test("a loop that logs ever new names does not fill the memory", () => {
  const ring = new StepRing();
  for (let i = 1; i <= 500; ++i) {
    ring.append(steps(i, i, { series: { [`user.${i}`]: { last: [1] } } }));
  }
  assert.equal(ring.names.length, MAX_SERIES);
});

test("the index of a step is that of the next one there is", () => {
  const ring = new StepRing();
  ring.append(steps(10, 12));
  ring.append(steps(20, 22));
  assert.deepEqual([1, 10, 12, 13, 20, 22, 23].map((step) => ring.indexOf(step)),
    [0, 0, 2, 3, 3, 5, 6]);
});
