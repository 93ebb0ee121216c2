#include "agent/step/facts/device_sources.hpp"

#include <utility>

namespace gradvane::agent {

void pass_on_sources(collectors::DeviceReads& reads, collectors::Handoff& handoff) noexcept try {
  auto sources = reads.take_new_sources();
  if (!sources.empty()) handoff.add_sources(std::move(sources));
  if (!reads.failure().empty()) handoff.note_device_failure(reads.failure());
} catch (...) {  // no memory: those reads will count as lost
}

}  // namespace gradvane::agent
