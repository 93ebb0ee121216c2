#include "kernels/chunk_plan.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace gradvane::kernels {
namespace {

constexpr std::int64_t kFullChunkCost = kChunkBytes + ChunkPlan::kChunkOverheadBytes;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 62;

std::int64_t cost_of(const TensorShape& tensor) {
  return tensor.numel * size_in_bytes(tensor.dtype) +
         chunk_count(tensor) * ChunkPlan::kChunkOverheadBytes;
}

void check(const TensorShape& tensor, std::size_t index, std::int64_t bytes_before) {
  const std::string which = "ChunkPlan: tensor " + std::to_string(index);
  const std::int64_t element_bytes = size_in_bytes(tensor.dtype);
  if (element_bytes == 0) throw std::invalid_argument(which + " has an unknown dtype");
  if (tensor.numel < 0) {
    throw std::invalid_argument(which + " has " + std::to_string(tensor.numel) + " elements");
  }
  if (tensor.numel > (kMaxBytes - bytes_before) / element_bytes) {
    throw std::invalid_argument(which + " brings the total above 2^62 bytes");
  }
}

// Where block `block` of `blocks` starts in the cost of all chunks. 2^63 times a number of blocks needs 128 bits.
std::int64_t share(std::int64_t total_cost, int block, int blocks) {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(static_cast<Wide>(total_cost) * block / blocks);
}

}  // namespace

struct ChunkPlan::Tables {
  std::vector<TensorShape> tensors;
  std::vector<ChunkPosition> starts;
  std::int64_t bytes = 0;
};

ChunkPlan::ChunkPlan(std::span<const TensorShape> tensors, int max_blocks) {
  if (max_blocks <= 0) {
    throw std::invalid_argument("ChunkPlan: max_blocks is " + std::to_string(max_blocks));
  }
  auto tables = std::make_shared<Tables>();
  tables->tensors.assign(tensors.begin(), tensors.end());
  std::int64_t total_cost = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check(tensors[i], i, tables->bytes);
    tables->bytes += tensors[i].numel * size_in_bytes(tensors[i].dtype);
    total_cost += cost_of(tensors[i]);
  }

  const auto tensor_count = static_cast<std::int64_t>(tensors.size());
  const int blocks = static_cast<int>(std::min<std::int64_t>(
      max_blocks, total_cost / kFullChunkCost + (total_cost % kFullChunkCost != 0)));
  tables->starts.reserve(static_cast<std::size_t>(blocks) + 1);

  // One walk over the tensors: a chunk belongs to the block in whose share of the cost it begins.
  std::int64_t cost_before = 0;  // of all tensors before `tensor`
  std::int64_t tensor = 0;
  for (int block = 0; block < blocks; ++block) {
    const std::int64_t begin = share(total_cost, block, blocks);
    for (; tensor < tensor_count; ++tensor) {
      const TensorShape& shape = tensors[static_cast<std::size_t>(tensor)];
      const std::int64_t chunk = (begin - cost_before + kFullChunkCost - 1) / kFullChunkCost;
      if (chunk < chunk_count(shape)) {
        tables->starts.push_back({tensor, std::max<std::int64_t>(chunk, 0)});
        break;
      }
      cost_before += cost_of(shape);
    }
    if (tensor == tensor_count) tables->starts.push_back({tensor_count, 0});
  }
  tables->starts.push_back({tensor_count, 0});

  view_ = {tables->tensors.data(), tables->starts.data(), tensor_count, blocks};
  tables_ = std::move(tables);
}

std::span<const TensorShape> ChunkPlan::tensors() const noexcept { return tables_->tensors; }

std::int64_t ChunkPlan::bytes() const noexcept { return tables_->bytes; }

std::int64_t ChunkPlan::memory_bytes() const noexcept {
  return static_cast<std::int64_t>(sizeof(Tables) +
                                   tables_->tensors.capacity() * sizeof(TensorShape) +
                                   tables_->starts.capacity() * sizeof(ChunkPosition));
}

}  // namespace gradvane::kernels
