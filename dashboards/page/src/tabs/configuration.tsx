import type { TabProps } from "./props";
import { csvOf, fileName, save } from "../words/csv";
import { countText, plural, timeText } from "../words/number_text";

export function Configuration({ data }: TabProps) {
  const status = data.status!;
  const { process, model } = status;
  const facts: [string, string][] = [];
  if (process) {
    facts.push(
      ["Gradvane", process.version],
      ["PyTorch", process.torch_version],
      ["host", `${process.host}, process ${process.pid}`],
      ["rank", `${status.rank ?? 0} of ${countText(process.world_size)}, `
        + `${process.local_rank} on its machine`],
      ["started", timeText(process.start_time)],
    );
  }
  facts.push(
    ["model", `${plural(model.params, "parameter")}, ${plural(model.elements, "element")}`
      + ` in ${plural(model.groups.length, "group")}`],
    ["optimizers", model.optimizers.join(", ") || "none"],
  );
  const settings = process?.settings ?? [];
  return (
    <>
      <section>
        <h2>The process</h2>
        <dl class="facts">
          {facts.map(([label, value]) => (
            <div key={label}><dt>{label}</dt><dd>{value}</dd></div>
          ))}
        </dl>
      </section>
      <section>
        <div class="bar">
          <h2>Configuration, and where each value came from</h2>
          <span class="push" />
          <button
            type="button"
            onClick={() => save(fileName(status.run, status.rank, "configuration"), csvOf(
              ["key", "value", "source", "since"],
              settings.map(({ key, value, source, since }) => [key, value, source, since]),
            ))}
          >
            Export CSV
          </button>
        </div>
        {settings.length === 0 && <p class="empty">It is not known here.</p>}
        {settings.length > 0 && (
          <div class="scroll" tabIndex={0} role="region" aria-label="Configuration">
            <table class="settings">
              <thead>
                <tr><th scope="col">key</th><th scope="col">value</th><th scope="col">from</th></tr>
              </thead>
              <tbody>
                {settings.map(({ key, value, source, since }) => (
                  <tr key={key} class={source === "default" ? "usual" : ""}>
                    <th scope="row"><code>{key}</code></th>
                    <td class="value"><code>{value}</code></td>
                    <td>{source}{since !== undefined && `, since ${timeText(since)}`}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
    </>
  );
}
