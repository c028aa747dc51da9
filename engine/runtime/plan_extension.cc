#include "engine/runtime/plan_extension.h"

#include <atomic>

namespace replicant::runtime {
namespace {

std::atomic<PlanExtension*> extension_in_force = nullptr;

}  // namespace

PlanExtension* PlanExtensionInForce() { return extension_in_force; }

void SetPlanExtension(PlanExtension* extension) {
  extension_in_force = extension;
}

}  // namespace replicant::runtime
