// Whose steps are looked at, where several optimizers step.
import type { AgentData } from "../data/agent_data";
import type { ChangeView } from "./use_view";
import type { View } from "./view";

interface Props {
  data: AgentData;
  view: View;
  change: ChangeView;
}

export function OptimizerChoice({ data, view, change }: Props) {
  const status = data.status!;
  // One that was chosen may be gone by now: there must be a way back.
  if (status.optimizers.length < 2 && view.optimizer === null) return null;
  const name = (index: number) => {
    return `optimizer ${index}: ${status.model.optimizers[index] ?? "unknown"}`;
  };
  const kept = status.optimizers.includes(view.optimizer ?? -1) || view.optimizer === null
    ? status.optimizers : [...status.optimizers, view.optimizer];
  return (
    <div class="bar">
      <label class="field">
        Steps of{" "}
        <select
          value={String(view.optimizer ?? "")}
          onChange={(event) => {
            const { value } = event.currentTarget;
            change({ optimizer: value === "" ? null : Number(value) });
          }}
        >
          <option value="">
            the one that leads{view.optimizer === null && ` (${name(data.optimizer)})`}
          </option>
          {kept.map((index) => (
            <option key={index} value={String(index)}>{name(index)}</option>
          ))}
        </select>
      </label>
    </div>
  );
}
