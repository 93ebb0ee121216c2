// Writes the number table to standard output as JSON: scripts/make_numbers.py makes the page's numbers.ts,
// docs/numbers.md and the number parts of the API's schemas from it.
#include <cstdio>
#include <string>
#include <string_view>

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
  json += "]}\n";
  std::fputs(json.c_str(), stdout);
}
