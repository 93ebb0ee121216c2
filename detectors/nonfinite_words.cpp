#include "detectors/nonfinite_words.hpp"

#include <array>
#include <charconv>

#include "record/names.hpp"

namespace gradvane::detectors {
namespace {

using record::Site;

std::string subject(const record::Appearance& appearance) {
  if (appearance.site == Site::loss) return "the loss";
  std::string text = appearance.site == Site::grad ? "the gradient" : "the weight";
  if (!appearance.param.empty()) text += " of " + appearance.param;
  return text;
}

/// Losses and gradients are new in each step. A weight may have been what it is since the read before.
bool was_found(const record::Appearance& appearance) {
  return appearance.site == Site::weight && !is_fresh(appearance);
}

std::string became(const record::Appearance& appearance) {
  const std::string verb = was_found(appearance) ? " was found " : " became ";
  if (!appearance.first) return verb + "non-finite";
  std::string text = verb + std::string(name_of(appearance.first->kind));
  if (appearance.first->element >= 0 && appearance.site != Site::loss)
    text += " at element " + std::to_string(appearance.first->element);
  return text;
}

std::string last_read_of(const record::Appearance& appearance) {
  if (!was_found(appearance)) return {};
  if (!appearance.last_finite) return " The weights had not been read before.";
  return " The weights were last read, and finite, at step " +
         std::to_string(*appearance.last_finite) + ".";
}

std::string counts_of(const record::NonfiniteCounts& counts) {
  return " (" + std::to_string(counts[0]) + " NaN, " + std::to_string(counts[1]) + " +Inf, " +
         std::to_string(counts[2]) + " -Inf in that step)";
}

std::string text_of(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

/// What a gradient scaler or a policy has to do with it.
std::string verdict(const record::Incident& incident, const record::StepRecord& step) {
  if (step.skipped == record::SkipReason::governor)
    return " Gradvane skipped the step: it changed no weights.";
  if (step.skipped == record::SkipReason::amp_overflow && incident.first &&
      incident.first->site == Site::loss)
    return " The gradient scaler skipped the step, but the loss is not scaled: no overflow.";
  if (!step.overflow_persists) return {};
  std::string text = " The gradient scaler has skipped step after step";
  if (step.loss_scale) text += ", down to a scale of " + text_of(*step.loss_scale);
  return text + ": not an overflow that it gets over.";
}

/// Where in the step, and on which rank, as far as it is known.
std::string beginning_of(const record::Incident& incident, const record::Appearance& first,
                         const record::StepRecord& step) {
  std::string text;
  const bool is_grad = first.site == Site::grad;
  if (incident.began_in == record::BeganIn::update)
    text = " Loss and gradients were finite: it began in the optimizer's update.";
  else if (incident.began_in == record::BeganIn::backward)
    text = " The loss was finite: it began in the backward pass.";
  else if (is_grad && !step.first_bad_rank && step.was_finite(Site::loss))
    text =
        " This rank's loss was finite: it began in a backward pass, or with another rank's loss.";
  if (step.first_bad_rank)
    text += " It comes from rank " + std::to_string(*step.first_bad_rank) +
            (is_grad && step.first_bad_loss ? ", whose loss was not finite." : ".");
  return text;
}

}  // namespace

bool is_fresh(const record::Appearance& appearance) {
  return appearance.last_finite && *appearance.last_finite + 1 >= appearance.run_step;
}

std::string describe_first(const record::Incident& incident, const record::Appearance& first,
                           std::int64_t lost, const record::StepRecord& step) {
  if (lost > 0)
    return "Step " + std::to_string(first.run_step) + " or before: " + subject(first) +
           " became non-finite in " + std::to_string(lost) +
           (lost == 1 ? " step whose own record was lost." : " steps whose own records were lost.");
  std::string text = "Step " + std::to_string(first.run_step) + ": " + subject(first) +
                     became(first) + counts_of(first.counts) + "." + last_read_of(first);
  return text + beginning_of(incident, first, step) + verdict(incident, step);
}

std::string describe_joined(const record::Appearance& joined) {
  return " Step " + std::to_string(joined.run_step) + ": " + subject(joined) + became(joined) +
         " too." + last_read_of(joined);
}

std::string describe_module(const record::TracedModule& module) {
  const std::string name =
      (module.name.empty() ? "the model itself" : module.name) + " (" + module.type + ")";
  std::string text = " Watched in step " + std::to_string(module.run_step) + ": ";
  switch (module.at) {
    case record::TracedAt::module:
      text += "the first module whose " + std::string(module.is_backward ? "gradient" : "output") +
              " was not finite is " + name;
      break;
    case record::TracedAt::weight:
      text += "the first to go bad is " + name + ", one of whose weights was bad before the step";
      break;
    case record::TracedAt::input:
      text += "the input of " + name + " was already non-finite, and no module had made it";
      break;
    case record::TracedAt::loss:
      text += module.is_backward
                  ? "the gradient that the loss sent back was not finite, the outputs were"
                  : "the outputs of all modules were finite, the loss made of them was not";
  }
  return text + ".";
}

}  // namespace gradvane::detectors
