#include "bench/kernels/cuda_bench_cases.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "bench/collectors/shapes.hpp"

namespace gradvane::bench {
namespace {

using kernels::DType;

constexpr Data kAllData[] = {Data::uniform,        Data::half_zero, Data::sparse_rows,
                             Data::half_subnormal, Data::all_nan,   Data::half_nan,
                             Data::nan_rows};
constexpr DType kAllDTypes[] = {DType::bf16, DType::f16, DType::f32};
/// Sizes of the one tensor that has no size of its own.
constexpr std::int64_t kSizes[] = {std::int64_t{64} << 20, std::int64_t{256} << 20,
                                   std::int64_t{1} << 30, std::int64_t{8} << 30};
constexpr const char* kEmbedding = "embedding";

/// 291 tensors, 6.7 G elements.
ModelShapes llama_7b() {
  constexpr std::int64_t kWidth = 4096;
  constexpr std::int64_t kHidden = 11008;
  constexpr std::int64_t kVocabulary = 32000;
  ModelShapes model{"llama_7b", {{kVocabulary, kWidth}}};
  for (int layer = 0; layer < 32; ++layer) {
    for (int i = 0; i < 4; ++i) model.params.push_back({kWidth, kWidth});
    for (int i = 0; i < 2; ++i) model.params.push_back({kHidden, kWidth});
    model.params.push_back({kWidth, kHidden});
    for (int i = 0; i < 2; ++i) model.params.push_back({kWidth});
  }
  model.params.push_back({kWidth});
  model.params.push_back({kVocabulary, kWidth});
  return model;
}

std::vector<ModelShapes> models() { return {gpt2_124m(), llama_7b(), resnet50(), tiny_tensors()}; }

std::vector<std::int64_t> numels_of(const ModelShapes& model) {
  std::vector<std::int64_t> numels;
  for (const Shape& shape : model.params) {
    numels.push_back(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
  }
  return numels;
}

/// "1G" as 2^30.
std::int64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  const std::string unit = end;
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : -1;
  if (shift < 0 || number <= 0 || number > (1LL << 50 >> shift)) {
    throw std::invalid_argument("--bytes " + text + ": give a number with K, M or G, such as 256M");
  }
  return std::int64_t{number} << shift;
}

double parse_number(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(number >= 0)) {
    throw std::invalid_argument(option + " " + text + ": not a number");
  }
  return number;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names{kEmbedding};
  for (const ModelShapes& model : models()) names.push_back(model.name);
  return names;
}

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (const DType dtype : kAllDTypes) names.emplace_back(name(dtype));
  return names;
}

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const Data data : kAllData) names.emplace_back(name(data));
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& each : names) text += (text.empty() ? "" : ",") + each;
  return text;
}

/// Which names an option lets through.
struct Filter {
  std::vector<std::string> wanted;

  static Filter parse(const std::string& option, const std::string& text,
                      const std::vector<std::string>& allowed) {
    Filter filter{split(text)};
    for (const std::string& each : filter.wanted) {
      if (std::find(allowed.begin(), allowed.end(), each) == allowed.end()) {
        throw std::invalid_argument(option + " " + each + ": choose among " + joined(allowed));
      }
    }
    return filter;
  }
  [[nodiscard]] bool has(std::string_view each) const {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), each) != wanted.end();
  }
};

struct Selection {
  Filter shapes, dtypes, data, offsets;
  std::vector<std::int64_t> bytes{std::begin(kSizes), std::end(kSizes)};
};

std::vector<Case> cases_of(const Selection& selection) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& shape, DType dtype,
                       const std::vector<std::int64_t>& numels) {
    for (const Data data : kAllData) {
      for (const int offset : {0, 1}) {
        if (selection.data.has(name(data)) && selection.offsets.has(std::to_string(offset))) {
          cases.push_back({shape, dtype, data, offset, numels});
        }
      }
    }
  };
  for (const DType dtype : kAllDTypes) {
    if (!selection.dtypes.has(name(dtype))) continue;
    for (const std::int64_t bytes : selection.bytes) {
      if (selection.shapes.has(kEmbedding)) add(kEmbedding, dtype, {bytes / size_in_bytes(dtype)});
    }
    for (const ModelShapes& model : models()) {
      if (selection.shapes.has(model.name)) add(model.name, dtype, numels_of(model));
    }
  }
  return cases;
}

}  // namespace

std::string_view name(Data data) {
  switch (data) {
    case Data::uniform:
      return "uniform";
    case Data::half_zero:
      return "half_zero";
    case Data::sparse_rows:
      return "sparse_rows";
    case Data::half_subnormal:
      return "half_subnormal";
    case Data::all_nan:
      return "all_nan";
    case Data::half_nan:
      return "half_nan";
    case Data::nan_rows:
      return "nan_rows";
  }
  return "?";
}

std::int64_t Case::numel() const {
  return std::accumulate(numels.begin(), numels.end(), std::int64_t{0});
}

std::string Case::json() const {
  std::ostringstream text;
  text << "\"shape\":\"" << shape << "\",\"dtype\":\"" << kernels::name(dtype) << "\",\"data\":\""
       << bench::name(data) << "\",\"offset\":" << offset << ",\"tensors\":" << numels.size()
       << ",\"numel\":" << numel() << ",\"bytes\":" << bytes();
  return text.str();
}

std::string describe(const Case& which) {
  std::ostringstream text;
  text << '{' << which.json() << ",\"numels\":[";
  const char* separator = "";
  for (const std::int64_t numel : which.numels) {
    text << separator << numel;
    separator = ",";
  }
  text << "]}";
  return text.str();
}

std::string usage() {
  return "cuda_pass_bench: the CUDA pass against a plain read of the same bytes and against four\n"
         "kernels a tensor. One JSON object a line. Without a CUDA device it exits with 77.\n\n"
         "  --shape A,B     of " +
         joined(shape_names()) +
         "\n"
         "  --bytes A,B     of the embedding; default 64M,256M,1G,8G\n"
         "  --dtype A,B     of " +
         joined(dtype_names()) +
         "\n"
         "  --data A,B      of " +
         joined(data_names()) +
         "\n"
         "  --offset 0,1    elements from a boundary of 512 bytes to each tensor\n"
         "  --quick         a few cases, less time for each\n"
         "  --seconds N     for the timed rounds of one case; default 0.6\n"
         "  --device N      default 0\n"
         "  --list          print the cases and run none\n";
}

BenchOptions parse_options(const std::vector<std::string>& arguments) {
  BenchOptions options;
  Selection selection;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) throw std::invalid_argument(option + " needs a value");
      return arguments[++i];
    };
    if (option == "--help" || option == "-h") {
      options.help = true;
    } else if (option == "--list") {
      options.list = true;
    } else if (option == "--quick") {
      selection = {.shapes = {{kEmbedding, "gpt2_124m", "tiny_10000"}},
                   .dtypes = {{"bf16", "f32"}},
                   .data = {{"uniform"}},
                   .offsets = {{"0"}},
                   .bytes = {kSizes[1], kSizes[2]}};
      options.seconds = 0.2;
    } else if (option == "--shape") {
      selection.shapes = Filter::parse(option, value(), shape_names());
    } else if (option == "--dtype") {
      selection.dtypes = Filter::parse(option, value(), dtype_names());
    } else if (option == "--data") {
      selection.data = Filter::parse(option, value(), data_names());
    } else if (option == "--offset") {
      selection.offsets = Filter::parse(option, value(), {"0", "1"});
    } else if (option == "--bytes") {
      selection.bytes.clear();
      for (const std::string& each : split(value())) selection.bytes.push_back(parse_bytes(each));
    } else if (option == "--seconds") {
      options.seconds = parse_number(option, value());
    } else if (option == "--device") {
      options.device = static_cast<int>(parse_number(option, value()));
    } else {
      throw std::invalid_argument(option + ": no such option; see --help");
    }
  }
  options.cases = cases_of(selection);
  if (options.cases.empty()) throw std::invalid_argument("these options leave no case");
  return options;
}

}  // namespace gradvane::bench
