#include "examples/char_gpt/fault.hpp"

#include <charconv>
#include <limits>
#include <stdexcept>

namespace char_gpt {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument(
      "--fault " + std::string(text) + ": " + why +
      "; it reads KIND@STEP[/EVERY][:PARAM][,transient|,state], such as nan@50:" +
      std::string(kDefaultFaultParam) + ",transient");
}

std::string quoted(std::string_view text) {
  std::string result = "'";
  result += text;
  result += '\'';
  return result;
}

/// Cuts `text` at the first `mark` and returns what stood behind it; without a mark, nothing.
std::string_view cut_at(std::string_view& text, char mark) {
  const auto position = text.find(mark);
  if (position == std::string_view::npos) return {};
  const auto rest = text.substr(position + 1);
  text = text.substr(0, position);
  return rest;
}

}  // namespace

double Fault::value() const {
  if (kind == "nan") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return kind == "inf" ? infinity : -infinity;
}

bool Fault::is_due(std::int64_t now) const {
  return now == step || (every > 0 && now > step && (now - step) % every == 0);
}

Fault parse_fault(std::string_view text) {
  Fault fault;
  std::string_view kind = text;
  if (kind.find('@') == std::string_view::npos) refuse(text, "no '@STEP'");
  std::string_view rest = cut_at(kind, '@');
  if (kind != "nan" && kind != "inf" && kind != "-inf") {
    refuse(text, "the kind " + quoted(kind) + " is none of nan, inf, -inf");
  }
  fault.kind = kind;

  const bool has_flag = rest.find(',') != std::string_view::npos;
  const std::string_view flag = cut_at(rest, ',');
  if (has_flag && flag != "transient" && flag != "state") {
    refuse(text, quoted(flag) + " behind the comma is not 'transient' or 'state'");
  }
  fault.transient = flag == "transient";
  fault.in_state = flag == "state";

  const bool has_param = rest.find(':') != std::string_view::npos;
  const std::string_view param = cut_at(rest, ':');
  if (has_param) {
    if (param.empty()) refuse(text, "no parameter behind the colon");
    fault.param = param;
  }

  const bool has_every = rest.find('/') != std::string_view::npos;
  const std::string_view every = cut_at(rest, '/');
  const auto take = [&](std::string_view what, std::string_view from, std::int64_t& number) {
    const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), number);
    if (error != std::errc() || end != from.data() + from.size() || number < 1)
      refuse(text, std::string(what) + ' ' + quoted(from) + " is not a number from 1 on");
  };
  take("the step", rest, fault.step);
  if (has_every) take("the number of steps", every, fault.every);
  return fault;
}

}  // namespace char_gpt
