// From Prometheus' answers to the data frames that Grafana's components draw.
import { FieldType, getDisplayProcessor, createTheme, standardTransformers, standardTransformersRegistry,
  transformDataFrame } from '@grafana/data';
import { firstValueFrom } from 'rxjs';

export const theme = createTheme({ colors: { mode: 'dark' } });
export const ZONE = 'utc';

standardTransformersRegistry.setInit(() => ['mergeTransformer', 'organizeFieldsTransformer', 'sortByTransformer']
  .map((name) => ({ id: standardTransformers[name].id, name, transformation: standardTransformers[name] })));

export function legend(target, labels) {
  if (!target.legendFormat) {
    const { __name__: name = '', ...rest } = labels;
    const text = Object.entries(rest).map(([key, value]) => `${key}="${value}"`).join(', ');
    return text ? `${name}{${text}}` : name || target.expr;
  }
  return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? label);
}

// What the panel's field configuration says of the field called `name`.
export function configOf(panel, name) {
  const { defaults, overrides = [] } = panel.fieldConfig;
  const config = { ...defaults, custom: { ...defaults.custom } };
  for (const { matcher, properties } of overrides) {
    if (matcher.id !== 'byName' || matcher.options !== name) continue;
    for (const { id, value } of properties) {
      if (id.startsWith('custom.')) config.custom[id.slice('custom.'.length)] = value;
      else config[id] = value;
    }
  }
  const steps = config.thresholds?.steps;
  if (steps) {
    config.thresholds = { ...config.thresholds,
      steps: steps.map((step) => ({ ...step, value: step.value ?? -Infinity })) };
  }
  return config;
}

function dressed(field) {
  field.display = getDisplayProcessor({ field, theme, timeZone: ZONE });
  return field;
}

// One frame for each series; a step without a sample is a gap.
export function seriesFrames(panel, answers, window) {
  const frames = [];
  for (const { target, result } of answers) {
    for (const { metric, values, value } of result) {
      const name = legend(target, metric);
      const found = new Map((values ?? [value]).map(([when, text]) => [when, Number(text)]));
      const times = [];
      for (let when = window.start; when <= window.end; when += window.step) times.push(when);
      const stamps = value ? [value[0]] : times;
      const field = dressed({ name, type: FieldType.number, labels: metric,
        values: stamps.map((when) => found.get(when) ?? null),
        config: { ...configOf(panel, name), displayName: name }, state: { seriesIndex: frames.length, displayName: name } });
      frames.push({ refId: target.refId, name, length: stamps.length, fields: [
        dressed({ name: 'Time', type: FieldType.time, config: {}, values: stamps.map((when) => when * 1000) }), field] });
    }
  }
  return frames;
}

// As Grafana's data source makes tables: a column for each label, then the value.
// The curves of an XY chart. `merge` and `partitionByValues` put x and y of a time together and split the rows by a
// label; the second is in Grafana's core, so both are done here.
export function curves(panel, answers) {
  const [label] = panel.transformations.at(-1).options.fields;
  const found = new Map();
  for (const { target, result } of answers) {
    for (const { metric, values } of result) {
      const rows = found.get(metric[label]) ?? found.set(metric[label], new Map()).get(metric[label]);
      for (const [when, text] of values) rows.set(when, { ...rows.get(when), [target.refId]: Number(text) });
    }
  }
  return [...found].map(([name, rows]) => ({ name, points: [...rows].sort(([one], [other]) => one - other)
    .map(([, row]) => row).filter(({ A, B }) => A !== undefined && B !== undefined) }));
}

async function transformed(panel, frames) {
  const [frame] = await firstValueFrom(transformDataFrame(panel.transformations, frames));
  return frame;
}

export async function tableFrame(panel, answers) {
  const frames = answers.filter(({ result }) => result.length).map(({ target, result }) => {
    const labels = [...new Set(result.flatMap(({ metric }) => Object.keys(metric)))].sort();
    const name = answers.length === 1 ? 'Value' : `Value #${target.refId}`;
    return { refId: target.refId, length: result.length, fields: [
      { name: 'Time', type: FieldType.time, config: {}, values: result.map(({ value }) => value[0] * 1000) },
      ...labels.map((label) => ({ name: label, type: FieldType.string, config: {},
        values: result.map(({ metric }) => metric[label] ?? '') })),
      { name, type: FieldType.number, config: {}, values: result.map(({ value }) => Number(value[1])) }] };
  });
  if (!frames.length) return null;
  const frame = await transformed(panel, frames);
  frame.fields = frame.fields.map((field) => {
    const name = field.config.displayName ?? field.name;
    const text = field.type === FieldType.string;
    const config = { ...(text ? {} : configOf(panel, name)), displayName: name,
      custom: { ...panel.fieldConfig.defaults.custom, align: 'auto', ...configOf(panel, name).custom } };
    return dressed({ ...field, name, config, state: { displayName: name } });
  });
  return frame;
}
