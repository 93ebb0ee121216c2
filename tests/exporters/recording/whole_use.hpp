#pragma once
// Everything that Gradvane does with a recording that it has read.
#include "exporters/replay/recording.hpp"

namespace gradvane::exporters::fakes {

/// Reads it to the end, tells its story, compares it with itself, replays it and asks every route of the API.
void use(const recording::Recording& file);

}  // namespace gradvane::exporters::fakes
