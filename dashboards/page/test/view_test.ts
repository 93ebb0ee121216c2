import assert from "node:assert/strict";
import { test } from "node:test";
import { csvOf, fileName } from "../src/words/csv";
import { logScale } from "../src/heat/colour_scale";
import { stepTicks } from "../src/charts/ticks";
import { DEFAULT_VIEW, hashOf, tabLink, viewOf, type View } from "../src/view/view";

test("a view survives the way through the address", () => {
  const view: View = {
    ...DEFAULT_VIEW, tab: "layers", range: "500", zoom: { from: 3, to: 90 }, log: true,
    value: "update_ratio", rows: "params", group: "a & b", search: "q=1#x", sort: "numel",
    order: "asc", param: "layers.0.weight", incident: 7,
  };
  assert.deepEqual(viewOf(hashOf(view)), view);
  assert.equal(hashOf(DEFAULT_VIEW), "#/overview");
});

test("nonsense in the address is taken for the default", () => {
  const hashes = ["", "#", "#/", "#/nothing", "#/overview?from=9&to=3", "#?%%%",
    "#/overview?range=9&from=x&to=3&value=y&incident=-1"];
  for (const hash of hashes) {
    assert.deepEqual(viewOf(hash), DEFAULT_VIEW);
  }
});

test("another tab keeps the steps and leaves the rest", () => {
  const view = viewOf("#/layers?range=100&from=1&to=9&group=x&param=y");
  assert.equal(tabLink(view, "overview"), "#/overview?range=100&from=1&to=9");
});

test("a field is quoted where it must be", () => {
  assert.equal(csvOf(["a", "b"], [["x,y", 'say "no"'], [null, 1e-9]]),
    'a,b\r\n"x,y","say ""no"""\r\n,1e-9\r\n');
  assert.equal(fileName("my run/1", 3, "steps"), "my_run_1-rank3-steps.csv");
});

test("a scale covers all it is made for, with ticks within", () => {
  for (const [low, high] of [[1, 1], [1e-30, 1e20], [0.9, 1.1], [3e-7, 4e-2]] as const) {
    const scale = logScale(low, high);
    assert.ok(scale.shareOf(low) >= 0 && scale.shareOf(high) <= 1 + 1e-12);
    assert.ok(scale.ticks.length >= 2 && scale.ticks.length <= 6, String(scale.ticks));
    for (const tick of scale.ticks) {
      assert.ok(scale.shareOf(tick) >= -1e-6 && scale.shareOf(tick) <= 1 + 1e-6);
    }
  }
});

test("ticks are whole, round steps", () => {
  assert.deepEqual(stepTicks({ from: 1, to: 10 }, 5), [2, 4, 6, 8, 10]);
  assert.deepEqual(stepTicks({ from: 1, to: 3 }, 9), [1, 2, 3]);
  assert.deepEqual(stepTicks({ from: 0, to: 1_000_000 }, 4), [0, 500_000, 1_000_000]);
});
