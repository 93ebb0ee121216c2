// All that is known of the run, and who wants to hear when it changes.
import { useEffect, useState } from "preact/hooks";
import type { History, Status } from "./api";
import { sentenceOf, silentSentence, type Sentence } from "../words/state_sentence";
import { StepRing } from "./step_ring";
import { showInTab } from "../words/tab_title";

/** How the page gets its news. */
export type Link = "connecting" | "live" | "polling" | "lost" | "ended" | "recording";

const LEAST_MS_BETWEEN_REDRAWS = 250;

export class AgentData {
  status: Status | null = null;
  readonly ring = new StepRing();
  whole: History | null = null;
  link: Link = "connecting";
  /** Since when it is so, in ms. */
  linkSince = Date.now();
  /** Whose steps these are. */
  optimizer = 0;
  /** Counts runs: whatever was fetched in an earlier one is of no use. */
  epoch = 0;
  version = 0;

  private started = 0;
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private frame = 0;
  private drawn = 0;

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  setLink(link: Link): void {
    if (this.link === link) return;
    this.link = link;
    this.linkSince = Date.now();
    this.changed();
  }

  /** The state, or that it is not known any more. */
  get sentence(): Sentence | null {
    if (!this.status) return null;
    const sentence = sentenceOf(this.status);
    return this.link === "lost" ? silentSentence(sentence, this.linkSince / 1000) : sentence;
  }

  /** True where it tells of another run, or of the same one started anew. */
  isOtherRun(started: number): boolean {
    return this.started !== 0 && this.started !== started;
  }

  takeSteps(answer: History): void {
    this.started = answer.started;
    this.optimizer = answer.optimizer;
    this.ring.append(answer);
    this.changed();
  }

  takeWhole(answer: History): void {
    this.started = answer.started;
    this.whole = answer;
    this.changed();
  }

  takeStatus(status: Status): void {
    this.status = status;
    this.changed();
  }

  forget(): void {
    this.started = 0;
    this.ring.clear();
    this.whole = null;
    ++this.epoch;
    this.changed();
  }

  /** At most four redraws a second; none while nobody looks, since a hidden page gets no frames. */
  private changed(): void {
    ++this.version;
    // Not with the redraw: the title is read while the page is hidden.
    if (this.sentence) showInTab(this.sentence, this.status?.run);
    if (this.timer !== undefined || this.frame !== 0) return;
    const wait = Math.max(0, this.drawn + LEAST_MS_BETWEEN_REDRAWS - performance.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.drawn = performance.now();
        for (const listener of this.listeners) listener();
      });
    }, wait);
  }
}

/** Draws the component again when something is new. */
export function useAgentData(data: AgentData): AgentData {
  const [, setVersion] = useState(data.version);
  useEffect(() => {
    setVersion(data.version);
    return data.subscribe(() => setVersion(data.version));
  }, [data]);
  return data;
}
