// The plain page, made by the server, writes the same: tests/exporters/page/same_text_test.cpp has
// the same cases.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Incident, Num, Status } from "../src/data/api";
import { classText, isMild, openFirst, sinceText, stepsText } from "../src/words/incident_words";
import { countText, durationText, numberText, plural, timeText } from "../src/words/number_text";
import { sentenceOf } from "../src/words/state_sentence";
import same from "./same_text.json";

const none = { nan: 0, pos_inf: 0, neg_inf: 0 };
const incidents: Record<string, object> = same.incidents;

function incident(name: string): Incident {
  return { rank: 0, opened_at: 1, evidence: "", ...incidents[name] } as Incident;
}

interface Change {
  state: Status["state"];
  reason?: string;
  recording?: string;
  incidents?: string[];
  /** The site that was not finite in the latest step. */
  bad?: string;
  first?: Status["nonfinite"]["first"];
}

function status({ incidents = [], bad, first, ...change }: Change): Status {
  const nonfinite = bad ? { [bad]: { ...none, pos_inf: 1 } } : {};
  return {
    run: "r", steps: 9, skipped_steps: 0,
    nonfinite: {
      elements: { loss: none, grad: none, weight: none }, steps: { loss: 0, grad: 0, weight: 0 },
      ...(first && { first }),
    },
    latest: { optimizer: 0, step: 600, run_step: 600, time: 1, agent_seconds: 0, nonfinite },
    syncs: { source: "none", reason: "no_cuda" }, incidents_total: incidents.length,
    incidents: incidents.map(incident),
    agent: { seconds: 0, of_step_seconds: 0, records_dropped: 0 },
    model: { params: 0, elements: 0, groups: [], optimizers: [] }, optimizers: [], ...change,
  };
}

test("numbers, counts, ages and times", () => {
  for (const [value, text] of same.numbers) assert.equal(numberText(value as Num | null), text);
  for (const [value, text] of same.counts) assert.equal(countText(value as number), text);
  for (const [value, text] of same.plurals) assert.equal(plural(value as number, "step"), text);
  for (const [value, text] of same.ages) assert.equal(durationText(value as number), text);
  for (const [value, text] of same.times) assert.equal(timeText(value as Num), text);
});

test("incidents", () => {
  for (const [name, text] of Object.entries(same.incident_classes)) {
    assert.equal(classText(name), text);
    assert.equal(isMild({ class: name } as Incident), same.mild.includes(name), name);
  }
  for (const [name, text] of same.since) assert.equal(sinceText(incident(name!)), text);
  for (const [name, text] of same.steps) assert.equal(stepsText(incident(name!)), text);
  for (const [before, after] of same.orders) {
    assert.deepEqual(openFirst(before!.map(incident)), after!.map(incident));
  }
});

test("each state has its sentence", () => {
  for (const [change, tone, text] of same.sentences) {
    assert.deepEqual(sentenceOf(status(change as Change)), { tone, text });
  }
});
