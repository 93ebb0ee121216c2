import type { Ranks as Answer } from "../data/api";
import type { TabProps } from "./props";
import { csvOf, fileName, save } from "../words/csv";
import { countText, plural, timeText } from "../words/number_text";
import { usePolled } from "../data/use_polled";

/** The port that ranks of one machine share may be reached under another address than the ranks know, as through ssh. */
function addressFrom(here: Answer["ranks"][number] | undefined, there: string): string {
  const [port, rank] = there.split(/(?=\/rank\/\d+$)/);
  const isShared = rank !== undefined && here?.url.startsWith(`${port}/rank/`);
  if (!isShared) return `${there}/`;
  return location.pathname.startsWith("/rank/") ? `../..${rank}/` : `.${rank}/`;
}

export function Ranks({ data }: TabProps) {
  const { answer, error } = usePolled<Answer>(data, "ranks", {});
  if (!answer) return <p class="empty">{error || "Loading …"}</p>;
  const here = answer.ranks.find((each) => each.is_this);
  const elsewhere = answer.world_size - answer.ranks.length;
  return (
    <section>
      <div class="bar">
        <h2>{plural(answer.ranks.length, "rank")} on this machine</h2>
        {elsewhere > 0 && (
          <span class="grain">
            {countText(elsewhere)} of {countText(answer.world_size)} have no endpoint here
          </span>
        )}
        <span class="push" />
        <button
          type="button" onClick={() => save(fileName(answer.run, answer.rank, "ranks"), csvOf(
            ["rank", "url", "state", "pid", "started"],
            answer.ranks.map((each) => [each.rank, each.url, each.state, each.pid, each.started]),
          ))}
        >
          Export CSV
        </button>
      </div>
      {answer.ranks.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Ranks">
          <table>
            <thead>
              <tr>
                <th scope="col" class="n">rank</th><th scope="col">state</th>
                <th scope="col">page</th><th scope="col" class="n">process</th>
                <th scope="col">started</th>
              </tr>
            </thead>
            <tbody>
              {answer.ranks.map((each) => (
                <tr key={each.rank} class={each.is_this ? "chosen" : ""}>
                  <th scope="row" class="n">{each.rank}</th>
                  <td><span class={`badge ${each.state}`}>{each.state}</span></td>
                  <td>{each.is_this ? "this one" : <a href={addressFrom(here, each.url)}>{each.url}</a>}</td>
                  <td class="n">{each.pid}</td>
                  <td>{timeText(each.started)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
