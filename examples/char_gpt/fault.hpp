#pragma once
// What --fault asks for: KIND@STEP[/EVERY][:PARAM][,transient|,state].
#include <cstdint>
#include <string>
#include <string_view>

namespace char_gpt {

/// The parameter that is poisoned where none is named; every size has it.
inline constexpr std::string_view kDefaultFaultParam = "blocks.0.attention.qkv.weight";

struct Fault {
  std::string kind;        ///< nan, inf or -inf
  std::int64_t step = 0;   ///< optimizer step of this run, counted from 1
  std::int64_t every = 0;  ///< and one per N steps after it; 0: that step alone
  std::string param{kDefaultFaultParam};
  bool transient = false;  ///< put the element back after it was read
  bool in_state = false;   ///< of the optimizer, after the step, in place of the gradient

  [[nodiscard]] double value() const;
  /// Whether it is the turn of `now`.
  [[nodiscard]] bool is_due(std::int64_t now) const;
  bool operator==(const Fault&) const = default;
};

/// Throws std::invalid_argument, quoting `text` and saying what is allowed.
[[nodiscard]] Fault parse_fault(std::string_view text);

}  // namespace char_gpt
