#include "agent/snapshots/copies.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "collectors/tensors/tensor.hpp"

namespace gradvane::agent {
namespace {

void copy_on_host(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) (void)to[i].copy_(from[i]);
}

}  // namespace

void Copies::writes_on(c10::Stream stream) {
  if (std::ranges::find(writers_, stream) == writers_.end()) writers_.push_back(stream);
}

std::vector<c10::Stream> Copies::writers_of(c10::Device device) {
  writes_on(streams_->current(device));
  std::vector<c10::Stream> found;
  for (const c10::Stream& writer : writers_)
    if (writer.device() == device) found.push_back(writer);
  return found;
}

void Copies::order(c10::Stream stream, const std::vector<c10::Stream>& before) {
  for (const c10::Stream& other : before)
    if (other != stream) streams_->wait(stream, streams_->record(other));
}

std::vector<Copies::Part> Copies::by_device(const std::vector<at::Tensor>& to,
                                            const std::vector<at::Tensor>& from,
                                            const std::vector<at::Tensor>& placed) const {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const c10::Device device = streams_->device_of(placed[i]);
    auto found = std::ranges::find(parts, device, &Part::device);
    if (found == parts.end()) found = parts.insert(parts.end(), Part{device, {}, {}, {}});
    found->to.push_back(to[i]);
    found->from.push_back(from[i]);
    found->indices.push_back(i);
  }
  // The devices' run while the host copies.
  (void)std::ranges::stable_partition(parts,
                                      [](const Part& part) { return !part.device.is_cpu(); });
  return parts;
}

Flight Copies::out(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                   const std::vector<bool>& at_once, bool overlaps) {
  Flight flight;
  for (const Part& part : by_device(to, from, from)) {
    if (part.device.is_cpu()) {
      copy_on_host(part.to, part.from);
      continue;
    }
    const collectors::OwnCalls ours = own();
    const c10::Stream side = streams_->side(part.device);
    const std::vector<c10::Stream> writers = writers_of(part.device);
    order(side, writers);
    std::vector<at::Tensor> first_to, first_from, rest_to, rest_from;
    for (std::size_t i = 0; i < part.indices.size(); ++i) {
      const bool waits = at_once[part.indices[i]] || !overlaps;
      (waits ? first_to : rest_to).push_back(part.to[i]);
      (waits ? first_from : rest_from).push_back(part.from[i]);
    }
    Streams::Event done;
    if (!first_to.empty()) {
      streams_->copy(side, first_to, first_from);
      done = streams_->record(side);
      for (const c10::Stream& writer : writers) streams_->wait(writer, done);
    }
    if (!rest_to.empty()) {
      streams_->copy(side, rest_to, rest_from);
      done = streams_->record(side);
      flight.is_gated = false;
      for (const at::Tensor& tensor : rest_from)
        flight.versions.emplace_back(tensor, collectors::version_of(tensor));
    }
    flight.events.emplace_back(part.device, std::move(done));
    flight.held.insert(flight.held.end(), part.from.begin(), part.from.end());
  }
  return flight;
}

bool Copies::gate(Flight& flight) {
  if (flight.is_gated) return true;
  const collectors::OwnCalls ours = own();
  for (const auto& [device, event] : flight.events)
    for (const c10::Stream& writer : writers_of(device)) streams_->wait(writer, event);
  flight.is_gated = true;
  const bool is_unchanged = std::ranges::all_of(flight.versions, [](const auto& one) {
    return collectors::version_of(one.first) == one.second;
  });
  flight.versions.clear();
  return is_unchanged;
}

bool Copies::has_landed(Flight& flight) {
  const collectors::OwnCalls ours = own();
  const bool landed = std::ranges::all_of(
      flight.events, [this](const auto& one) { return streams_->has_landed(one.second); });
  if (landed) flight.held.clear();
  return landed;
}

void Copies::land(Flight& flight) {
  if (flight.events.empty()) return;
  const collectors::OwnCalls ours = own();
  for (const auto& [device, event] : flight.events)
    if (!streams_->has_landed(event)) streams_->wait_on_host(event);
  flight.held.clear();
}

Flight Copies::back(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  Flight flight;
  for (const Part& part : by_device(to, from, to)) {
    if (part.device.is_cpu()) {
      copy_on_host(part.to, part.from);
      continue;
    }
    const collectors::OwnCalls ours = own();
    const c10::Stream current = streams_->current(part.device);
    const std::vector<c10::Stream> writers = writers_of(part.device);
    if (synchronizes_devices_) {
      streams_->synchronize(part.device);
    } else {
      order(current, writers);
      order(current, {streams_->side(part.device)});
    }
    streams_->copy(current, part.to, part.from);
    Streams::Event done = streams_->record(current);
    for (const c10::Stream& writer : writers)
      if (writer != current) streams_->wait(writer, done);
    flight.events.emplace_back(part.device, std::move(done));
  }
  return flight;
}

}  // namespace gradvane::agent
