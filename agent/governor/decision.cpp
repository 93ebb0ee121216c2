#include "agent/governor/decision.hpp"

#include <array>

#include "detectors/number_words.hpp"
#include "record/names.hpp"
#include "record/rollback.hpp"

namespace gradvane::agent {
namespace {

using detectors::words_of;

/// The first sentence, as part of another one.
std::string as_clause(const std::string& text) {
  std::string sentence = text.substr(0, text.find(". "));
  if (sentence.starts_with("Step ")) sentence[0] = 's';
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

std::string words_of_fault(const Reason& reason) {
  switch (reason.fault) {
    case Fault::none:
      break;
    case Fault::loss:
      return "the loss is not finite";
    case Fault::gradient:
      return "a gradient is not finite";
    case Fault::norm:
      return "the gradient norm, " + words_of(reason.norm) + ", is above skip_norm, which is " +
             words_of(reason.bound);
    case Fault::overflow:
      return "gradients are not finite, and the gradient scaler does not get over it";
    case Fault::incident:
      return "an incident " + std::string(record::name_of(reason.incident)) + " is open" +
             (reason.evidence.empty() ? "" : ": " + as_clause(reason.evidence));
  }
  return {};
}

}  // namespace

std::string_view name_of(Verdict verdict) noexcept {
  static constexpr std::array<std::string_view, 4> kNames{"take", "skip", "rollback", "stop"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string_view name_of(RollbackOptimizer optimizer) noexcept {
  return record::kRollbackOptimizers[static_cast<std::size_t>(optimizer)];
}

std::string words_of(const Reason& reason) {
  if (reason.fault == Fault::none) return {};
  std::string text = "step " + std::to_string(reason.run_step);
  if (reason.skips_in_a_row > 0)
    text += ", the last of " + std::to_string(reason.skips_in_a_row) + " skipped in a row";
  text += ": " + words_of_fault(reason);
  if (reason.lacks_snapshot) text += "; there was no snapshot to go back to";
  if (reason.lacks_agreement) text += "; ranks do not agree, and none goes back alone";
  if (reason.rollbacks > 0)
    text += ", after " + std::to_string(reason.rollbacks) + " rollbacks within " +
            std::to_string(reason.window) + " steps";
  return text;
}

}  // namespace gradvane::agent
