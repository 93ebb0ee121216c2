#pragma once
// Makes the rings of a device known to the worker.
#include "collectors/steps/handoff.hpp"
#include "collectors/tensors/device_reads.hpp"

namespace gradvane::agent {

/// Passes on the sources that `reads` has made since the last call, and why a device is no longer
/// read.
void pass_on_sources(collectors::DeviceReads& reads, collectors::Handoff& handoff) noexcept;

}  // namespace gradvane::agent
