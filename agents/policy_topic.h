#pragma once

namespace replicant::agents {

// The topic (engine/runtime/parameters.h) under which the learner publishes the
// policy and actors subscribe to it.
inline constexpr const char* kPolicyTopic = "policy";

}  // namespace replicant::agents
