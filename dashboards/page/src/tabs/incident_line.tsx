// An incident in a line or two, with a way to its steps and its evidence.
import type { Incident } from "../data/api";
import { classText, isMild, isOpen, stepsText } from "../words/incident_words";
import { tabLink, type View } from "../view/view";

export function IncidentLine({ incident, view }: { incident: Incident; view: View }) {
  return (
    <li class={isOpen(incident) ? (isMild(incident) ? "open mild" : "open") : "over"}>
      <a href={tabLink(view, "incidents", { incident: incident.id })}>
        {classText(incident.class)}
      </a>{" "}
      <span class="when">{isOpen(incident) ? "open" : "over"}, {stepsText(incident)}</span>
      <span class="evidence">{incident.evidence}</span>
    </li>
  );
}
