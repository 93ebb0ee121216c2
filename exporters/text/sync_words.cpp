#include "exporters/text/sync_words.hpp"

#include "exporters/text/human_text.hpp"

namespace gradvane::exporters {

using record::SyncKind;
using record::SyncOrigin;
using record::SyncReason;

std::string_view words_of(SyncKind kind) {
  switch (kind) {
    case SyncKind::device:
      return "the whole device";
    case SyncKind::stream:
      return "a stream";
    case SyncKind::event:
      return "an event";
    case SyncKind::memcpy:
      return "a blocking copy";
    case SyncKind::d2h_read:
      return "a value read from the device";
    case SyncKind::async_copy_blocked:
      return "an asynchronous copy that blocked";
    case SyncKind::alloc_free:
      return "an allocation or a release";
    case SyncKind::module_load:
      return "code being loaded";
    case SyncKind::rejected_in_capture:
      break;
  }
  return "nothing: refused during a capture";
}

std::string_view words_of(SyncOrigin origin) {
  switch (origin) {
    case SyncOrigin::training:
      return "the training";
    case SyncOrigin::gradvane:
      return "Gradvane";
    case SyncOrigin::profiler:
      break;
  }
  return "a profiler";
}

std::string_view words_of(SyncReason reason) {
  switch (reason) {
    case SyncReason::counting:
      return "nothing is in the way";
    case SyncReason::gated:
      return "PyTorch's profiler leaves the one CUPTI subscription to Gradvane";
    case SyncReason::switched_off:
      return "counting is switched off";
    case SyncReason::no_cuda:
      return "this process has not loaded the CUDA driver";
    case SyncReason::no_cupti:
      return "there is no libcupti to count them with";
    case SyncReason::no_driver:
      return "libcupti finds no driver";
    case SyncReason::taken:
      return "another tool has the one CUPTI subscription of this process";
    case SyncReason::refused:
      return "the driver refuses it (confidential computing, a virtual GPU, WSL)";
    case SyncReason::yielded:
      return "a profiler has the one CUPTI subscription until it is done";
    case SyncReason::lost:
      break;
  }
  return "CUPTI does not call Gradvane back any more";
}

std::string sentence_of(const record::SyncSummary& syncs) {
  std::string sentence;
  if (!syncs.is_counting()) {
    sentence = syncs.has_counted() ? "Host syncs are not counted any more: "
                                   : "Host syncs are not counted: ";
    sentence += words_of(syncs.reason);
  } else {
    sentence = "Host syncs are counted";
    if (syncs.reason != SyncReason::counting) {
      sentence.append(": ").append(words_of(syncs.reason));
    }
  }
  if (!syncs.detail.empty()) sentence.append(" (").append(syncs.detail).append(")");
  return sentence += '.';
}

std::string coverage_of(const record::SyncSummary& syncs) {
  if (!(syncs.blind_seconds > 0)) return {};
  std::string text = human_duration(syncs.covered_seconds) + " were counted, " +
                     human_duration(syncs.blind_seconds) + " were not";
  if (syncs.gaps > 0) {
    text += ", with " + human_count(syncs.gaps) + (syncs.gaps == 1 ? " gap" : " gaps");
  }
  return text += '.';
}

}  // namespace gradvane::exporters
