#include "exporters/text/sync_words.hpp"

#include <string_view>

namespace gradvane::exporters {

using record::SyncReason;

namespace {

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
    case SyncReason::proton:
      return "Triton's Proton is loaded, and could not start if they were counted";
    case SyncReason::lost:
      break;
  }
  return "CUPTI does not call Gradvane back any more";
}

}  // namespace

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

}  // namespace gradvane::exporters
