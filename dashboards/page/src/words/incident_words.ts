// Incidents in words, as the plain page has them too: test/same_text.json has the cases for both.
import type { Appearance, Incident, Site, TracedModule } from "../data/api";
import { INCIDENT_CLASSES } from "./incident_classes";
import { countText, kindText, plural, siteText } from "./number_text";

const CLASSES = new Map<string, (typeof INCIDENT_CLASSES)[number]>(
  INCIDENT_CLASSES.map((row) => [row.name, row]));

export function classText(name: string): string {
  return CLASSES.get(name)?.title ?? name.replaceAll("_", " ");
}

export function isNonfinite(incident: Incident): boolean {
  return CLASSES.get(incident.class)?.gravity === "nonfinite";
}

export function isOpen(incident: Incident): boolean {
  return incident.closed_at === undefined;
}

/** Those that are open, then the others; each part keeps its order. */
export function openFirst(incidents: Incident[]): Incident[] {
  return [...incidents.filter(isOpen), ...incidents.filter((each) => !isOpen(each))];
}

/** What has not harmed the training comes after the rest. */
export function isMild(incident: Incident): boolean {
  return CLASSES.get(incident.class)?.gravity === "mild";
}

/** "NaN since step 512 in the gradient of layers.3.weight". */
export function sinceText(incident: Incident): string {
  const since = `since step ${countText(incident.first_step)}`;
  if (!isNonfinite(incident)) {
    const group = incident.group ? ` in ${incident.group}` : "";
    return `${classText(incident.class)} ${since}${group}`;
  }
  return `${kindText(incident.kind)} ${since} in the ${placeText(incident)}`;
}

export function placeText(place: { site?: Site; param?: string }): string {
  const site = place.site ?? "grad";
  return place.param && site !== "loss" ? `${siteText(site)} of ${place.param}` : siteText(site);
}

export function stepsText(incident: Incident): string {
  const { first_step: from, last_step: to, steps } = incident;
  if (from === to) return `step ${countText(from)}`;
  return `steps ${countText(from)} to ${countText(to)}, ${plural(steps, "bad one")}`;
}

const BEGAN_WORDS = {
  forward: "in the forward pass: the loss was the first to be bad",
  backward: "in the backward pass: the loss was finite, a gradient was not",
  update: "in the update: loss and gradients were finite, the weights are not",
};

export function beganText(incident: Incident): string {
  return incident.began_in ? BEGAN_WORDS[incident.began_in] : "";
}

export function appearanceText(appearance: Appearance): string {
  const { nan, pos_inf: positive, neg_inf: negative } = appearance.elements;
  const counts = [
    nan > 0 ? `${countText(nan)} NaN` : "",
    positive > 0 ? `${countText(positive)} +Inf` : "",
    negative > 0 ? `${countText(negative)} −Inf` : "",
  ].filter(Boolean);
  return counts.join(", ");
}

export function moduleText(module: TracedModule): string {
  const name = module.name || (module.at === "loss" ? "the loss" : "the model itself");
  const type = module.type ? ` (${module.type})` : "";
  const way = module.direction === "forward" ? "forward" : "backward";
  const what = {
    module: "made it",
    weight: "had a bad weight before the step",
    input: "was given it, and no module had made it",
    loss: "it came of the loss",
  }[module.at];
  return `${name}${type}, ${way}: ${what}`;
}
