import assert from "node:assert/strict";
import { test } from "node:test";
import { linesOf, specsFor } from "../src/charts/chart_specs";
import type { Column, History, Rank } from "../src/data/api";
import { badness, isHere, joinedRanks, worstFirst } from "../src/data/ranks";

function history(rank: number, first: number, loss: Column, bad: number[] = []): History {
  const steps = loss.map((_, i) => first + i);
  const none = steps.map((_, i) => bad[i] ?? 0);
  return {
    run: "r", rank, started: 0, resolution: "steps", optimizer: 0, steps_per_point: 1, since: 0, next: 0,
    first: steps, last: steps, time: steps, series: { loss: { last: loss } },
    nonfinite: { loss: none, grad: none, weight: none }, skipped: none,
  };
}

function rank(number: number, more: Partial<Rank> = {}): Rank {
  return {
    rank: number, url: `http://a/rank/${number}`, state: "running", pid: 1, started: 0, is_this: false,
    answers: true, nonfinite_steps: 0, open_incidents: [], ...more,
  };
}

test("the median, the lowest and the highest of the ranks, by step", () => {
  const points = joinedRanks([
    history(0, 1, [1, 1, 1]), history(1, 2, [3, 5, 7]), history(2, 2, [8, null, 2]),
  ]);
  assert.deepEqual(points.last, [1, 2, 3, 4]);
  assert.deepEqual(points.tracks.loss, {
    last: [1, 3, 3, 4.5], min: [1, 1, 1, 2], max: [1, 8, 5, 7],
  });
});

test("a step that is bad on one rank is bad", () => {
  const points = joinedRanks([history(0, 1, [1, 1, 1]), history(1, 1, [1, null, 1], [0, 1, 0])]);
  assert.deepEqual(points.bad.loss, [0, 1, 0]);
  assert.deepEqual(linesOf(specsFor(["loss"])[0]!, points)[0]?.last, [1, null, 1]);
});

test("no ranks are no points", () => {
  assert.deepEqual(joinedRanks([]).last, []);
});

test("the rank that someone should look at first comes first", () => {
  const ranks = [
    rank(0), rank(1, { open_incidents: ["loss_spike"] }), rank(2, { state: "stalled" }),
    rank(3, { answers: false }), rank(4, { open_incidents: ["sync_budget", "nonfinite_grad"] }),
    rank(5, { state: "failed" }), rank(6, { nonfinite_steps: 3 }), rank(7, { answers: false, state: "finished" }),
    rank(8, { open_incidents: ["a class of a later version"] }),
  ];
  assert.deepEqual(worstFirst(ranks).map((each) => each.rank), [5, 3, 2, 4, 1, 6, 8, 0, 7]);
  assert.equal(badness(rank(0)), 0);
});

test("a rank is here if it answers at the port of this one", () => {
  const here = { url: "http://node-7:9464/rank/1" } as Rank;
  assert.equal(isHere(here, "http://node-7:9464/rank/0"), true);
  assert.equal(isHere(here, "http://node-8:9464/rank/2"), false);
  assert.equal(isHere(here, "http://node-7:9464"), false);
  assert.equal(isHere(undefined, "http://node-7:9464/rank/0"), false);
});
