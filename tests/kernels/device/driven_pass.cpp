#include "tests/kernels/device/driven_pass.hpp"

#include <algorithm>
#include <cstring>

namespace gradvane::kernels::test {

DrivenPass::DrivenPass(std::span<const TensorShape> shapes, std::span<const Site> sites,
                       DriveOptions options)
    : options_(options),
      ring_(options.ring_slots, static_cast<std::int64_t>(shapes.size())),
      fibers_(device::kThreads,
              options.backward ? FiberBlock::Order::backward : FiberBlock::Order::forward) {
  const device::PlanTables tables(shapes, sites);
  launches_ = tables.launches(std::min<std::int64_t>(options.per_launch, device::kFewPointers));
  memory_.resize((tables.bytes() + sizeof(device::Vector) - 1) / sizeof(device::Vector));
  std::memcpy(memory_.data(), tables.image().data(), tables.bytes());
  tables_ = tables.at(reinterpret_cast<std::byte*>(memory_.data()));
  tables_.plan_id = 7;
  tables_.ring = {ring_.slots().memory().data(), ring_.slots().slots(),
                  ring_.slots().stride_bytes(), ring_.max_tensors()};
}

void DrivenPass::read(std::span<const void* const> data, std::uint64_t token) {
  auto launch = std::make_unique<Launch>();
  launch->token = token;
  launch_all(*launch, data, [&](int block) {
    auto shared = std::make_unique<device::BlockMemory>();
    std::memset(static_cast<void*>(shared.get()), 0xcd, sizeof(*shared));  // as a device has it
    fibers_.run([&](int thread) {
      FiberLane lane(fibers_, thread, block, options_.grid);
      device::BlockProgram<FiberLane, Launch>(lane, *launch, *shared).run();
    });
  });
}

void DrivenPass::clip(std::span<void* const> data, double max_norm) {
  auto launch = std::make_unique<Launch>();
  launch->max_norm = max_norm;
  launch_all(*launch, {data.data(), data.size()}, [&](int block) {
    fibers_.run([&](int thread) {
      FiberLane lane(fibers_, thread, block, options_.grid);
      device::ScaleProgram<FiberLane, Launch>(lane, *launch).run();
    });
  });
}

void DrivenPass::launch_all(Launch& launch, std::span<const void* const> data,
                            const std::function<void(int block)>& run_block) {
  launch.tables = tables_;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const device::LaunchRange& range = launches_[i];
    launch.tensor_begin = range.tensor_begin;
    launch.tensor_end = range.tensor_end;
    launch.block_begin = range.block_begin;
    launch.block_end = range.block_end;
    launch.last = i + 1 == launches_.size();
    std::fill(std::begin(launch.data), std::end(launch.data), nullptr);
    std::copy(data.begin() + range.tensor_begin, data.begin() + range.tensor_end, launch.data);
    for (int turn = 0; turn < options_.grid; ++turn)
      run_block(options_.backward ? options_.grid - 1 - turn : turn);
  }
}

TensorStats read_driven(const TensorData& tensor, DriveOptions options) {
  const TensorShape shape = tensor.shape();
  const Site site = Site::grad;
  DrivenPass pass({&shape, 1}, {&site, 1}, options);
  const void* data = tensor.numel() == 0 ? nullptr : tensor.data();
  pass.read({&data, 1});
  return pass.stats()[0];
}

}  // namespace gradvane::kernels::test
