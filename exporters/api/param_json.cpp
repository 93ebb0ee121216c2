#include "exporters/api/param_json.hpp"

#include "record/names.hpp"
#include "record/numbers.hpp"

namespace gradvane::exporters {

using Json = nlohmann::ordered_json;

namespace {

/// The element's index in each dimension; empty where the shape does not cover it.
Json position_in(const std::vector<std::int64_t>& shape, std::int64_t element) {
  Json position = Json::array();
  std::vector<std::int64_t> parts(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] <= 0) return position;
    parts[i] = element % shape[i];
    element /= shape[i];
  }
  if (element == 0) position = parts;
  return position;
}

Json numbers_json(const Dated<record::TensorNumbers>& dated) {
  const record::TensorNumbers& numbers = dated.value;
  Json json{{"run_step", dated.run_step}, {"numel", numbers.numel}};
  for (const record::TensorNumber& number : record::kTensorNumbers)
    if (number.site == record::Site::grad) put(json, number.tensor_key, value_of(number, numbers));
  put(json, "mean", record::mean_of(numbers));
  json["zero"] = numbers.zero;
  json["subnormal"] = numbers.subnormal;
  json["nonfinite"] = to_json(numbers.nonfinite);
  if (numbers.first_nonfinite >= 0) json["first_nonfinite"] = numbers.first_nonfinite;
  return json;
}

}  // namespace

Json to_json(const BadElement& bad) {
  Json json{{"run_step", bad.run_step}, {"site", name_of(bad.site)}};
  if (bad.kind) json["kind"] = name_of(*bad.kind);
  if (bad.element >= 0) json["element"] = bad.element;
  return json;
}

Json param_json(const ParamTable& table, std::size_t index) {
  const record::ParamInfo& info = table.model->params[index];
  const ParamRow& row = table.rows[index];
  const auto group = static_cast<std::size_t>(info.group);
  Json json{{"index", index}, {"name", info.name}};
  if (!info.aliases.empty()) json["aliases"] = info.aliases;
  if (group < table.model->groups.size()) json["group"] = table.model->groups[group];
  json["shape"] = info.shape;
  json["numel"] = info.numel;
  json["dtype"] = info.dtype;
  json["device"] = info.device;
  json["requires_grad"] = info.requires_grad;
  json["state"] = name_of(row.state);
  if (row.grad) json["grad"] = numbers_json(*row.grad);
  if (row.weight) json["weight"] = numbers_json(*row.weight);
  put_dated(json, "update_ratio", row.update_ratio);
  json["nonfinite_steps"] = row.nonfinite_steps;
  if (row.first_bad) {
    json["first_nonfinite"] = to_json(*row.first_bad);
    Json position = position_in(info.shape, row.first_bad->element);
    if (!position.empty() && row.first_bad->element >= 0) {
      json["first_nonfinite"]["position"] = std::move(position);
    }
  }
  return json;
}

}  // namespace gradvane::exporters
