#pragma once
// The fields of every record, with the ids they have in a recording. An id is for good: a new field takes the
// next free one of its struct and stands at the end, one that goes leaves its id unused.
// tests/exporters/recording/codec_test.cpp fails to compile when a struct has a field that is not here.
#include <cstdint>
#include <limits>

#include "exporters/recording/archive.hpp"
#include "record/tensor_numbers.hpp"

namespace gradvane::exporters::recording {

void describe(auto& a, like<record::FirstNonfinite> auto& r) {
  a(1, r.site);
  a(2, r.kind);
  a(3, r.param);
  a(4, r.element);
}

void describe(auto& a, like<record::StepSyncs> auto& r) {
  a(1, r.calls);
  a(2, r.seconds);
  a(3, r.polls);
}

/// Numbers that are joined over tensors, which have their ids in record/tensor_numbers.hpp: those from `from` on
/// and below `until`. Fields are in the order of their ids.
void describe_joined(auto& a, like<record::StepRecord> auto& r, std::uint32_t from,
                     std::uint32_t until) {
  for (const record::TensorNumber& number : record::kTensorNumbers)
    if (number.step != nullptr && number.step_recording_id >= from &&
        number.step_recording_id < until)
      a(number.step_recording_id, r.*number.step);
}

void describe(auto& a, like<record::StepRecord> auto& r) {
  a(1, r.step);
  a(2, r.run_step);
  a(3, r.optimizer);
  a(4, r.micro_steps);
  a(5, r.time);
  a(6, r.monotonic);
  a(7, r.loss);
  a(8, r.grad_norm);
  a(9, r.grad_norm_at_step);
  a(10, r.shard_grad_norm);
  a(11, r.norm_contribution);
  a(12, r.clip_coefficient);
  a(13, r.loss_scale);
  a(14, r.read_at);
  a(15, r.skipped);
  a(16, r.overflow_persists);
  a(17, r.grad_numel);
  a(18, r.grad_zero);
  a(19, r.grad_subnormal);
  describe_joined(a, r, 20, 21);
  a(21, r.grad_health);
  a(22, r.vanishing);
  a(23, r.exploding);
  a(24, r.params);
  a(25, r.nonfinite);
  a(26, r.site_measured);
  a(27, r.first_nonfinite);
  a(28, r.first_by_site);
  a(29, r.nonfinite_total);
  a(30, r.nonfinite_steps_total);
  a(31, r.weight_norm);
  a(32, r.update_ratio);
  a.prefix(33, r.lr, r.lr_count);
  a.prefix(34, r.user, r.user_count);
  a(35, r.step_seconds);
  a(36, r.phase_seconds);
  a(37, r.agent_seconds);
  a(38, r.tokens);
  a(39, r.samples);
  a(40, r.process_resident_bytes);
  a(41, r.device_allocated_bytes);
  a(42, r.device_reserved_bytes);
  a(43, r.syncs);
  a(44, r.own_sync_budget);
  a(45, r.dropped_before);
  a(46, r.contiguous_copies);
  a(47, r.bad_micro_step);
  describe_joined(a, r, 48, 50);
  a(50, r.device_peak_bytes);
  a(51, r.device_allocation_retries);
  a(52, r.device_out_of_memory);
  a(53, r.model_flops_utilization);
  a(54, r.first_bad_rank);
  a(55, r.rank_wait_seconds);
  a(56, r.device_limit_bytes);
  a(57, r.first_bad_loss);
  describe_joined(a, r, 58, std::numeric_limits<std::uint32_t>::max());  // the next free one is 58
}

void describe(auto& a, like<record::Appearance> auto& r) {
  a(1, r.site);
  a(2, r.run_step);
  a(3, r.first);
  a(4, r.param);
  a(5, r.counts);
  a(6, r.last_finite);
}

void describe(auto& a, like<record::TracedModule> auto& r) {
  a(1, r.name);
  a(2, r.type);
  a(3, r.is_backward);
  a(4, r.run_step);
  a(5, r.at);
  a(6, r.micro_step);
}

void describe(auto& a, like<record::Incident> auto& r) {
  a(1, r.id);
  a(2, r.kind);
  a(3, r.rank);
  a(4, r.first_step);
  a(5, r.last_step);
  a(6, r.steps);
  a(7, r.reopened);
  a(8, r.opened_at);
  a(9, r.closed_at);
  a(10, r.first);
  a(11, r.param);
  a(12, r.group);
  a(13, r.order);
  a(14, r.began_in);
  a(15, r.micro_step);
  a(16, r.module);
  a(17, r.evidence);
  a(18, r.last_good_step);
  a(19, r.last_good_checkpoint);
}

void describe(auto& a, like<record::Setting> auto& r) {
  a(1, r.key);
  a(2, r.value);
  a(3, r.source);
  a(4, r.since);
}

void describe(auto& a, like<record::RunInfo> auto& r) {
  a(1, r.run);
  a(2, r.rank);
  a(3, r.local_rank);
  a(4, r.world_size);
  a(5, r.host);
  a(6, r.pid);
  a(7, r.version);
  a(8, r.torch_version);
  a(9, r.start_time);
  a(10, r.settings);
  a(11, r.run_id);
}

void describe(auto& a, like<record::ParamInfo> auto& r) {
  a(1, r.name);
  a(2, r.aliases);
  a(3, r.group);
  a(4, r.shape);
  a(5, r.numel);
  a(6, r.dtype);
  a(7, r.device);
  a(8, r.requires_grad);
}

void describe(auto& a, like<record::DeviceInfo> auto& r) {
  a(1, r.device);
  a(2, r.uuid);
  a(3, r.name);
}

void describe(auto& a, like<record::ModelInfo> auto& r) {
  a(1, r.id);
  a(2, r.params);
  a(3, r.groups);
  a(4, r.optimizers);
  a(5, r.user_metrics);
  a(6, r.devices);
}

void describe(auto& a, like<record::SyncTally> auto& r) {
  a(1, r.calls);
  a(2, r.seconds);
}

void describe(auto& a, like<record::SyncSite> auto& r) {
  a(1, r.id);
  a(2, r.kind);
  a(3, r.origin);
  a(4, r.phase);
  a(5, r.location);
  a(6, r.file);
  a(7, r.line);
  a(8, r.function);
  a(9, r.stack);
  a(10, r.thread);
  a(11, r.total);
  a(12, r.max_seconds);
  a(13, r.in_steps);
}

void describe(auto& a, like<record::SyncSummary> auto& r) {
  a(1, r.source);
  a(2, r.reason);
  a(3, r.detail);
  a(4, r.totals);
  a(5, r.by_phase);
  a(6, r.polls);
  a(7, r.dropped);
  a(8, r.covered_seconds);
  a(9, r.blind_seconds);
  a(10, r.gaps);
  a(11, r.steps);
  a(12, r.budget);
  a(13, r.own_budget);
  a(14, r.steps_over);
  a(15, r.steps_uncounted);
  a(16, r.most_in_step);
  a(17, r.most_in_step_at);
  a(18, r.sites);
  a(19, r.whole_steps);
  a(20, r.parts);
}

}  // namespace gradvane::exporters::recording
