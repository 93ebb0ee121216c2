#include "collectors/tensors/cpu_reader.hpp"

#include <cmath>

namespace gradvane::collectors {
namespace {

/// Blocks a thread takes at least: below this, waking a thread costs more than it saves.
constexpr std::int64_t kGrainBytes = 256 * 1024;

std::int64_t bytes(std::span<const kernels::TensorShape> shapes) noexcept {
  std::int64_t sum = 0;
  for (const auto& shape : shapes) sum += shape.numel * kernels::size_in_bytes(shape.dtype);
  return sum;
}

}  // namespace

void CpuReader::resize(std::size_t entries) {
  entries_.assign(entries, Entry{});
  shapes_.assign(entries, kernels::TensorShape{});
  data_.assign(entries, nullptr);
  stats_.assign(entries, kernels::TensorStats{});
  plan_.reset();
  pass_.reset();
  rebuilds_ = 0;
}

void CpuReader::set(std::size_t entry, const Tensor& tensor, EntryTag tag) noexcept {
  Entry& at = entries_[entry];
  at.tensor = &tensor;
  at.tag = tag;
  if (tag != EntryTag::read) {
    at.view = TensorView{};
    return;
  }
  const TensorFacts facts = facts_of(tensor);
  const bool foreign = tensor.defined() && facts.place != TensorFacts::Place::cpu;
  at.view = foreign ? TensorView{} : view_of(tensor, facts);
  at.tag = foreign ? EntryTag::unsupported : tag_of(at.view.readable);
}

void CpuReader::set_scalar(std::size_t entry, const double* value) noexcept {
  Entry& at = entries_[entry];
  at.tensor = nullptr;
  at.tag = value == nullptr ? EntryTag::missing : EntryTag::read;
  at.view = TensorView{};
  if (value == nullptr) return;
  at.view.readable = Readable::yes;
  at.view.dtype = kernels::DType::f64;
  at.view.data = value;
  at.view.numel = 1;
}

void CpuReader::make_plan() {
  plan_ = std::make_unique<kernels::ChunkPlan>(shapes_);
  pass_ = std::make_unique<kernels::CpuPass>(*plan_);
  ++rebuilds_;
}

bool CpuReader::read() noexcept try {
  copies_ = 0;
  bool fits = plan_ != nullptr;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const TensorView& view = entries_[i].view;
    copies_ += view.readable == Readable::copied ? 1 : 0;
    data_[i] = view.data;
    if (view.data == nullptr) continue;  // absent this time: the plan keeps its place
    const kernels::TensorShape shape{view.numel, view.dtype};
    if (shape == shapes_[i]) continue;
    shapes_[i] = shape;
    fits = false;
  }
  if (!fits) make_plan();

  const std::int64_t blocks = plan_->blocks();
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrainBytes * blocks / std::max<std::int64_t>(1, bytes(shapes_)));
  parallel_for(blocks, grain, [this](std::int64_t begin, std::int64_t end) {
    pass_->run_blocks(data_, static_cast<int>(begin), static_cast<int>(end));
  });
  pass_->finish(stats_);
  for (std::size_t i = 0; i < entries_.size(); ++i) finish_entry(i);
  return true;
} catch (...) {
  plan_.reset();  // half made: the next read starts afresh
  for (Entry& entry : entries_) entry = Entry{};
  return false;
}

void CpuReader::finish_entry(std::size_t entry) noexcept {
  Entry& at = entries_[entry];
  kernels::TensorStats& stats = stats_[entry];
  if (at.tag == EntryTag::read) {
    stats.numel += at.view.implicit_zeros;
    stats.zero += at.view.implicit_zeros;
    if (stats.first_nonfinite >= 0 && at.tensor != nullptr)
      stats.first_nonfinite = row_major_index(*at.tensor, stats.first_nonfinite);
  } else {
    stats = not_read(at.tag);
  }
  at = Entry{};  // the tensor may be gone before the next read
}

double CpuReader::sum_sq(std::size_t count) const noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += std::ldexp(stats_[i].sum_sq, 2 * stats_[i].scale_exp);
  return sum;
}

}  // namespace gradvane::collectors
