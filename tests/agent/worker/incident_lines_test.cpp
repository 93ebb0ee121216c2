// What a person reads of an incident, line by line.
#include "agent/worker/incident_lines.hpp"

#include <gtest/gtest.h>

namespace gradvane::agent {
namespace {

record::Incident bad_gradient() {
  record::Incident incident;
  incident.id = 1;
  incident.kind = record::IncidentClass::nonfinite_grad;
  incident.first_step = incident.last_step = 40;
  incident.steps = 1;
  incident.evidence = "Step 40: the gradient of w became nan.";
  return incident;
}

TEST(IncidentLines, SayAllThatIsKnownOnceAndThenOnlyWhatIsNew) {
  IncidentLines lines;
  record::Incident incident = bad_gradient();
  EXPECT_EQ(lines.next(incident), "Step 40: the gradient of w became nan.");
  EXPECT_EQ(lines.next(incident), std::nullopt);
  incident.evidence += " Step 41: the loss became nan too.";
  EXPECT_EQ(lines.next(incident),
            "nonfinite_grad of step 40, more: Step 41: the loss became nan too.");
  incident.steps = 12;
  incident.last_step = 51;
  incident.closed_at = 1.0;
  EXPECT_EQ(lines.next(incident),
            "cleared: nonfinite_grad of step 40: 12 bad steps, the last one 51");
}

TEST(IncidentLines, OneThatComesBackIsNotToldInItsOldWords) {
  IncidentLines lines;
  record::Incident incident = bad_gradient();
  incident.kind = record::IncidentClass::loss_spike;
  (void)lines.next(incident);
  incident.closed_at = 1.0;
  EXPECT_EQ(lines.next(incident), "cleared: loss_spike of step 40");
  incident.closed_at.reset();
  incident.last_step = 60;
  incident.steps = 2;
  incident.reopened = 1;
  EXPECT_EQ(lines.next(incident), "back at step 60: loss_spike of step 40, 2 bad steps by now");
}

TEST(IncidentLines, ManyIncidentsDoNotGrowWhatIsKept) {
  IncidentLines lines;
  record::Incident incident = bad_gradient();
  for (incident.id = 1; incident.id <= 1000; ++incident.id)
    EXPECT_EQ(lines.next(incident), incident.evidence);
  incident.id = 1000;
  EXPECT_EQ(lines.next(incident), std::nullopt);
  incident.id = 1;  // it was open all the time, and is no longer known
  incident.closed_at = 1.0;
  EXPECT_EQ(lines.next(incident), "cleared: nonfinite_grad of step 40");
}

}  // namespace
}  // namespace gradvane::agent
