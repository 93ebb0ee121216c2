// Stretches of steps that were not finite, behind the lines: a tinted, hatched band with firm edges
// and a mark on top, so that it does not take colour to see them.
import type uPlot from "uplot";
import type { Stretch } from "../data/stretches";
import { currentPalette } from "../view/theme";

const HATCH_PX = 7;

/** `own`: of what the chart shows. `other`: elsewhere in the step; only a strip along the top. */
export function paintBands(plot: uPlot, own: Stretch[], other: Stretch[]): void {
  const { ctx, bbox } = plot;
  const { bad, badPaper } = currentPalette();
  const px = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const stretch of other) {
    const { left, width } = span(plot, stretch, 2 * px);
    ctx.fillStyle = bad;
    ctx.globalAlpha = 0.55;
    ctx.fillRect(left, bbox.top, width, 3 * px);
    ctx.globalAlpha = 1;
  }
  for (const stretch of own) {
    const { left, width } = span(plot, stretch, 3 * px);
    ctx.fillStyle = badPaper;
    ctx.fillRect(left, bbox.top, width, bbox.height);
    hatch(ctx, left, bbox.top, width, bbox.height, HATCH_PX * px, bad);
    ctx.fillStyle = bad;
    ctx.fillRect(left, bbox.top, Math.max(width, px), 4 * px);
    if (width > 8 * px) {
      ctx.fillRect(left, bbox.top, px, bbox.height);
      ctx.fillRect(left + width - px, bbox.top, px, bbox.height);
    } else {
      ctx.fillRect(left + width / 2 - px / 2, bbox.top, px, bbox.height);
    }
    marker(ctx, left + width / 2, bbox.top, px);
  }
  ctx.restore();
}

/** Where another kind of incident opened: a dashed line with a diamond at its foot. */
export function paintMarks(plot: uPlot, steps: number[]): void {
  const { ctx, bbox } = plot;
  const px = devicePixelRatio;
  const foot = bbox.top + bbox.height;
  ctx.save();
  ctx.strokeStyle = currentPalette().warn;
  ctx.fillStyle = currentPalette().warn;
  ctx.lineWidth = px;
  ctx.setLineDash([3 * px, 3 * px]);
  for (const step of steps) {
    const x = plot.valToPos(step, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, foot);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x, foot - 8 * px);
    ctx.lineTo(x + 4 * px, foot - 4 * px);
    ctx.lineTo(x, foot);
    ctx.lineTo(x - 4 * px, foot - 4 * px);
    ctx.fill();
  }
  ctx.restore();
}

/** Where a step changed nothing: a short bar along the foot. */
export function paintSkips(plot: uPlot, steps: number[]): void {
  const { ctx, bbox } = plot;
  const px = devicePixelRatio;
  ctx.save();
  ctx.fillStyle = currentPalette().warn;
  for (const step of steps) {
    const x = plot.valToPos(step, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.fillRect(x - px, bbox.top + bbox.height - 7 * px, 2 * px, 7 * px);
  }
  ctx.restore();
}

function span(plot: uPlot, { from, to }: Stretch, least: number): { left: number; width: number } {
  const low = plot.valToPos(from, "x", true);
  const high = plot.valToPos(to, "x", true);
  const width = Math.max(least, high - low);
  return { left: (low + high - width) / 2, width };
}

function hatch(
  ctx: CanvasRenderingContext2D, left: number, top: number, width: number, height: number,
  gap: number, colour: string,
): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.globalAlpha = 0.35;
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  // Drawn from a fixed origin, so that the pattern does not crawl while the chart moves.
  const start = Math.floor((left - height) / gap) * gap;
  for (let x = start; x < left + width; x += gap) {
    ctx.moveTo(x, top + height);
    ctx.lineTo(x + height, top);
  }
  ctx.stroke();
  ctx.restore();
}

function marker(ctx: CanvasRenderingContext2D, x: number, top: number, px: number): void {
  ctx.beginPath();
  ctx.moveTo(x - 5 * px, top);
  ctx.lineTo(x + 5 * px, top);
  ctx.lineTo(x, top + 8 * px);
  ctx.closePath();
  ctx.fill();
}
