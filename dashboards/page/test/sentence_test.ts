import assert from "node:assert/strict";
import { test } from "node:test";
import type { Incident, Status } from "../src/data/api";
import { sentenceOf } from "../src/words/state_sentence";

const none = { nan: 0, pos_inf: 0, neg_inf: 0 };

function status(change: Partial<Status>): Status {
  return {
    run: "r", state: "running", steps: 9, skipped_steps: 0,
    nonfinite: {
      elements: { loss: none, grad: none, weight: none }, steps: { loss: 0, grad: 0, weight: 0 },
    },
    latest: { step: 600, run_step: 600, time: 1, agent_seconds: 0, nonfinite: {} },
    syncs: { source: "none", reason: "no_cuda" }, incidents_total: change.incidents?.length ?? 0,
    incidents: [], agent: { seconds: 0, of_step_seconds: 0, records_dropped: 0 },
    model: { params: 0, elements: 0, groups: [], optimizers: [] }, ...change,
  };
}

function incident(change: Partial<Incident>): Incident {
  return {
    id: 1, class: "nonfinite_grad", rank: 0, first_step: 512, last_step: 600, steps: 89,
    opened_at: 1, site: "grad", kind: "nan", param: "layers.3.attn.qkv.weight", evidence: "",
    ...change,
  };
}

test("each state has its sentence", () => {
  const nan = incident({});
  const over = incident({ closed_at: 2 });
  const spike = incident({ class: "loss_spike", first_step: 520 });
  const cost = incident({ class: "agent_cost", first_step: 3 });
  const cases: [Partial<Status>, string, string][] = [
    [{}, "good", "Healthy"],
    [{ state: "starting" }, "calm", "Starting: no step has been seen yet"],
    [{ incidents: [nan] }, "bad", "NaN since step 512 in the gradient of layers.3.attn.qkv.weight"],
    [{ incidents: [spike, cost, nan] }, "bad",
      "NaN since step 512 in the gradient of layers.3.attn.qkv.weight"],
    [{ incidents: [spike, cost] }, "bad", "Loss spike since step 520"],
    [{ incidents: [cost] }, "warn", "Gradvane costs more than it may since step 3"],
    [{ incidents: [over] }, "good", "Healthy; 1 past incident, at step 512"],
    [{ state: "stalled" }, "warn", "Stalled: no step has ended after step 600"],
    [{ state: "failed", reason: "out of memory", incidents: [nan] }, "bad",
      "Failed after step 600: out of memory, with NaN since step 512 in the gradient of "
      + "layers.3.attn.qkv.weight"],
    [{ state: "finished" }, "good", "Finished after step 600"],
    [{ state: "finished", incidents: [spike] }, "bad",
      "Finished after step 600, with loss spike since step 520"],
    [{ recording: "f" }, "calm", "Was training at the end"],
  ];
  for (const [change, tone, text] of cases) {
    assert.deepEqual(sentenceOf(status(change)), { tone, text });
  }
});

test("without detectors the latest step speaks for itself", () => {
  const bad = status({
    latest: {
      step: 9, run_step: 9, time: 1, agent_seconds: 0, nonfinite: { loss: { ...none, pos_inf: 1 } },
    },
  });
  bad.nonfinite.first = { run_step: 7, site: "loss", kind: "pos_inf" };
  assert.equal(sentenceOf(bad).text, "+Inf, first in step 7, in the loss");
});
