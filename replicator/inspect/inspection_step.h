#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "replicator/replicator.h"

namespace replicant::replicator {

// A step that was built for inspection and does not run: Run() and value()
// throw InvalidArgument with `reason`.
class InspectionStep : public Step {
 public:
  explicit InspectionStep(std::string reason) : reason_(std::move(reason)) {}

  NextResult Run(Clock::TimePoint /*deadline*/) override { Fail(); }
  TensorView value(std::string_view /*name*/) const override { Fail(); }
  const runtime::PlanReport& report() const override { return report_; }

 private:
  [[noreturn]] void Fail() const { throw InvalidArgument(reason_); }

  const std::string reason_;
  runtime::PlanReport report_;
};

}  // namespace replicant::replicator
