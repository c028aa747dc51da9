#include "learner/parameter_publisher.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "engine/runtime/parameters.h"

namespace replicant::learner {
namespace {

// Longest time until the thread notices a new value.
constexpr auto kInterval = std::chrono::milliseconds(20);

rpc::PublisherOptions WithKey(const rpc::GroupKey& key) {
  rpc::PublisherOptions options;
  options.socket.curve = key.server_role();
  return options;
}

}  // namespace

ParameterPublisher::ParameterPublisher(const std::string& endpoint,
                                       const rpc::GroupKey& key)
    : guard_(key.MakeGuard(context_)),
      publisher_(context_,
                 rpc::Protocol::FromTable(runtime::kParameterProtocol,
                                          runtime::kParameterVersion,
                                          runtime::kParameterTable),
                 WithKey(key)),
      endpoint_(publisher_.Bind(endpoint)) {
  publisher_.DetachFromThread();
  thread_.emplace("parameters",
                  [this](const Thread::StopToken& stop) { Run(stop); });
}

void ParameterPublisher::Publish(const std::string& topic, uint64_t version,
                                 const std::string& bytes) {
  rpc::Message payload = rpc::MakeMessage(rpc::Frame::Copy(bytes));
  // here, since an exception in the thread would end the process
  try {
    publisher_.CheckPayload(topic, payload);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        fmt::format("{}; hint: a smaller network", error.what()));
  }
  const MutexLock lock(mutex_);
  waiting_[topic] = {version, std::move(payload)};
}

void ParameterPublisher::Run(const Thread::StopToken& stop) {
  while (!stop.IsStopRequested()) {
    std::map<std::string, Value> values;
    {
      const MutexLock lock(mutex_);
      values.swap(waiting_);
    }
    for (auto& [topic, value] : values) {
      publisher_.Publish(topic, value.version, std::move(value.payload));
    }
    if (publisher_.Process(kInterval) == rpc::ReceiveResult::kClosed) break;
  }
  // the destructor runs in another thread
  publisher_.DetachFromThread();
}

}  // namespace replicant::learner
