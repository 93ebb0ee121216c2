import type { Syncs as Answer, SyncSite, Tally } from "../data/api";
import type { TabProps } from "./props";
import { csvOf, fileName, save } from "../words/csv";
import { countText, durationText, finite, numberText, percentText, plural } from "../words/number_text";
import { coverageText, kindWords, ORIGINS, syncSentence } from "../words/sync_words";
import { usePolled } from "../data/use_polled";

export function Syncs({ data }: TabProps) {
  const { answer, error } = usePolled<Answer>(data, "syncs", {});
  const status = data.status!;
  if (!answer) return <p class="empty">{error || "Loading …"}</p>;
  const sites = answer.sites ?? [];
  return (
    <>
      <section>
        <h2>What the CPU waited for</h2>
        <p>{syncSentence(answer)} {answer.totals && coverageText(answer)}</p>
        {answer.totals && <Totals answer={answer} />}
      </section>
      {answer.by_phase && <Phases phases={answer.by_phase} />}
      {answer.sites && (
        <section>
          <div class="bar">
            <h2>{plural(sites.length, "place")} in the code, most time first</h2>
            <span class="push" />
            <button
              type="button"
              onClick={() => save(fileName(status.run, status.rank, "syncs"), csvOfSites(sites))}
            >
              Export CSV
            </button>
          </div>
          {sites.length === 0 && <p class="empty">Nothing on the GPU, so far.</p>}
          {sites.map((site) => (
            <Site key={site.id} site={site} covered={finite(answer.covered_seconds) ?? 0} />
          ))}
        </section>
      )}
    </>
  );
}

function sum(tallies: Record<string, Tally> | undefined): { calls: number; seconds: number } {
  let calls = 0;
  let seconds = 0;
  for (const [kind, tally] of Object.entries(tallies ?? {})) {
    if (kind === "rejected_in_capture") continue;
    calls += tally.calls;
    seconds += finite(tally.seconds) ?? 0;
  }
  return { calls, seconds };
}

function Totals({ answer }: { answer: Answer }) {
  const training = sum(answer.totals?.["training"]);
  const own = sum(answer.totals?.["gradvane"]);
  const inSteps = answer.parts?.in_steps;
  const most = answer.most_in_step;
  const over = answer.steps_over.training;
  return (
    <dl class="tiles">
      <div class="tile">
        <dt>A step of the training</dt>
        <dd>{inSteps && answer.whole_steps > 0 ? numberText(inSteps.calls / answer.whole_steps) : "–"}</dd>
        <dd class="note">
          on average{answer.budget !== undefined && `, ${countText(answer.budget)} allowed`}
        </dd>
      </div>
      <div class="tile">
        <dt>Time blocked</dt>
        <dd>{durationText(training.seconds)}</dd>
        <dd class="note">of {durationText(answer.covered_seconds)} counted</dd>
      </div>
      <div class={over > 0 ? "tile bad" : "tile"}>
        <dt>Steps over budget</dt>
        <dd>{answer.budget === undefined ? "no budget" : countText(over)}</dd>
        {most && (
          <dd class="note">most in step {countText(most.run_step)}: {countText(most.calls)}</dd>
        )}
      </div>
      <div class="tile">
        <dt>Gradvane’s own</dt>
        <dd>{countText(own.calls)}</dd>
        <dd class="note">{durationText(own.seconds)}</dd>
      </div>
    </dl>
  );
}

function Phases({ phases }: { phases: Record<string, Tally> }) {
  const all = sum(phases).seconds;
  return (
    <section>
      <h2>By phase of the step</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="By phase of the step">
        <table class="narrow">
          <thead>
            <tr>
              <th scope="col">phase</th><th scope="col" class="n">calls</th>
              <th scope="col" class="n">time blocked</th><th scope="col" class="n">share</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(phases).map(([phase, { calls, seconds }]) => (
              <tr key={phase}>
                <th scope="row">{phase}</th>
                <td class="n">{countText(calls)}</td>
                <td class="n">{durationText(seconds)}</td>
                <td class="n">{percentText(all > 0 ? (finite(seconds) ?? 0) / all : null)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Site({ site, covered }: { site: SyncSite; covered: number }) {
  const share = covered > 0 ? (finite(site.seconds) ?? 0) / covered : null;
  const by = site.origin === "training" ? "" : `, by ${ORIGINS[site.origin]}`;
  return (
    <details class="site">
      <summary>
        <code class="location">{site.location}</code>
        <span class="site-facts">
          <b>{durationText(site.seconds)}</b> blocked, {percentText(share)} of the time;{" "}
          {plural(site.calls, "call")}
          {site.calls_per_step !== undefined && `, ${numberText(site.calls_per_step)} per step`};{" "}
          waited for {kindWords(site.kind)}{by}
        </span>
      </summary>
      <dl class="facts">
        {site.function && <div><dt>function</dt><dd><code>{site.function}</code></dd></div>}
        {site.file && (
          <div><dt>file</dt><dd><code>{site.file}{site.line && `:${site.line}`}</code></dd></div>
        )}
        {site.phase && <div><dt>phase</dt><dd>{site.phase}</dd></div>}
        <div><dt>longest</dt><dd>{durationText(site.max_seconds)}</dd></div>
        <div><dt>thread</dt><dd>{site.thread}</dd></div>
      </dl>
      {site.stack.length > 0 && (
        <ol class="stack" aria-label="What called it, innermost first">
          {site.stack.map((frame, i) => <li key={i}><code>{frame}</code></li>)}
        </ol>
      )}
    </details>
  );
}

function csvOfSites(sites: SyncSite[]): string {
  const head = ["location", "function", "kind", "origin", "phase", "calls", "calls_per_step",
    "seconds", "max_seconds", "thread"];
  return csvOf(head, sites.map((s) => [
    s.location, s.function, s.kind, s.origin, s.phase, s.calls, s.calls_per_step, s.seconds,
    s.max_seconds, s.thread,
  ]));
}
