#include "exporters/recorder/recorded.hpp"

#include "record/clocks.hpp"

namespace gradvane::exporters::recording {

void Recorded::append_end(std::string& out, std::string_view reason, bool run_is_over) {
  maker.append(
      out, FrameType::end,
      EndFrame{
          .reason = std::string(reason), .run_is_over = run_is_over, .time = record::unix_time()});
}

}  // namespace gradvane::exporters::recording
