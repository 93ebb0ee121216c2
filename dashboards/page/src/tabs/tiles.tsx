// The numbers of now.
import type { AgentData } from "../data/agent_data";
import type { Counts, Status } from "../data/api";
import { stepsPerSecond } from "../header";
import {
  bytesText, countText, durationText, finite, numberText, percentText, plural, UNMEASURED,
} from "../words/number_text";

interface TileProps {
  label: string;
  value: string;
  note?: string;
  isBad?: boolean;
}

function Tile({ label, value, note, isBad }: TileProps) {
  return (
    <div class={isBad ? "tile bad" : "tile"}>
      <dt>{label}</dt>
      <dd>{value}</dd>
      {note && <dd class="note">{note}</dd>}
    </div>
  );
}

export function Tiles({ data }: { data: AgentData }) {
  const status = data.status!;
  const { latest } = status;
  if (!latest) return null;
  return (
    <dl class="tiles">
      <LossTile status={status} />
      <NormTile status={status} />
      <RateTile status={status} />
      <Tile
        label="Steps/s"
        value={numberText(stepsPerSecond(data))}
        note={status.skipped_steps > 0 ? plural(status.skipped_steps, "step") + " skipped" : ""}
      />
      <NonfiniteTile status={status} />
      <Tile
        label="Update / weight" value={numberText(status.update_ratio?.value)}
        note={status.update_ratio
          ? `estimate, step ${countText(status.update_ratio.run_step)}` : ""}
      />
      <SnapshotTile status={status} />
      <MemoryTile status={status} />
      <CostTile status={status} />
    </dl>
  );
}

function LossTile({ status }: { status: Status }) {
  const loss = status.latest?.loss;
  const isBad = loss !== undefined && finite(loss) === null;
  const known = status.last_finite_loss;
  const note = (isBad || loss === undefined) && known
    ? `last finite one ${numberText(known.value)}, step ${countText(known.run_step)}` : "";
  return <Tile label="Loss" value={numberText(loss)} note={note} isBad={isBad} />;
}

function NormTile({ status }: { status: Status }) {
  const { clip_coefficient: clip, grad_norm: norm, grad_norm_at_step: after } = status.latest!;
  const bad = status.latest!.nonfinite.grad;
  if (bad && sum(bad) > 0) {
    const note = `${numberText(norm)} without NaN and Inf`;
    return <Tile label="Gradient norm" value="not finite" note={note} isBad />;
  }
  const factor = finite(clip);
  const clipped = factor !== null && factor < 1 ? `clipped to ${numberText(after)}` : "not clipped";
  const note = factor === null ? "" : clipped;
  return <Tile label="Gradient norm" value={numberText(norm)} note={note} />;
}

function RateTile({ status }: { status: Status }) {
  const lr = status.latest?.lr;
  const rates = (Array.isArray(lr) ? lr : [lr]).map((rate) => finite(rate))
    .filter((rate) => rate !== null);
  const low = Math.min(...rates);
  const high = Math.max(...rates);
  const value = rates.length === 0 ? UNMEASURED
    : low === high ? numberText(low) : `${numberText(low)} to ${numberText(high)}`;
  const note = Array.isArray(lr) ? plural(lr.length, "parameter group") : "";
  return <Tile label="Learning rate" value={value} note={note} />;
}

function sum({ nan, pos_inf, neg_inf }: Counts): number {
  return nan + pos_inf + neg_inf;
}

function NonfiniteTile({ status }: { status: Status }) {
  const { elements, steps, first } = status.nonfinite;
  if (!first) {
    const wasRead = Object.keys(status.latest?.nonfinite ?? {}).length > 0;
    return (
      <Tile
        label="NaN and infinity" value={wasRead ? "none" : UNMEASURED}
        note={wasRead ? "since the start of the run" : "not measured"}
      />
    );
  }
  const worst = Math.max(steps.loss, steps.grad, steps.weight);
  const all = sum(elements.loss) + sum(elements.grad) + sum(elements.weight);
  return (
    <Tile
      label="NaN and infinity" isBad value={plural(worst, "step")}
      note={`${plural(all, "element")}, first in step ${countText(first.run_step)}`}
    />
  );
}

/** Only where there are snapshots or rollbacks. */
function SnapshotTile({ status }: { status: Status }) {
  const { governor } = status;
  if (!governor) return null;
  const step = governor.snapshot_step;
  const older = governor.older_snapshot_step;
  const committed = governor.snapshots.committed ?? 0;
  const refused = total(governor.snapshots) - committed;
  const rollbacks = total(governor.rollbacks);
  const notes = [
    ...(step === undefined ? [] : [`${durationText(governor.snapshot_age_seconds)} old`]),
    ...(older === undefined
      ? [] : [`before it step ${countText(older)}, ${durationText(governor.older_snapshot_age_seconds)} old`]),
    ...(refused > 0 ? [`${countText(refused)} refused`] : []),
    ...(rollbacks > 0 ? [plural(rollbacks, "rollback")] : []),
  ];
  return (
    <Tile
      label="Newest snapshot" value={step === undefined ? "none" : `step ${countText(step)}`}
      note={notes.join(", ")} isBad={step === undefined && refused > 0}
    />
  );
}

function total(counts: Record<string, number>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

function MemoryTile({ status }: { status: Status }) {
  const device = status.device_allocated_bytes;
  const resident = status.process_resident_bytes;
  if (!device && !resident) return null;
  if (!device) return <Tile label="Memory" value={bytesText(resident?.value)} note="resident" />;
  return (
    <Tile
      label="Device memory" value={bytesText(device.value)}
      note={resident ? `${bytesText(resident.value)} resident` : ""}
    />
  );
}

function CostTile({ status }: { status: Status }) {
  const { seconds, of_step_seconds: of, records_dropped: dropped } = status.agent;
  const lost = dropped > 0 ? `; ${plural(dropped, "record")} dropped` : "";
  return (
    <Tile
      label="Agent’s cost" value={percentText(of > 0 ? seconds / of : null)}
      note={`of step time${lost}`}
    />
  );
}
