// Spreads painting over frames: twelve charts at once would hold up the page, two do not.

const PER_FRAME = 2;

const waiting = new Set<() => void>();
let frame = 0;

/** Work that is already waiting is not done twice. */
export function paintSoon(work: () => void): void {
  waiting.add(work);
  frame ||= requestAnimationFrame(paint);
}

export function paintNever(work: () => void): void {
  waiting.delete(work);
}

function paint(): void {
  frame = 0;
  for (const work of [...waiting].slice(0, PER_FRAME)) {
    waiting.delete(work);
    work();
  }
  if (waiting.size > 0) frame = requestAnimationFrame(paint);
}
