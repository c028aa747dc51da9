#include "engine/graph/process_hooks.h"

#include <atomic>

namespace replicant::graph {
namespace {

std::atomic<const ProcessHooks*> hooks_in_force = nullptr;

}  // namespace

const ProcessHooks* ProcessHooksInForce() { return hooks_in_force; }

void SetProcessHooks(const ProcessHooks* hooks) { hooks_in_force = hooks; }

}  // namespace replicant::graph
