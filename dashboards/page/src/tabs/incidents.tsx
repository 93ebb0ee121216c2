import { useEffect, useRef } from "preact/hooks";
import type { Incident } from "../data/api";
import type { TabProps } from "./props";
import { csvOf, fileName, save } from "../words/csv";
import {
  appearanceText, beganText, classText, isMild, isOpen, moduleText, openFirst, placeText, stepsText,
} from "../words/incident_words";
import { countText, finite, durationText, kindText, plural, timeText } from "../words/number_text";
import { tabLink, type View } from "../view/view";

export function Incidents({ data, view }: TabProps) {
  const status = data.status!;
  const { incidents_total: total } = status;
  const incidents = openFirst(status.incidents);
  if (total === 0) {
    return (
      <section>
        <h2>Incidents</h2>
        <p class="empty">None since the start of the run.</p>
      </section>
    );
  }
  return (
    <>
      <div class="bar">
        <h2>{plural(total, "incident")} since the start of the run</h2>
        {total > incidents.length && (
          <span class="grain">the newest {incidents.length} are here</span>
        )}
        <span class="push" />
        <button
          type="button"
          onClick={() => save(fileName(status.run, status.rank, "incidents"), csvOfAll(incidents))}
        >
          Export CSV
        </button>
      </div>
      <ol class="cards">
        {incidents.map((incident) => (
          <Card key={incident.id} incident={incident} view={view} />
        ))}
      </ol>
    </>
  );
}

function Card({ incident, view }: { incident: Incident; view: View }) {
  const card = useRef<HTMLLIElement>(null);
  const isChosen = view.incident === incident.id;
  useEffect(() => {
    if (isChosen) card.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  const look = isOpen(incident) ? (isMild(incident) ? "warn" : "bad") : "over";
  return (
    <li ref={card} class={`card ${look}${isChosen ? " chosen" : ""}`}>
      <h3>
        {classText(incident.class)}{" "}
        <span class={`badge ${look}`}>{isOpen(incident) ? "open" : "over"}</span>
      </h3>
      <p class="evidence">{incident.evidence}</p>
      <Facts incident={incident} view={view} />
      {incident.order && <Order incident={incident} view={view} />}
      <p class="links">
        <a href={chartsLink(incident, view)}>Show these steps on the charts</a>
        {incident.param && (
          <a href={tabLink(view, "parameters", { param: incident.param, search: incident.param })}>
            The parameter
          </a>
        )}
        {incident.group && (
          <a href={tabLink(view, "layers", { rows: "params", group: incident.group })}>The group</a>
        )}
      </p>
    </li>
  );
}

/** With as much around them as they are long, and at least 25 steps. */
function chartsLink(incident: Incident, view: View): string {
  const around = Math.max(25, incident.last_step - incident.first_step);
  const from = Math.max(1, incident.first_step - around);
  return tabLink(view, "overview", { zoom: { from, to: incident.last_step + around } });
}

function Facts({ incident, view }: { incident: Incident; view: View }) {
  const opened = finite(incident.opened_at);
  const closed = finite(incident.closed_at);
  const lasted = opened !== null && closed !== null ? `, for ${durationText(closed - opened)}` : "";
  const rows: [string, string][] = [
    ["steps", stepsText(incident)],
    ["opened", timeText(incident.opened_at) + lasted],
  ];
  if (incident.began_in) rows.push(["began", beganText(incident)]);
  if (incident.micro_step !== undefined) rows.push(["micro-step", countText(incident.micro_step)]);
  if (incident.last_good_step !== undefined) {
    rows.push(["last good step", countText(incident.last_good_step)]);
  }
  if (incident.last_good_checkpoint !== undefined) {
    rows.push(["last good checkpoint", `step ${countText(incident.last_good_checkpoint)}`]);
  }
  if (incident.group) rows.push(["group", incident.group]);
  if (incident.reopened) rows.push(["came back", plural(incident.reopened, "time")]);
  if (incident.module) {
    const step = `step ${countText(incident.module.run_step)}`;
    rows.push(["module", `${moduleText(incident.module)} (${step})`]);
  }
  if (view.tab === "incidents" && incident.rank > 0) rows.push(["rank", String(incident.rank)]);
  return (
    <dl class="facts">
      {rows.map(([label, value]) => (
        <div key={label}><dt>{label}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}

function Order({ incident, view }: { incident: Incident; view: View }) {
  return (
    <>
      <h4>In this order</h4>
      <ol class="order">
        {incident.order!.map((each) => (
          <li key={each.site}>
            step {countText(each.run_step)}: {kindText(each.kind)} in the{" "}
            {each.param && each.site !== "loss" ? (
              <>
                {placeText({ site: each.site })} of{" "}
                <a href={tabLink(view, "parameters", { param: each.param, search: each.param })}>
                  <code>{each.param}</code>
                </a>
              </>
            ) : placeText(each)}
            {each.element !== undefined && `, element ${countText(each.element)}`}
            <span class="counts"> ({appearanceText(each)})</span>
          </li>
        ))}
      </ol>
    </>
  );
}

function csvOfAll(incidents: Incident[]): string {
  const head = ["id", "class", "open", "first_step", "last_step", "steps", "opened_at", "closed_at",
    "site", "kind", "param", "element", "group", "began_in", "evidence"];
  return csvOf(head, incidents.map((each) => [
    each.id, each.class, isOpen(each) ? "yes" : "no", each.first_step, each.last_step, each.steps,
    each.opened_at, each.closed_at, each.site, each.kind, each.param, each.element, each.group,
    each.began_in, each.evidence,
  ]));
}
