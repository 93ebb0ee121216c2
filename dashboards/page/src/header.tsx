// Which run, how it is, and how fresh that is.
import { useEffect, useState } from "preact/hooks";
import type { AgentData, Link } from "./data/agent_data";
import type { Status } from "./data/api";
import { clockText, countText, durationText, finite } from "./words/number_text";
import type { Sentence, Tone } from "./words/state_sentence";
import { ThemeSwitch } from "./view/theme_switch";

const MARKS: Record<Tone, string> = { good: "✓", warn: "!", bad: "✕", calm: "·" };

export function Header({ data, sentence }: { data: AgentData; sentence: Sentence | null }) {
  const { status } = data;
  const tone = sentence?.tone ?? "calm";
  return (
    <header>
      <a class="skip" href="#main" onClick={skipToMain}>Skip to the content</a>
      <div class="top-line">
        <span class="run">{status?.run ?? "Gradvane"}</span>
        {status && <RankText status={status} />}
        <span class="push" />
        <LinkState data={data} />
        <ThemeSwitch />
      </div>
      <div class={`state-line ${tone}`}>
        <span class="mark" aria-hidden="true">{MARKS[tone]}</span>
        <div>
          <h1 aria-live="polite">{sentence?.text ?? "Waiting for the first answer"}</h1>
          {status && <Facts data={data} status={status} />}
        </div>
      </div>
      {status?.recording && (
        <p class="banner recording">This is a recording: <code>{status.recording}</code></p>
      )}
      <LinkBanner data={data} />
    </header>
  );
}

/** The address' hash is the view; a skip link must leave it alone. */
function skipToMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function RankText({ status }: { status: Status }) {
  const size = status.process?.world_size ?? 1;
  if (status.rank === undefined || size <= 1) return null;
  return <span class="rank">rank {status.rank} of {countText(size)}</span>;
}

function useSeconds(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

function Facts({ data, status }: { data: AgentData; status: Status }) {
  const now = useSeconds();
  const { latest } = status;
  if (!latest) return null;
  const parts = [`step ${countText(latest.run_step)}`];
  const rate = stepsPerSecond(data);
  if (rate !== null) parts.push(`${rate.toPrecision(3)} steps/s`);
  const time = finite(latest.time);
  if (time !== null) parts.push(`last one ${clockText(time)}${ageText(data, status, now, time)}`);
  return <p class="facts">{parts.join(" · ")}</p>;
}

/** While it runs; below two seconds it is simply now. */
function ageText(data: AgentData, status: Status, now: number, time: number): string {
  const isOver = status.state === "finished" || status.state === "failed";
  if (isOver || data.link === "recording") return "";
  const age = now / 1000 - time;
  return age < 2 ? "" : `, ${durationText(Math.round(age))} ago`;
}

/** Over the last hundred exact steps. */
export function stepsPerSecond({ ring }: AgentData): number | null {
  const last = ring.length - 1;
  const first = Math.max(0, last - 99);
  if (last <= first) return null;
  const time = ring.timeAt(last) - ring.timeAt(first);
  return time > 0 ? (ring.ownAt(last) - ring.ownAt(first)) / time : null;
}

const LINK_WORDS: Record<Link, string> = {
  connecting: "Connecting",
  live: "Live",
  polling: "Live, every 2 s",
  lost: "Reconnecting",
  ended: "Ended",
  recording: "Recording",
};

function LinkState({ data }: { data: AgentData }) {
  return (
    <span class={`link-state ${data.link}`} data-link={data.link}>
      <i aria-hidden="true" />{LINK_WORDS[data.link]}
    </span>
  );
}

function LinkBanner({ data }: { data: AgentData }) {
  const words = {
    lost: "Trying again; below is the last that was seen.",
    ended: "The process has ended; this is the last that was seen.",
  };
  const text = data.link === "lost" || data.link === "ended" ? words[data.link] : "";
  return <div role="status">{text && <p class="banner">{text}</p>}</div>;
}
