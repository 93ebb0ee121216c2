#include "kernels/device/plan_tables.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace gradvane::kernels::device {
namespace {

constexpr std::size_t kAlignment = 16;

/// Reserves room for `count` objects and says where.
template <class T>
std::size_t reserve(std::size_t& bytes, std::size_t count) {
  const std::size_t offset = bytes;
  bytes += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

template <class T>
void put(std::vector<std::byte>& image, std::size_t offset, std::span<const T> objects) {
  if (!objects.empty()) std::memcpy(image.data() + offset, objects.data(), objects.size_bytes());
}

/// The blocks from the plan, plus what a plan leaves open: tensors without elements before the first
/// block, or without any block, are passed over by the first one.
std::vector<ChunkPosition> starts_of(const ChunkPlan& plan) {
  std::vector<ChunkPosition> starts(plan.view().starts, plan.view().starts + plan.blocks() + 1);
  if (plan.blocks() == 0) starts.push_back(starts.back());
  starts.front() = {};
  return starts;
}

std::vector<Span> spans_of(const ChunkPlanView& plan) {
  std::vector<Span> spans(2 * static_cast<std::size_t>(plan.blocks));
  std::vector<Span*> parts;  // of the tensor in hand
  std::int64_t tensor = -1;
  std::int32_t first = 0;
  const auto close = [&] {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      *parts[i] = {first, static_cast<std::int32_t>(i), static_cast<std::int32_t>(parts.size())};
    }
    first += static_cast<std::int32_t>(parts.size());
    parts.clear();
  };
  for (int block = 0; block < plan.blocks; ++block) {
    plan.for_each_part(block, [&](const TensorPart& part) {
      if (part.whole()) return;
      if (part.tensor != tensor) close();
      tensor = part.tensor;
      parts.push_back(
          &spans[2 * static_cast<std::size_t>(block) + static_cast<std::size_t>(part.partial())]);
    });
  }
  close();
  return spans;
}

}  // namespace

PlanTables::PlanTables(std::span<const TensorShape> shapes, std::span<const Site> sites)
    : tensors_(static_cast<std::int64_t>(shapes.size())) {
  if (shapes.size() != sites.size() ||
      shapes.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw std::invalid_argument("PlanTables: " + std::to_string(shapes.size()) + " shapes and " +
                                std::to_string(sites.size()) + " sites");
  }
  const ChunkPlan plan(shapes, kMaxBlocks);
  starts_ = starts_of(plan);
  blocks_ = static_cast<int>(starts_.size()) - 1;
  const std::vector<Span> spans =
      spans_of({plan.tensors().data(), starts_.data(), tensors_, blocks_});

  std::size_t bytes = 0;
  offsets_.state = reserve<PassState>(bytes, 1);
  offsets_.shapes = reserve<TensorShape>(bytes, shapes.size());
  offsets_.starts = reserve<ChunkPosition>(bytes, starts_.size());
  offsets_.spans = reserve<Span>(bytes, spans.size());
  offsets_.sites = reserve<Site>(bytes, sites.size());
  offsets_.partials = reserve<TensorStats>(bytes, spans.size());
  offsets_.arrived = reserve<std::uint32_t>(bytes, spans.size());
  offsets_.stats = reserve<TensorStats>(bytes, shapes.size());
  offsets_.squares = reserve<double>(bytes, shapes.size());
  image_.assign(bytes, std::byte{});
  const PassState state;
  put(image_, offsets_.state, std::span(&state, 1));
  put(image_, offsets_.shapes, shapes);
  put(image_, offsets_.starts, std::span<const ChunkPosition>(starts_));
  put(image_, offsets_.spans, std::span<const Span>(spans));
  put(image_, offsets_.sites, sites);
}

PassTables PlanTables::at(std::byte* base) const noexcept {
  PassTables tables;
  tables.plan = {reinterpret_cast<const TensorShape*>(base + offsets_.shapes),
                 reinterpret_cast<const ChunkPosition*>(base + offsets_.starts), tensors_, blocks_};
  tables.spans = reinterpret_cast<const Span*>(base + offsets_.spans);
  tables.sites = reinterpret_cast<const Site*>(base + offsets_.sites);
  tables.partials = reinterpret_cast<TensorStats*>(base + offsets_.partials);
  tables.arrived = reinterpret_cast<std::uint32_t*>(base + offsets_.arrived);
  tables.stats = reinterpret_cast<TensorStats*>(base + offsets_.stats);
  tables.squares = reinterpret_cast<double*>(base + offsets_.squares);
  tables.state = reinterpret_cast<PassState*>(base + offsets_.state);
  return tables;
}

std::vector<LaunchRange> PlanTables::launches(std::int64_t max_tensors) const {
  std::vector<LaunchRange> launches;
  std::int64_t begin = 0;
  do {
    LaunchRange range;
    range.tensor_begin = begin;
    range.tensor_end = std::min(begin + max_tensors, tensors_);
    // From the last block that starts at or before the first tensor, to the last that starts before
    // the end.
    const auto before = [](const ChunkPosition& start, std::int64_t tensor) {
      return start.tensor < tensor;
    };
    const auto first = std::lower_bound(starts_.begin(), starts_.end() - 1, begin, before);
    const bool starts_here = first != starts_.end() - 1 && *first == ChunkPosition{begin, 0};
    range.block_begin =
        std::max(0, static_cast<int>(first - starts_.begin()) - (starts_here ? 0 : 1));
    const auto stop =
        std::lower_bound(starts_.begin(), starts_.end() - 1, range.tensor_end, before);
    range.block_end = static_cast<int>(stop - starts_.begin());
    launches.push_back(range);
    begin = range.tensor_end;
  } while (begin < tensors_);
  return launches;
}

}  // namespace gradvane::kernels::device
