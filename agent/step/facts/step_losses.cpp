#include "agent/step/facts/step_losses.hpp"

#include <array>

#include "agent/step/facts/device_sources.hpp"
#include "collectors/tensors/tensor_view.hpp"

namespace gradvane::agent {

StepLosses::StepLosses(collectors::Handoff& handoff) : handoff_(handoff) { reader_.resize(1); }

void StepLosses::resize(int ring_slots, std::uint64_t plan_id) {
  device_reads_.resize({kernels::Site::loss}, ring_slots, plan_id);
}

void StepLosses::add(const collectors::Tensor& loss) noexcept {
  losses_.add(loss, Losses::From::loop, device_reads_);
}

void StepLosses::log(const collectors::Tensor& loss) noexcept {
  collectors::OpenStep& last = handoff_.newest();
  if (!last.is_behind_it()) is_of_step_in_progress_ = true;
  if (!is_of_step_in_progress_ && last_has_loss_) {
    if (device_reads_.takes(loss)) return;
    collectors::OpenStep::Addition addition(last);
    if (const auto value = collectors::scalar_value(loss); value && addition)
      addition.add({.of = collectors::LateValue::Of::loss, .value = *value});
    return;
  }
  add(loss);
}

void StepLosses::add(Losses& own, const collectors::Tensor& loss, Losses::From from) noexcept {
  own.add(loss, from, device_reads_);
}

void StepLosses::read(const Losses& own, std::uint64_t plan_id,
                      collectors::StepFacts& facts) noexcept {
  const Losses& losses = of(own);
  if (losses.on_device()) {
    (void)device_reads_.set(0, losses.device_sum());
    (void)read_on_devices(device_reads_, collectors::SlotRole::loss, facts, handoff_);
    facts.losses = losses.device_divisor();
    return;
  }
  if (!losses.on_host()) return;
  value_ = losses.host_value();
  reader_.set_scalar(0, &value_);
  if (!reader_.read()) return;
  constexpr std::array kSites{kernels::Site::loss};
  facts.reads.set_on_host(collectors::SlotRole::loss,
                          handoff_.publish(plan_id, kSites, reader_.stats()));
}

void StepLosses::pass_on_sources() noexcept { agent::pass_on_sources(device_reads_, handoff_); }

}  // namespace gradvane::agent
