#pragma once
// What every read on devices does: its slots go into the step's facts, and new rings become known to the worker.
#include <cstddef>

#include "collectors/steps/handoff.hpp"
#include "collectors/tensors/device_reads.hpp"

namespace gradvane::agent {

/// Enqueues what was set in `reads` and lists its slots in `facts` as those of `role`. Returns how many there are.
std::size_t read_on_devices(collectors::DeviceReads& reads, collectors::SlotRole role,
                            collectors::StepFacts& facts, collectors::Handoff& handoff) noexcept;

/// Passes on the sources that `reads` has made since the last call, and why a device is no longer
/// read.
void pass_on_sources(collectors::DeviceReads& reads, collectors::Handoff& handoff) noexcept;

}  // namespace gradvane::agent
