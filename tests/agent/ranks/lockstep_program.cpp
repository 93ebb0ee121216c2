// One rank of a training on several processes, as its arguments say: rank, ranks, store, what, patience in seconds.
// lockstep_test.py starts all of them and reads what each prints.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <gradvane/torch_store.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "tests/agent/training.hpp"

namespace {

using gradvane::Agent;
using gradvane::AllGather;
using gradvane::Options;
using gradvane::test::kNan;
using gradvane::test::Training;

constexpr int kSteps = 12;
constexpr int kBadStep = 6;  // from 1

/// The program's own reduction: the mean over ranks, as DDP has it.
void reduce(Training& training, const AllGather& gather, int ranks) {
  for (const at::Tensor& gradient : training.gradients()) {
    const auto* bytes = static_cast<const char*>(gradient.const_data_ptr());
    at::Tensor sum = at::zeros_like(gradient);
    for (std::string& one : gather({bytes, gradient.nbytes()}))
      sum += at::from_blob(one.data(), gradient.sizes(), gradient.options());
    gradient.copy_(sum / ranks);
  }
}

/// The last one of the smallest element's mantissa: no norm shows it.
void flip_a_bit(const at::Tensor& tensor) {
  auto* bits = reinterpret_cast<std::uint32_t*>(tensor.mutable_data_ptr<float>());
  bits[tensor.numel() / 2] ^= 1U;
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return 2;
  const int rank = std::atoi(words[1]);
  const int ranks = std::atoi(words[2]);
  const std::string what = words[4];
  const auto patience = std::chrono::seconds(std::atoi(words[5]));
  at::set_num_threads(1);
  const auto store = c10::make_intrusive<c10d::FileStore>(words[3], ranks);
  const auto own = [&](const char* name) {
    return gradvane::gather_over_store(c10::make_intrusive<c10d::PrefixStore>(name, store), rank,
                                       ranks, patience);
  };
  const AllGather program_gather = own("program");

  Training training;
  Options options = gradvane::test::quiet();
  options.rank = rank;
  options.world_size = ranks;
  options.ranks = what == "off" ? gradvane::RankAgreement::off : gradvane::RankAgreement::agree;
  options.on_nonfinite =
      what == "rollback" ? gradvane::NonfinitePolicy::rollback : gradvane::NonfinitePolicy::skip;
  options.snapshot_every = what == "rollback" ? 1 : 0;
  options.compare_replicas_every = what == "flip" ? 2 : 0;
  options.check_before_reduction = what == "gradient, looked at";
  options.log = [](std::string_view line) { std::cerr << line << '\n'; };
  int gathers = 0;  // of all ranks, for the agent
  std::optional<Agent> agent;
  if (what != "without") {
    agent.emplace(options);
    AllGather gather = own("agent");
    gradvane::GatherAmong among;
    gather = [inner = gather, &gathers](const std::string& mine) {
      ++gathers;
      return inner(mine);
    };
    if (what == "two nodes")
      among = gradvane::gather_among_over_store(
          c10::make_intrusive<c10d::PrefixStore>("nodes", store), rank, patience);
    // Nodes are told apart by what the ranks say of them first.
    if (what.ends_with("nodes"))
      gather = [inner = gather, calls = 0, rank](const std::string& mine) mutable {
        std::string told = mine;
        if (++calls == 1) told[told.find('\n') + 1] = rank % 2 == 0 ? 'x' : 'y';
        return inner(told);
      };
    if (options.ranks == gradvane::RankAgreement::agree) agent->agree_over(gather, among);
    agent->attach(*training.model, *training.optimizer);
  }

  nlohmann::json left_out = nlohmann::json::array();
  // A rollback brings the random numbers back too, and so the batch.
  for (int step = 1; step <= (agent ? kSteps : kSteps - 1); ++step) {
    at::Tensor loss = training.backward();
    if (what == "accumulate") agent->micro_step(loss);
    if (step == kBadStep && agent) {
      if (what == "killed" && rank == 1) ::_exit(3);
      if (what == "left" && rank == 1) agent->stop();
      if (what == "flip" && rank == 2) flip_a_bit(training.parameter("3.weight"));
      if (what.starts_with("gradient")) {
        if (rank == 2) training.parameter("3.weight").mutable_grad().view(-1)[5] = kNan;
      } else if (what != "left" && what != "flip" && rank == ranks - 1) {
        loss = loss + kNan;  // its gradients are fine: no other rank can see it
      }
    }
    if (agent) agent->before_reduction();
    if (what != "killed" || step < kBadStep) reduce(training, program_gather, ranks);
    const auto before = training.weight_bytes();
    if (agent)
      (void)agent->step(*training.optimizer, loss);
    else
      training.optimizer->step();
    if (training.weight_bytes() == before) left_out.push_back(step);
  }
  std::uint64_t hash = 1469598103934665603U;
  for (const char byte : training.weight_bytes())
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  nlohmann::json said{{"left_out", left_out}, {"weights", hash}};
  if (agent) {
    (void)agent->flush();
    said["gathers"] = gathers;
    said["skipped"] = agent->governor().skipped_steps;
    agent->stop();
  }
  std::cout << said << '\n';
  return 0;
}
