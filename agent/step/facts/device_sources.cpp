#include "agent/step/facts/device_sources.hpp"

#include <array>
#include <span>
#include <utility>

namespace gradvane::agent {

std::size_t read_on_devices(collectors::DeviceReads& reads, collectors::SlotRole role,
                            collectors::StepFacts& facts, collectors::Handoff& handoff) noexcept {
  std::array<collectors::DeviceRead, collectors::kMaxDevices> slots{};
  const std::size_t count = reads.read(slots);
  facts.reads.set_on_devices(role, std::span(slots).first(count));
  facts.captured |= reads.captured();
  pass_on_sources(reads, handoff);
  return count;
}

void pass_on_sources(collectors::DeviceReads& reads, collectors::Handoff& handoff) noexcept try {
  auto sources = reads.take_new_sources();
  if (!sources.empty()) handoff.add_sources(std::move(sources));
  if (!reads.failure().empty()) handoff.note_device_failure(reads.failure());
} catch (...) {  // no memory: those reads will count as lost
}

}  // namespace gradvane::agent
