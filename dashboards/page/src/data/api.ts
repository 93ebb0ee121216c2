// What the agent answers, as docs/api says it, and the one way to ask.
import type { TensorNumber } from "../words/numbers";

/** A number, or the word for one that JSON has not. */
export type Num = number | "nan" | "inf" | "-inf";
export type Site = "loss" | "grad" | "weight";
export type Kind = "nan" | "pos_inf" | "neg_inf";
export type RunState = "starting" | "running" | "stalled" | "finished" | "failed";

export interface Counts {
  nan: number;
  pos_inf: number;
  neg_inf: number;
}

export interface Dated {
  value: Num;
  run_step: number;
}

export interface Latest {
  optimizer: number;
  step: number;
  run_step: number;
  time: Num;
  loss?: Num;
  grad_norm?: Num;
  grad_norm_at_step?: Num;
  clip_coefficient?: Num;
  loss_scale?: Num;
  skipped?: string;
  lr?: Num | Num[];
  step_seconds?: Num;
  agent_seconds: Num;
  nonfinite: Partial<Record<Site, Counts>>;
}

/** Counts by result and by reason; those that are 0 are left out. */
export interface Governor {
  snapshots: Record<string, number>;
  rollbacks: Record<string, number>;
  snapshot_step?: number;
  snapshot_age_seconds?: number;
  older_snapshot_step?: number;
  older_snapshot_age_seconds?: number;
}

export interface FirstBad {
  run_step: number;
  site: Site;
  kind?: Kind;
  element?: number;
  param?: string;
}

export interface Appearance {
  site: Site;
  run_step: number;
  last_finite?: number;
  kind?: Kind;
  element?: number;
  param?: string;
  elements: Counts;
}

export interface TracedModule {
  name: string;
  type: string;
  direction: "forward" | "backward";
  at: "module" | "weight" | "input" | "loss";
  run_step: number;
  micro_step?: number;
}

export interface Incident {
  id: number;
  class: string;
  rank: number;
  first_step: number;
  last_step: number;
  steps: number;
  opened_at: Num;
  closed_at?: Num;
  param?: string;
  site?: Site;
  kind?: Kind;
  element?: number;
  reopened?: number;
  group?: string;
  began_in?: "forward" | "backward" | "update";
  micro_step?: number;
  last_good_step?: number;
  last_good_checkpoint?: number;
  order?: Appearance[];
  module?: TracedModule;
  evidence: string;
}

export interface Setting {
  key: string;
  value: string;
  source: string;
  /** When it changed while the run lasted, seconds since the epoch. */
  since?: number;
}

export interface Process {
  run_id: string;
  local_rank: number;
  world_size: number;
  host: string;
  pid: number;
  version: string;
  torch_version: string;
  start_time: Num;
  settings: Setting[];
}

export interface Status {
  run?: string;
  rank?: number;
  state: RunState;
  reason?: string;
  recording?: string;
  steps: number;
  skipped_steps: number;
  governor?: Governor;
  latest?: Latest;
  last_finite_loss?: Dated;
  weight_norm?: Dated;
  update_ratio?: Dated;
  process_resident_bytes?: Dated;
  device_allocated_bytes?: Dated;
  nonfinite: {
    elements: Record<Site, Counts>;
    steps: Record<Site, number>;
    first?: FirstBad;
  };
  syncs: { source: string; reason: string; in_latest_step?: number };
  incidents_total: number;
  incidents: Incident[];
  agent: { seconds: number; of_step_seconds: number; records_dropped: number };
  model: { params: number; elements: number; groups: string[]; optimizers: string[] };
  /** Indices of those whose steps are kept. */
  optimizers: number[];
  process?: Process;
}

export type Column = (number | null)[];

export interface Track {
  last: Column;
  min?: Column;
  max?: Column;
}

export interface History {
  run: string;
  rank: number;
  started: number;
  resolution: "steps" | "run";
  optimizer: number;
  steps_per_point: number;
  since: number;
  next: number;
  first: number[];
  last: number[];
  /** The optimizer's own count of the steps, where it is not that of the run. */
  own_first?: number[];
  own_last?: number[];
  time: number[];
  series: Record<string, Track>;
  nonfinite: Record<Site, number[]>;
  skipped: number[];
}

export interface HeatMap {
  run: string;
  rank: number;
  started: number;
  rows: "groups" | "params";
  value: string;
  steps_per_point: number;
  since: number;
  next: number;
  first: number[];
  last: number[];
  time: number[];
  total: number;
  matched: number;
  names: string[];
  values: Column[];
  nonfinite: [row: number, point: number, steps: number][];
}

type TensorKey = Exclude<TensorNumber["tensor_key"], "">;
export type Tensor = { [key in TensorKey]?: Num } & {
  run_step: number;
  numel: number;
  nonfinite: Counts;
};

export interface Param {
  index: number;
  name: string;
  aliases?: string[];
  group?: string;
  shape: number[];
  numel: number;
  dtype: string;
  device: string;
  requires_grad: boolean;
  state: string;
  grad?: Tensor;
  weight?: Tensor;
  update_ratio?: Dated;
  nonfinite_steps: number;
  first_nonfinite?: {
    run_step: number;
    site: Site;
    kind?: Kind;
    element?: number;
    position?: number[];
  };
}

export interface Params {
  run_step: number;
  total: number;
  matched: number;
  params: Param[];
}

export interface ParamHistory {
  started: number;
  param: Param;
  steps_per_point: number;
  first: number[];
  last: number[];
  time: number[];
  series: Record<string, Column>;
  nonfinite: number[];
}

export interface Tally {
  calls: number;
  seconds: Num;
}

export interface SyncSite {
  id: number;
  kind: string;
  origin: "training" | "gradvane" | "profiler";
  phase?: string;
  location: string;
  file?: string;
  line?: number;
  function?: string;
  stack: string[];
  thread: string;
  calls: number;
  calls_in_steps: number;
  calls_per_step?: Num;
  seconds: Num;
  max_seconds: Num;
}

export interface Syncs {
  source: string;
  reason: string;
  detail?: string;
  covered_seconds: Num;
  blind_seconds: Num;
  gaps: number;
  steps: number;
  whole_steps: number;
  budget?: number;
  own_budget: number;
  steps_over: { training: number; gradvane: number };
  most_in_step?: { calls: number; run_step: number };
  totals?: Record<string, Record<string, Tally>>;
  parts?: Record<"in_steps" | "start_up" | "between_steps" | "other_threads", Tally>;
  by_phase?: Record<string, Tally>;
  polls?: Record<string, Tally>;
  sites?: SyncSite[];
}

export interface Rank {
  rank: number;
  url: string;
  state: string;
  pid: number;
  started: number;
  is_this: boolean;
  /** Only where ranks share a port: what follows is there if it is true. */
  answers?: boolean;
  steps?: number;
  run_step?: number;
  time?: Num;
  loss?: Num;
  grad_norm?: Num;
  step_seconds?: Num;
  rank_wait_seconds?: Num;
  nonfinite_steps?: number;
  incidents_total?: number;
  open_incidents?: string[];
}

export interface Ranks {
  run: string;
  rank: number;
  world_size: number;
  ranks: Rank[];
}

/** The server answered, and said no: `message` is for a person. */
export class Refusal extends Error {
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

type Query = Record<string, string | number | undefined>;

export function addressOf(path: string, query: Query = {}): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") words.set(key, String(value));
  }
  const text = words.toString();
  return `api/v1/${path}${text ? `?${text}` : ""}`;
}

/**
 * Without an answer in ten seconds it gives up, as it does where `signal` says so.
 * `of`: address of another rank's page.
 */
export async function ask<T>(
  path: string, query: Query = {}, signal?: AbortSignal, of = "",
): Promise<T> {
  const patience = AbortSignal.timeout(10_000);
  const until = signal ? AbortSignal.any([signal, patience]) : patience;
  const answer = await fetch(of + addressOf(path, query), { signal: until, cache: "no-store" });
  if (answer.ok) return (await answer.json()) as T;
  const said = (await answer.json().catch(() => ({}))) as { error?: string };
  throw new Refusal(answer.status, said.error ?? `${answer.status} ${answer.statusText}`);
}
