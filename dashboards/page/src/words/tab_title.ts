// The state in the browser's own tab, where it is seen while something else is looked at.
import type { Sentence, Tone } from "./state_sentence";

const SHAPES: Record<Tone, string> = {
  good: "<circle cx='8' cy='8' r='6' fill='%231b8a4b'/>",
  warn: "<path d='M8 1 15 14H1Z' fill='%23c98a00'/>",
  bad: "<path d='M2 2H14V14H2Z' fill='%23c9352c'/>",
  calm: "<circle cx='8' cy='8' r='5' fill='none' stroke='%238894a3' stroke-width='3'/>",
};

let shown: Tone | null = null;

export function showInTab({ text, tone }: Sentence, run = "Gradvane"): void {
  const title = `${text} · ${run}`;
  if (document.title !== title) document.title = title;
  if (tone === shown) return;
  shown = tone;
  const head = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>";
  const link = document.querySelector<HTMLLinkElement>("link[rel=icon]") ?? newLink();
  link.href = `${head}${SHAPES[tone]}</svg>`;
}

function newLink(): HTMLLinkElement {
  const link = document.createElement("link");
  link.rel = "icon";
  document.head.append(link);
  return link;
}
