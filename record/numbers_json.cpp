// Writes the tables of numbers, incident classes and alert rules to standard output as JSON. From it
// scripts/make_numbers.py makes what repeats them: parts of the page, the documents, the schemas, the alert rules.
#include <cstdio>
#include <string>
#include <string_view>

#include "record/alert_rules.hpp"
#include "record/incident_classes.hpp"
#include "record/names.hpp"
#include "record/numbers.hpp"

namespace gr = gradvane::record;

namespace {

/// No text of the tables needs escaping: their tests refuse quotes, backslashes and line breaks.
void put(std::string& json, std::string_view key, std::string_view value) {
  json.append("\"").append(key).append("\": \"").append(value).append("\", ");
}
void put(std::string& json, std::string_view key, bool value) {
  json.append("\"").append(key).append("\": ").append(value ? "true" : "false").append(", ");
}

void put_metric(std::string& json, gr::Metric metric) {
  const gr::MetricInfo& info = gr::metric_catalogue()[static_cast<std::size_t>(metric)];
  put(json, "metric", info.name);
  put(json, "help", info.help);
}

void end(std::string& json) { json.replace(json.size() - 2, 2, "},\n"); }

void end_list(std::string& json) { json.replace(json.size() - 2, 2, "\n"); }

void put_incidents(std::string& json) {
  json += "], \"incidents\": [\n";
  for (const gr::IncidentClassInfo& info : gr::kIncidentClassTable) {
    json += '{';
    put(json, "name", info.name);
    put(json, "title", info.title);
    put(json, "gravity", name_of(info.gravity));
    put(json, "alert", info.alert);
    put(json, "is_default", info.is_default);
    put(json, "opens", info.opens);
    put(json, "closes", info.closes);
    put(json, "setting", info.setting);
    end(json);
  }
  end_list(json);
  json += "], \"alerts\": [\n";
  for (const gr::AlertRule& rule : gr::kAlertRules) {
    json += '{';
    put(json, "name", rule.name);
    put(json, "severity", name_of(rule.severity));
    put(json, "group", rule.group);
    put(json, "summary", rule.summary);
    put(json, "description", rule.description);
    put(json, "keeps_firing", rule.keeps_firing);
    put(json, "runbook", runbook_of(rule) + ".md");
    end(json);
  }
  end_list(json);
}

}  // namespace

int main() {
  std::string json = "{\"tensor\": [\n";
  for (const gr::TensorNumber& number : gr::kTensorNumbers) {
    json += '{';
    put(json, "key", number.key);
    put(json, "tensor_key", number.tensor_key);
    put(json, "title", number.title);
    put(json, "label", number.label);
    put(json, "words", number.words);
    put(json, "site", name_of(number.site));
    put(json, "join", name_of(number.join));
    put(json, "unit", name_of(number.unit));
    put(json, "is_compared", number.is_compared);
    put(json, "is_of_step", number.step != nullptr);
    put_metric(json, number.metric);
    end(json);
  }
  end_list(json);
  json += "], \"step\": [\n";
  for (const gr::StepNumber& number : gr::kStepNumbers) {
    json += '{';
    put(json, "key", number.key);
    put(json, "title", number.title);
    put(json, "words", number.words);
    put(json, "unit", name_of(number.unit));
    put(json, "site", number.site ? name_of(*number.site) : std::string_view());
    put(json, "is_logged", number.is_logged);
    put(json, "is_charted", number.is_charted);
    if (number.metric) put_metric(json, *number.metric);
    end(json);
  }
  end_list(json);
  put_incidents(json);
  json += "]}\n";
  std::fputs(json.c_str(), stdout);
}
