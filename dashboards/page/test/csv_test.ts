import assert from "node:assert/strict";
import { test } from "node:test";
import { csvOf } from "../src/words/csv";

test("cells are quoted where a comma, a quote or a line feed stands in them", () => {
  assert.equal(csvOf(["a", "b"], [["x,y", 'say "no"'], ["two\nlines", undefined], [1.5, null]]),
    'a,b\r\n"x,y","say ""no"""\r\n"two\nlines",\r\n1.5,\r\n');
});

test("a name that a spreadsheet would take for a formula is text", () => {
  for (const name of ["=HYPERLINK(0)", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\tx"]) {
    assert.equal(csvOf(["name"], [[name]]).split("\r\n")[1]?.replace(/^"/, ""), `'${name}`);
  }
});

test("numbers stay numbers", () => {
  assert.equal(csvOf(["n"], [[-1], ["-1"], ["+2.5e-3"], ["-"]]), "n\r\n-1\r\n-1\r\n+2.5e-3\r\n'-\r\n");
});
