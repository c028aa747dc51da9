#include "fleet/scale_orders.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/file_limit.h"

namespace replicant::fleet {
namespace {

// A connection, a descriptor and a log for each process, and others.
void CheckFiles(const std::string& what, int64_t num_processes) {
  CheckFileLimit(what, 100 + 3 * num_processes);
}

}  // namespace

ScaleOrders::ScaleOrders(const std::map<std::string, ScalableRole>* roles,
                         int64_t num_processes)
    : roles_(*roles), num_processes_(num_processes) {
  CheckFiles("actors.count", num_processes);
  for (const auto& [name, role] : roles_) counts_[name] = role.count;
}

ScaleReply ScaleOrders::Take(const ScaleRequest& request) {
  const auto refuse = [](std::string why) {
    return ScaleReply{.refusal = std::move(why)};
  };
  const auto found = roles_.find(request.role);
  if (found == roles_.end()) {
    std::string allowed;
    for (const auto& [name, role] : roles_) {
      allowed += (allowed.empty() ? "" : ", ") + name;
    }
    return refuse(
        fmt::format("role '{}' has a fixed number of processes; "
                    "allowed: {}",
                    request.role, allowed.empty() ? "no role" : allowed));
  }
  const ScalableRole& role = found->second;
  if (request.count < 1 || request.count > role.max_count) {
    return refuse(
        fmt::format("{} is outside [1, {}]{}{}", request.count, role.max_count,
                    role.why_no_more.empty() ? "" : ": ", role.why_no_more));
  }
  MutexLock lock(mutex_);
  int64_t& count = counts_.at(request.role);
  const int64_t num_processes = num_processes_ - count + request.count;
  try {
    CheckFiles(fmt::format("{}={}", request.role, request.count),
               num_processes);
  } catch (const ConfigError& error) {
    return refuse(error.what());
  }
  const ScaleReply reply{.previous = static_cast<uint32_t>(count)};
  num_processes_ = num_processes;
  count = request.count;
  wanted_[request.role] = request;
  return reply;
}

void ScaleOrders::CarryOut(Supervisor* supervisor) {
  std::map<std::string, ScaleRequest> wanted;
  {
    MutexLock lock(mutex_);
    wanted.swap(wanted_);
  }
  for (const auto& [name, request] : wanted) {
    if (supervisor->IsStopping()) return;
    const ScalableRole& role = roles_.at(name);
    const auto count = int64_t{request.count};
    spdlog::info("{} asks for {} processes of role {}", request.who, count,
                 name);
    supervisor->SetCount(
        name, request.count,
        [&role, count](uint32_t index) { return role.make(index, count); },
        "fewer processes of the role are wanted");
    role.keep(count);
  }
}

}  // namespace replicant::fleet
