import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesText, countText, durationText, kindText, numberText, percentText }
  from "../src/words/number_text";

test("a number has four digits, and an exponent only where it needs one", () => {
  const cases: [number, string][] = [
    [0, "0"], [1, "1"], [0.1, "0.1"], [2.54949, "2.549"], [-3.5, "−3.5"], [1234.5, "1,235"],
    [999400, "999,400"], [1e6, "1e6"], [0.0001, "0.0001"], [0.00001234, "1.234e−5"],
    [1.5e-45, "1.5e−45"], [-2.5e10, "−2.5e10"], [0.99999, "1"],
  ];
  for (const [value, text] of cases) assert.equal(numberText(value), text);
});

test("what is not finite is named, and what was not measured is a dash", () => {
  assert.equal(numberText("nan"), "NaN");
  assert.equal(numberText("inf"), "+Inf");
  assert.equal(numberText("-inf"), "−Inf");
  assert.equal(numberText(NaN), "NaN");
  assert.equal(numberText(undefined), "–");
  assert.equal(percentText("nan"), "NaN");
  assert.equal(percentText(null), "–");
  assert.equal(durationText("nan"), "–");
  assert.equal(kindText(undefined), "NaN or Inf");
});

test("counts, shares, durations and bytes are written for people", () => {
  assert.equal(countText(1234567), "1,234,567");
  assert.equal(percentText(0.02796), "2.796 %");
  assert.equal(durationText(0.0124), "12.4 ms");
  assert.equal(durationText(59.97), "1 min 0 s");
  assert.equal(durationText(3700), "1 h 1 min");
  assert.equal(durationText(3 * 86_400), "3 d 0 h");
  assert.equal(bytesText(1.5 * 2 ** 30), "1.5 GiB");
});
