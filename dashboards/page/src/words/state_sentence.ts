// The state of the run in one sentence: the first thing that is seen, on the plain page too.
import type { Incident, Status } from "../data/api";
import { isMild, isNonfinite, isOpen, placeText, sinceText } from "./incident_words";
import { clockText, countText, kindText, plural } from "./number_text";

export type Tone = "good" | "warn" | "bad" | "calm";

export interface Sentence {
  tone: Tone;
  text: string;
}

export function sentenceOf(status: Status): Sentence {
  const worst = worstOpen(status.incidents);
  const trouble = worst ? sinceText(worst) : unjudgedText(status);
  const tone = trouble ? (worst && isMild(worst) ? "warn" : "bad") : "good";
  const step = status.latest ? ` after step ${countText(status.latest.run_step)}` : "";
  switch (status.state) {
    case "starting":
      return { tone: "calm", text: "Starting: no step has been seen yet" };
    case "stalled":
      return trouble && worst?.class !== "stalled"
        ? { tone: "bad", text: `Stalled${step}, with ${lowered(trouble)}` }
        : { tone: "warn", text: `Stalled: no step has ended${step}` };
    case "failed": {
      const why = status.reason ? `: ${status.reason}` : "";
      const with_ = trouble ? `, with ${lowered(trouble)}` : "";
      return { tone: "bad", text: `Failed${step}${why}${with_}` };
    }
    case "finished":
      return trouble
        ? { tone, text: `Finished${step}, with ${lowered(trouble)}` }
        : { tone: "good", text: `Finished${step}${pastOf(status)}` };
    case "running":
      if (trouble) return { tone, text: trouble };
      if (status.recording) {
        return { tone: "calm", text: `Was training at the end${pastOf(status)}` };
      }
      return { tone: "good", text: `Healthy${pastOf(status)}` };
  }
}

/** While nobody answers: what was seen last may be true no more. */
export function silentSentence({ text }: Sentence, since: number): Sentence {
  return { tone: "warn", text: `No answer since ${clockText(since)}; last seen: ${lowered(text)}` };
}

/** Where no detector is at work, the latest step speaks for itself. */
function unjudgedText(status: Status): string {
  const bad = Object.values(status.latest?.nonfinite ?? {})
    .some(({ nan, pos_inf, neg_inf }) => nan + pos_inf + neg_inf > 0);
  const { first } = status.nonfinite;
  if (!bad || !first) return "";
  const where = `in the ${placeText(first)}`;
  return `${kindText(first.kind)}, first in step ${countText(first.run_step)}, ${where}`;
}

/** "NaN" and "Inf" keep their letters. */
function lowered(text: string): string {
  return /^(NaN|[+−]|Gradvane)/.test(text) ? text : text.charAt(0).toLowerCase() + text.slice(1);
}

function pastOf(status: Status): string {
  const last = status.incidents[0];
  if (!last) return "";
  const total = plural(status.incidents_total, "past incident");
  const which = status.incidents_total > 1 ? "the last " : "";
  return `; ${total}, ${which}at step ${countText(last.first_step)}`;
}

function worstOpen(incidents: Incident[]): Incident | undefined {
  const open = incidents.filter(isOpen);
  return open.findLast(isNonfinite) ?? open.findLast((each) => !isMild(each)) ?? open.at(-1);
}
