// The story as a person reads it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "exporters/replay/report_text.hpp"
#include "exporters/replay/story.hpp"
#include "exporters/text/human_text.hpp"
#include "record/incident_classes.hpp"
#include "record/names.hpp"
#include "record/saturating.hpp"

namespace gradvane::exporters::recording {
namespace {

constexpr std::size_t kMostMovedShown = 8;

std::string steps_text(std::int64_t count) {
  return human_count(count) + (count == 1 ? " step" : " steps");
}

std::string_view words_of(record::NonfiniteKind kind) {
  constexpr std::array<std::string_view, record::kNonfiniteKinds> kWords{"NaN", "+Inf", "-Inf"};
  return kWords[index_of(kind)];
}

constexpr std::array<std::string_view, record::kSites> kWhole{"loss", "gradients", "weights"};

std::string place_of(record::Site site, const std::string& param) {
  switch (site) {
    case record::Site::loss:
      return "the loss";
    case record::Site::grad:
      return "the gradient" + (param.empty() ? "" : " of " + plain(param));
    case record::Site::weight:
      break;
  }
  return "the weights" + (param.empty() ? "" : " of " + plain(param));
}

std::string number_of(const Moved& moved, double value) {
  if (moved.what == "step time") return human_duration(value);
  if (moved.what == "host syncs") return human_count(record::whole(value));
  return human_number(value);
}

/// 40 times, 2.5 times
std::string factor_of(double factor) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), factor < 10 ? "%.2g" : "%.3g", factor);
  return text.data();
}

void heading(std::string& text, std::string_view words) {
  text.append("\n").append(words).append("\n");
}

void opening(std::string& text, const Story& story) {
  if (story.run) {
    const record::RunInfo& run = *story.run;
    text.append(plain(run.run)).append(", rank ").append(std::to_string(run.rank));
    text.append(" of ").append(std::to_string(run.world_size)).append(", on ");
    text.append(plain(run.host)).append(" (process ").append(std::to_string(run.pid));
    text.append("), started ").append(human_time(run.start_time)).append("\nGradvane ");
    text.append(plain(run.version)).append(", torch ").append(plain(run.torch_version)) += '\n';
  } else {
    text += "Which run this is of is not in the recording.\n";
  }
  if (story.steps == 0) {
    text += "No step is in the recording.\n";
    return;
  }
  text.append("Steps ").append(human_count(story.first_step)).append(" to ");
  text.append(human_count(story.last_step)).append(", the last at ");
  text.append(human_time(story.last_time));
  if (story.missing > 0) {
    text.append("; ").append(human_count(story.missing));
    text += story.missing == 1 ? " between is not in it" : " between are not in it";
  }
  text += ".\n";
}

void spread_line(std::string& text, const char* name, const std::optional<Spread>& spread,
                 bool is_time) {
  if (!spread) return;
  const auto number = [&](double value) {
    return is_time ? human_duration(value) : human_number(value);
  };
  line(text, std::string(name) + number(spread->median) + " (" + number(spread->low) + " to " +
                 number(spread->high) + ")");
}

void normal_part(std::string& text, const Story& story) {
  if (!story.normal) return;
  heading(text, "What was normal: steps " + human_count(story.normal->first_step) + " to " +
                    human_count(story.normal->last_step) + ", median and range");
  spread_line(text, "loss           ", story.normal->loss, false);
  spread_line(text, "gradient norm  ", story.normal->grad_norm, false);
  spread_line(text, "step time      ", story.normal->step_seconds, true);
}

std::string moved_line(const Moved& moved) {
  std::string words = "step " + human_count(moved.run_step) + ": " + moved.what;
  if (!moved.group.empty()) words += " of group " + plain(moved.group);
  if (!moved.param.empty()) words += " of " + plain(moved.param);
  words += " " + number_of(moved, moved.value) + ", usually " + number_of(moved, moved.usual);
  if (moved.value > moved.usual && moved.usual > 0)
    words += ", " + factor_of(moved.value / moved.usual) + " times as much";
  else if (moved.value > 0 && moved.value < moved.usual)
    words += ", 1/" + factor_of(moved.usual / moved.value) + " of it";
  return words;
}

void moved_part(std::string& text, const Story& story) {
  if (story.steps == 0) return;
  heading(text, "What moved first");
  if (story.moved.empty()) {
    line(text, story.fault
                   ? "Nothing left its usual range before step " + human_count(*story.fault) + "."
                   : "Nothing has left its usual range.");
    return;
  }
  for (std::size_t i = 0; i < std::min(story.moved.size(), kMostMovedShown); ++i)
    line(text, moved_line(story.moved[i]));
  if (story.moved.size() > kMostMovedShown) line(text, "and more after that, or in the same step");
}

std::string appearance_line(const record::Appearance& one) {
  std::string counts;
  for (std::size_t k = 0; k < record::kNonfiniteKinds; ++k) {
    if (one.counts[k] <= 0) continue;
    counts += counts.empty() ? "" : ", ";
    counts += human_count(one.counts[k]) + " ";
    counts += words_of(static_cast<record::NonfiniteKind>(k));
  }
  // They are of all parameters together, of which one is named.
  std::string words = "step " + human_count(one.run_step) + ": ";
  words += counts.empty() ? "not finite" : counts;
  words += " in the " + std::string(kWhole[index_of(one.site)]);
  if (one.site == record::Site::loss || one.param.empty()) return words;
  words += ", first in " + plain(one.param);
  if (one.first && one.first->element >= 0) words += ", element " + human_count(one.first->element);
  return words;
}

/// What a trace found, which may have been of a later step.
std::string traced_line(const record::TracedModule& traced) {
  const std::string module = traced.name.empty() ? "the model itself" : plain(traced.name);
  const std::string name = module + (traced.type.empty() ? "" : " (" + plain(traced.type) + ")");
  std::string words = "Traced at step " + human_count(traced.run_step);
  if (traced.micro_step > 0) words += ", micro-step " + std::to_string(traced.micro_step);
  switch (traced.at) {
    case record::TracedAt::module:
      return words + ": the first module with a bad " +
             (traced.is_backward ? "gradient is " : "output is ") + name;
    case record::TracedAt::weight:
      return words + ": the weights of " + name + " were bad before the step";
    case record::TracedAt::input:
      return words + ": " + name + " was given bad values that no module had made";
    case record::TracedAt::loss:
      break;
  }
  return words + (traced.is_backward ? ": the gradient of the loss was bad"
                                     : ": the loss was bad, and no module's output");
}

/// Evidence that says itself when it was needs no step in front.
std::string told(const record::Incident& incident) {
  std::string words = incident.evidence.empty() ? std::string(info_of(incident.kind).title)
                                                : plain(incident.evidence);
  if (words.find("tep " + std::to_string(incident.first_step)) != std::string::npos) return words;
  return "step " + human_count(incident.first_step) + ": " + words;
}

void incident_lines(std::string& text, const record::Incident& incident) {
  line(text, told(incident));
  const bool is_said = incident.evidence.find("it began in the") != std::string::npos;
  if (incident.began_in && (!is_said || incident.micro_step)) {
    std::string words = "It began in the " + std::string(name_of(*incident.began_in));
    if (*incident.began_in != record::BeganIn::update) words += " pass";
    if (incident.micro_step) words += ", micro-step " + std::to_string(*incident.micro_step);
    line(text, words + ".");
  }
  if (incident.last_good_step) {
    std::string words = "The last good step before it was " + human_count(*incident.last_good_step);
    if (incident.last_good_checkpoint)
      words +=
          ", the last good checkpoint that of step " + human_count(*incident.last_good_checkpoint);
    line(text, words + ".");
  }
  if (incident.module) line(text, traced_line(*incident.module));
  if (incident.order.size() > 1) {
    line(text, "In this order:");
    for (const record::Appearance& one : incident.order) line(text, "  " + appearance_line(one));
  }
}

void broke_part(std::string& text, const Story& story) {
  heading(text, "What broke");
  const bool by_step = story.first_bad && (!story.broke || story.fault != story.broke->first_step);
  if (by_step) {
    const FirstBadStep& bad = *story.first_bad;
    std::string words = "step " + human_count(bad.run_step) + ": ";
    words += words_of(bad.what.kind);
    words += " in " + place_of(bad.what.site, bad.param);
    if (bad.what.element >= 0) words += ", element " + human_count(bad.what.element);
    line(text, words);
  }
  if (story.broke) incident_lines(text, *story.broke);
  if (!by_step && !story.broke) line(text, "Nothing that the recording knows of.");
  for (const record::Incident& other : story.others) {
    line(text, "also, " + told(other));
  }
}

bool is_nonfinite(const Story& story) {
  return story.first_bad || story.weights.found_bad ||
         (story.broke && info_of(story.broke->kind).gravity == record::Gravity::nonfinite);
}

/// Which checkpoints may be of use. Weights are read seldom: between two reads nothing is known.
std::string weights_line(const Story& story) {
  const auto& [found_bad, last_finite] = story.weights;
  if (found_bad && !last_finite)
    return "The weights were found not finite at step " + human_count(*found_bad) +
           ", and no read before it is known: any earlier checkpoint may be bad too.";
  if (found_bad && *last_finite + 1 >= *found_bad)
    return "The weights became not finite at step " + human_count(*found_bad) +
           ": a checkpoint from then on is of no use.";
  if (found_bad)
    return "The weights were found not finite at step " + human_count(*found_bad) +
           ", and were last read, and finite, at step " + human_count(*last_finite) +
           ": a checkpoint from after step " + human_count(*last_finite) + " may be of no use.";
  if (!last_finite)
    return "The weights were not read: whether a checkpoint is of use is not known.";
  if (*last_finite >= story.fault.value_or(0))
    return "The weights were finite at step " + human_count(*last_finite) +
           ", when they were last read.";
  return "The weights were last read, and finite, at step " + human_count(*last_finite) +
         ": a checkpoint from after that may be of no use.";
}

void after_part(std::string& text, const Story& story) {
  if (!story.after) return;
  const After& after = *story.after;
  heading(text, "What happened after");
  if (after.steps == 0) {
    line(text, "No later step is in the recording.");
  } else {
    std::string words = steps_text(after.steps) + ": ";
    words += after.bad == 0 ? "all finite" : human_count(after.bad) + " with values not finite";
    if (after.skipped > 0) words += ", " + human_count(after.skipped) + " skipped";
    if (after.last_loss) words += "; the last loss is " + human_number(after.last_loss);
    line(text, words + ".");
  }
  if (is_nonfinite(story)) line(text, weights_line(story));
  if (story.broke && story.broke->closed_at)
    line(text, "It cleared: bad in " + steps_text(story.broke->steps) + ", the last one " +
                   human_count(story.broke->last_step) + ".");
}

void damage_part(std::string& text, const Story& story) {
  const Damage& damage = story.damage;
  if (!damage.any()) return;
  heading(text, "What is wrong with the file");
  if (damage.header) line(text, "Its first bytes are damaged.");
  if (damage.frames > 0)
    line(text, human_count(damage.frames) + (damage.frames == 1 ? " part" : " parts") +
                   " of it could not be read.");
  if (damage.unknown_frames > 0 || damage.unknown_words > 0)
    line(text, "Some of it is of a newer version of Gradvane.");
  if (damage.steps_left_out > 0)
    line(text, steps_text(damage.steps_left_out) + " are more than can be read at once.");
}

}  // namespace

std::string ending_of(const Story& story) {
  const std::string after =
      story.steps > 0 ? " after step " + human_count(story.last_step) : " before any step";
  const std::string why = story.reason.empty() ? "" : ": " + plain(story.reason);
  switch (story.ending) {
    case Ending::finished:
      return "The run finished" + after + ".";
    case Ending::failed:
      return "The run failed" + after + why + ".";
    case Ending::went_on:
      return "The file was written" + after + " (" + plain(story.reason) +
             "); how the run ended is not in it.";
    case Ending::abrupt:
      break;
  }
  if (!story.is_ring) return "The file ends abruptly" + after + ": it was cut off.";
  return "The recording ends abruptly" + after +
         ": the process was killed or the machine died, unless it is still running.";
}

std::string text_of(const Story& story) {
  std::string text;
  opening(text, story);
  normal_part(text, story);
  moved_part(text, story);
  broke_part(text, story);
  after_part(text, story);
  heading(text, "How it ended");
  line(text, ending_of(story));
  damage_part(text, story);
  return text;
}

}  // namespace gradvane::exporters::recording
