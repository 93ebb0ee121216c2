// Host syncs in words.
import type { Syncs } from "../data/api";
import { durationText, finite, plural } from "./number_text";

const KINDS: Record<string, string> = {
  device: "the whole device",
  stream: "a stream",
  event: "an event",
  memcpy: "a blocking copy",
  d2h_read: "a value read from the device",
  async_copy_blocked: "an asynchronous copy that blocked",
  alloc_free: "an allocation or a release",
  module_load: "code being loaded",
  rejected_in_capture: "nothing: refused during a capture",
};

const REASONS: Record<string, string> = {
  counting: "nothing is in the way",
  gated: "PyTorch’s profiler leaves the one CUPTI subscription to Gradvane",
  switched_off: "counting is switched off",
  no_cuda: "this process has not loaded the CUDA driver",
  no_cupti: "there is no libcupti to count them with",
  no_driver: "libcupti finds no driver",
  taken: "another tool has the one CUPTI subscription of this process",
  refused: "the driver refuses it (confidential computing, a virtual GPU, WSL)",
  yielded: "a profiler has the one CUPTI subscription until it is done",
  lost: "CUPTI does not call Gradvane back any more",
  proton: "Triton’s Proton is loaded, and could not start if they were counted",
};

export const ORIGINS: Record<string, string> = {
  training: "the training", gradvane: "Gradvane", profiler: "a profiler",
};

export function kindWords(kind: string): string {
  return KINDS[kind] ?? kind;
}

export function syncSentence(syncs: Syncs): string {
  const isCounting = syncs.source === "cupti" || syncs.source === "shared";
  const detail = syncs.detail ? ` (${syncs.detail})` : "";
  const why = REASONS[syncs.reason] ?? syncs.reason;
  if (isCounting) {
    return `Host syncs are counted${syncs.reason === "counting" ? "" : `: ${why}`}${detail}.`;
  }
  return `Host syncs are not counted${syncs.totals ? " any more" : ""}: ${why}${detail}.`;
}

/** How much of the time was counted; empty if all of it was. */
export function coverageText({ blind_seconds: blind, covered_seconds: covered, gaps }: Syncs): string {
  if (!((finite(blind) ?? 0) > 0)) return "";
  const where = gaps > 0 ? `, with ${plural(gaps, "gap")}` : "";
  return `${durationText(covered)} were counted, ${durationText(blind)} were not${where}.`;
}
