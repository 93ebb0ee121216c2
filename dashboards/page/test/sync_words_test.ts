import assert from "node:assert/strict";
import { test } from "node:test";
import type { Syncs } from "../src/data/api";
import { coverageText, syncSentence } from "../src/words/sync_words";

const REASONS = ["gated", "switched_off", "no_cuda", "no_cupti", "no_driver", "taken", "refused",
  "yielded", "lost", "proton"];

function syncs(change: Partial<Syncs>): Syncs {
  return {
    source: "none", reason: "no_cuda", covered_seconds: 0, blind_seconds: 0, gaps: 0, steps: 0,
    whole_steps: 0, own_budget: 0, steps_over: { training: 0, gradvane: 0 }, ...change,
  };
}

test("if nothing is counted, each reason has words of its own", () => {
  const said = REASONS.map((reason) => syncSentence(syncs({ reason })));
  assert.equal(new Set(said).size, REASONS.length);
  for (const [i, sentence] of said.entries()) {
    assert.match(sentence, /^Host syncs are not counted: .+\.$/);
    assert.notEqual(sentence, `Host syncs are not counted: ${REASONS[i]}.`);
  }
});

test("what was counted before it stopped is shown with the reason and what is missing", () => {
  const stopped = syncs({
    reason: "yielded", totals: {}, covered_seconds: 2, blind_seconds: 2.5, gaps: 1,
  });
  assert.equal(syncSentence(stopped), "Host syncs are not counted any more: "
    + "a profiler has the one CUPTI subscription until it is done.");
  assert.equal(coverageText(stopped), "2 s were counted, 2.5 s were not, with 1 gap.");
  assert.equal(coverageText(syncs({ covered_seconds: 2, blind_seconds: 1 })),
    "2 s were counted, 1 s were not.");
  assert.equal(coverageText(syncs({ covered_seconds: 2 })), "");
});

test("who is in the way is named", () => {
  const sentence = syncSentence(syncs({ reason: "taken", detail: "nsys" }));
  assert.match(sentence, /this process \(nsys\)\.$/);
});
