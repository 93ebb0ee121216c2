#include "exporters/page/state_sentence.hpp"

#include <algorithm>
#include <ranges>

#include "exporters/page/incident_words.hpp"
#include "exporters/page/page_number.hpp"
#include "exporters/text/human_text.hpp"

namespace gradvane::exporters {

using record::Incident;
using record::IncidentClass;
using record::RunState;

namespace {

/// Of those that are open the oldest that is not finite, else the oldest that does more than cost.
const Incident* worst_open(const Status& status) {
  const auto oldest = [&](auto is_such) -> const Incident* {
    for (const Incident& incident : status.incidents | std::views::reverse) {
      if (is_open(incident) && is_such(incident)) return &incident;
    }
    return nullptr;
  };
  if (const Incident* found = oldest(is_nonfinite)) return found;
  if (const Incident* found = oldest([](const Incident& one) { return !is_mild(one); }))
    return found;
  return oldest([](const Incident&) { return true; });
}

/// If no detector is at work, the latest step speaks for itself.
std::string unjudged_words(const Status& status, const LatestNumbers* latest) {
  if (!latest || !latest->latest || !status.first_bad) return {};
  if (std::ranges::none_of(latest->latest->nonfinite, record::any)) return {};
  const auto& [what, param] = *status.first_bad;
  return std::string(kind_words(what.kind)) + ", first in step " + human_count(what.run_step) +
         ", in the " + place_words(what.site, param);
}

/// For the middle of a sentence; names keep their letters.
std::string lowered(std::string text) {
  const bool is_name =
      text.starts_with("NaN") || text.starts_with('+') || text.starts_with("Gradvane");
  if (!is_name && text[0] >= 'A' && text[0] <= 'Z')
    text[0] = static_cast<char>(text[0] + 'a' - 'A');
  return text;
}

std::string past_words(const Status& status) {
  if (status.incidents.empty()) return {};
  return "; " + page_plural(status.incidents_total, "past incident") +
         (status.incidents_total > 1 ? ", the last at step " : ", at step ") +
         human_count(status.incidents.front().first_step);
}

}  // namespace

StateSentence state_sentence(const Status& status, const LatestNumbers* latest) {
  const Incident* worst = worst_open(status);
  const std::string trouble = worst ? since_words(*worst) : unjudged_words(status, latest);
  const std::string with = trouble.empty() ? "" : ", with " + lowered(trouble);
  const std::string_view tone = trouble.empty()            ? "good"
                                : worst && is_mild(*worst) ? "warn"
                                                           : "bad";
  std::string after;
  if (latest && latest->latest) after = " after step " + human_count(latest->latest->run_step);
  switch (status.state) {
    case RunState::starting:
      return {.tone = "calm", .text = "Starting: no step has been seen yet"};
    case RunState::stalled:
      if (!with.empty() && !(worst && worst->kind == IncidentClass::stalled)) {
        return {.tone = "bad", .text = "Stalled" + after + with};
      }
      return {.tone = "warn", .text = "Stalled: no step has ended" + after};
    case RunState::failed: {
      const std::string why = status.reason.empty() ? "" : ": " + status.reason;
      return {.tone = "bad", .text = "Failed" + after + why + with};
    }
    case RunState::finished:
      return {.tone = tone,
              .text = "Finished" + after + (with.empty() ? past_words(status) : with)};
    case RunState::running:
      break;
  }
  if (!trouble.empty()) return {.tone = tone, .text = trouble};
  if (!status.recording.empty()) {
    return {.tone = "calm", .text = "Was training at the end" + past_words(status)};
  }
  return {.tone = "good", .text = "Healthy" + past_words(status)};
}

}  // namespace gradvane::exporters
