// Keeps the data fresh: by server-sent events, by polling where there are none, and by trying again
// where nothing answers. A recording is read once.
import type { AgentData } from "./agent_data";
import { addressOf, ask, type History, type Status } from "./api";
import { joined } from "./points";
import { RING_STEPS } from "./step_ring";

const POLL_MS = 2_000;
const RETRY_EVENTS_MS = 30_000;
const FAILURES_BEFORE_POLLING = 3;
/** Reading all steps again, where some were left out, is not done more often than this. */
const REFILL_MS = 5_000;
/** How often a page that is not looked at asks for the state. */
const HIDDEN_MS = 10_000;
const SILENCE_MS = 20_000;

export class Live {
  private events: EventSource | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private eventsTriedAt = 0;
  private refilledAt = 0;
  private loadedAt = 0;
  private heardAt = 0;
  private identity = "";
  /** Where the answers so far end; not a step: a resumed run does not begin with the first. */
  private cursor = 0;
  private loading = false;

  /** @param optimizer  whose steps; null: of the one that leads the run */
  constructor(private readonly data: AgentData, private optimizer: number | null) {}

  choose(optimizer: number | null): void {
    if (optimizer === this.optimizer) return;
    this.optimizer = optimizer;
    this.identity = "";
    void this.load();
  }

  private get whose(): { optimizer: number | undefined } {
    return { optimizer: this.optimizer ?? undefined };
  }

  /** Unless told, the state would be of whichever stepped last. */
  private askStatus(): Promise<Status> {
    const known = this.data.ring.length > 0 ? this.data.optimizer : undefined;
    return ask<Status>("status", { optimizer: this.optimizer ?? known });
  }

  /** Asked for before another one was chosen, or began to lead; then all is asked for anew. */
  private isOfAnother(answer: History): boolean {
    const { ring, optimizer } = this.data;
    const known = ring.length > 0 ? optimizer : answer.optimizer;
    return answer.optimizer !== (this.optimizer ?? known);
  }

  /** Not at once where one leads after another in quick turns. */
  private loadAnother(): void {
    if (Date.now() - this.loadedAt > REFILL_MS) void this.load();
  }

  private askHistory(query: Record<string, string | number>): Promise<History> {
    return ask<History>("history", { ...query, ...this.whose });
  }

  start(): void {
    document.addEventListener("visibilitychange", () => this.onVisibility());
    setInterval(() => this.checkSilence(), SILENCE_MS);
    void this.load();
  }

  /**
   * A browser has six connections to a server, and each stream takes one for good; so a page that
   * nobody looks at gives its own back, and asks now and then for what its tab's title says.
   */
  private onVisibility(): void {
    const { link, status } = this.data;
    if (!status || link === "recording") return;
    if (!document.hidden) void this.retry();
    else if (link === "live" || link === "polling") this.rest();
  }

  private rest(): void {
    this.closeEvents();
    this.again(() => void this.glance(), HIDDEN_MS);
  }

  private async glance(): Promise<void> {
    const status = await this.askStatus().catch(() => null);
    if (!document.hidden) return;
    if (status && identityOf(status) === this.identity) this.data.takeStatus(status);
    this.rest();
  }

  /** A stalled run is silent, and so is a connection that was cut without a word. */
  private checkSilence(): void {
    if (!this.events || this.data.link !== "live" || Date.now() - this.heardAt < SILENCE_MS) return;
    this.askStatus().then((status) => {
      this.onStatus(status);
      const hasMissed = (status.latest?.run_step ?? 0) > this.newest;
      if (hasMissed && this.events) this.listen();
    }, () => {
      this.closeEvents();
      this.failed();
    });
  }

  /** Everything anew. */
  private async load(): Promise<void> {
    if (this.loading) return;
    this.loading = true;
    this.loadedAt = Date.now();
    const { optimizer } = this;
    this.closeEvents();
    try {
      // What led the run before may be gone.
      const [status, steps, whole] = await Promise.all([
        ask<Status>("status", this.whose),
        this.askHistory({ resolution: "steps", limit: RING_STEPS }),
        this.askHistory({ resolution: "run" }),
      ]);
      // Unless asked, it is of whichever stepped last.
      const isItsOwn = !status.latest || status.latest.optimizer === steps.optimizer;
      const own = isItsOwn ? status
        : await ask<Status>("status", { optimizer: steps.optimizer });
      this.data.forget();
      this.identity = identityOf(status);
      this.data.takeStatus(own);
      this.data.takeWhole(whole);
      this.data.takeSteps(steps);
      this.cursor = steps.next;
      this.failures = 0;
      if (status.recording) this.data.setLink("recording");
      else this.listen();
    } catch {
      this.failed();
    } finally {
      this.loading = false;
    }
    if (optimizer !== this.optimizer) void this.load();
  }

  private get newest(): number {
    const { ring } = this.data;
    return ring.length > 0 ? ring.stepAt(ring.length - 1) : 0;
  }

  private listen(): void {
    this.closeEvents();
    if (document.hidden) return this.rest();
    this.eventsTriedAt = Date.now();
    const events = new EventSource(addressOf("events", { since: this.cursor, ...this.whose }));
    this.events = events;
    events.onopen = () => {
      this.failures = 0;
      this.heardAt = Date.now();
      this.data.setLink("live");
    };
    events.addEventListener("status", (event) => this.onStatus(JSON.parse(event.data as string)));
    events.addEventListener("steps", (event) => this.onSteps(JSON.parse(event.data as string)));
    events.onerror = () => {
      // Closed for good is an answer that is no stream, as 503 is; the browser does not say which.
      const isRefused = events.readyState === EventSource.CLOSED;
      this.closeEvents();
      this.failures = isRefused ? FAILURES_BEFORE_POLLING : this.failures + 1;
      if (this.failures >= FAILURES_BEFORE_POLLING) void this.poll();
      else this.failed();
    };
  }

  private closeEvents(): void {
    clearTimeout(this.timer);
    this.events?.close();
    this.events = null;
  }

  private onStatus(status: Status): void {
    this.heardAt = Date.now();
    if (identityOf(status) !== this.identity) void this.load();
    else this.data.takeStatus(status);
  }

  private onSteps(answer: History): void {
    this.heardAt = Date.now();
    if (this.data.isOtherRun(answer.started)) return void this.load();
    if (this.isOfAnother(answer)) return this.loadAnother();
    const start = (answer.own_first ?? answer.first)[0];
    const isGap = start !== undefined && this.newest > 0 && start > this.data.ring.newestOwn + 1;
    this.data.takeSteps(answer);
    this.cursor = answer.next;
    if (isGap && Date.now() - this.refilledAt > REFILL_MS) void this.refill();
  }

  /** A viewer that could not keep up, or slept, was sent the newest steps only. */
  private async refill(): Promise<void> {
    this.refilledAt = Date.now();
    const { epoch } = this.data;
    const all = await this.askHistory({ resolution: "steps", limit: RING_STEPS })
      .catch(() => null);
    if (!all || epoch !== this.data.epoch || this.isOfAnother(all)) return;
    this.data.ring.clear();
    this.data.takeSteps(all);
    this.cursor = all.next;
  }

  private async poll(): Promise<void> {
    try {
      const status = await this.askStatus();
      if (identityOf(status) !== this.identity) return void this.load();
      this.data.takeStatus(status);
      this.onSteps(await this.askHistory({ resolution: "steps", since: this.cursor }));
      const wasAway = this.data.link === "lost" || this.data.link === "ended";
      this.data.setLink("polling");
      if (wasAway || Date.now() - this.eventsTriedAt > RETRY_EVENTS_MS) return this.listen();
    } catch {
      return this.failed();
    }
    this.again(() => void this.poll());
  }

  /** No answer. After a run that has ended that is as it should be; but another may come. */
  private failed(): void {
    const state = this.data.status?.state;
    const isOver = state === "finished" || state === "failed";
    if (this.data.link !== "connecting" || this.data.status) {
      this.data.setLink(isOver ? "ended" : "lost");
    }
    this.again(() => void this.retry());
  }

  /** Looks who is there before it listens: it may be another run. */
  private async retry(): Promise<void> {
    if (!this.data.status) return this.load();
    if (this.failures >= FAILURES_BEFORE_POLLING) return this.poll();
    try {
      const status = await this.askStatus();
      if (identityOf(status) !== this.identity) return void this.load();
      this.data.takeStatus(status);
      this.listen();
    } catch {
      this.failed();
    }
  }

  private again(what: () => void, afterMs = POLL_MS): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(what, afterMs);
  }

  /** The whole run's points, of which only the newest have changed. */
  async refreshWhole(): Promise<void> {
    const { whole, epoch } = this.data;
    const since = whole?.next ?? 0;
    const more = await this.askHistory({ resolution: "run", since }).catch(() => null);
    if (!more || epoch !== this.data.epoch) return;
    if (this.data.isOtherRun(more.started)) return void this.load();
    if (this.isOfAnother(more)) return this.loadAnother();
    const both = whole ? joined(whole, more) : more;
    if (both) return this.data.takeWhole(both);
    const all = await this.askHistory({ resolution: "run" }).catch(() => null);
    if (all && epoch === this.data.epoch) this.data.takeWhole(all);
  }
}

function identityOf(status: Status): string {
  return [status.run, status.process?.pid, status.process?.start_time].join(" ");
}
