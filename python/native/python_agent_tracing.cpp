// PythonAgent's part in a step that is watched for the first module that goes bad.
#include <chrono>
#include <utility>

#include "python/native/python_agent.hpp"

namespace gradvane::python {

std::unique_ptr<collectors::FiniteChecks> PythonAgent::finite_checks() {
  return std::make_unique<collectors::FiniteChecks>(session_.ledger());
}

std::vector<int> PythonAgent::take_checks(collectors::FiniteChecks& checks, double seconds) {
  const agent::Clock::time_point begin = agent::Clock::now();
  const collectors::FiniteChecks::Answers answers = checks.take();  // may wait: nobody waits for us
  std::vector<int> of;
  of.reserve(answers.of.size());
  for (const collectors::Finiteness one : answers.of) of.push_back(static_cast<int>(one));
  const Turn turn(*this);
  if (!session_.live()) return of;
  session_.recorder().excuse_syncs(answers.host_syncs);
  const std::chrono::duration<double> hooks(seconds);
  session_.recorder().add_agent_time(agent::Clock::now() - begin +
                                     std::chrono::duration_cast<agent::Clock::duration>(hooks));
  return of;
}

std::int64_t PythonAgent::trace_found(int optimizer, record::TracedModule found) {
  const Turn turn(*this);
  if (!session_.live()) return 0;
  found.run_step = session_.recorder().run_step(optimizer);
  const std::int64_t run_step = found.run_step;
  session_.worker().trace_found(std::move(found));
  return run_step;
}

}  // namespace gradvane::python
