#include "replicator/steps/device_team.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace replicant::replicator {
namespace {

// How often a step under way is looked at.
constexpr auto kWatchInterval = std::chrono::milliseconds(20);

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What f() returns in each process, by process. A failure of one is thrown by
// all.
template <typename Function>
std::vector<std::string> GatherOrThrow(Processes& processes,
                                       const Function& f) {
  std::string own;
  std::exception_ptr error;
  try {
    own = "+" + f();
  } catch (const Error& e) {
    error = std::current_exception();
    own = fmt::format("-{}", e.what());
  }
  std::vector<std::string> all = processes.Gather(own);
  if (error) std::rethrow_exception(error);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].starts_with('-')) {
      throw CommError(fmt::format("process {}: {}", i, all[i].substr(1)));
    }
    all[i].erase(0, 1);
  }
  return all;
}

// The device of each replica of all processes, by rank.
std::vector<std::string> GatherDevices(
    const std::vector<DeviceTeam::Member>& members, Processes& processes) {
  const auto all = GatherOrThrow(processes, [&] {
    std::string text;
    for (const DeviceTeam::Member& member : members) {
      text += member.backend->collectives()->device_id() + "\n";
    }
    return text;
  });
  std::vector<std::string> devices;
  for (const std::string& text : all) {
    std::ranges::move(Lines(text), std::back_inserter(devices));
  }
  return devices;
}

// Throws unless all replicas have different devices.
void CheckOwnDevices(const std::vector<std::string>& devices) {
  std::map<std::string, size_t> first;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const auto [place, is_new] = first.emplace(devices[rank], rank);
    if (is_new) continue;
    throw ConfigError(fmt::format(
        "replication: replicas {} and {} of {} are on one device; allowed: "
        "each on a device of its own, or all of one process on one; hint: set "
        "learner.replication.devices, or collectives: host",
        place->second, rank, devices.size()));
  }
}

// Throws unless all processes have the same library.
void CheckLibraries(const std::vector<std::string>& libraries) {
  for (size_t i = 1; i < libraries.size(); ++i) {
    if (libraries[i] == libraries[0]) continue;
    throw DeviceError(
        fmt::format("process 0 has {}, process {} has {}; hint: install the "
                    "same on all hosts, or set "
                    "learner.replication.collectives: host",
                    libraries[0], i, libraries[i]));
  }
}

std::string ToHex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::string FromHex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace

std::unique_ptr<DeviceTeam> DeviceTeam::Connect(
    const std::vector<Member>& members, Processes& processes,
    const comm::CommunicatorOptions& options) {
  if (members[0].backend->collectives() == nullptr ||
      members[0].host->size() == 1) {
    return nullptr;
  }
  const std::vector<std::string> devices = GatherDevices(members, processes);
  std::unique_ptr<DeviceTeam> team(new DeviceTeam(options));
  for (const Member& member : members) {
    team->members_.push_back({.host = member.host});
  }
  const bool is_shared =
      processes.size() == 1 && std::ranges::all_of(devices, [&](const auto& d) {
        return d == devices[0];
      });
  if (is_shared) {
    team->ShareDevice(members);
    return team;
  }
  CheckOwnDevices(devices);
  team->ConnectDevices(members, processes);
  return team;
}

void DeviceTeam::ShareDevice(const std::vector<Member>& members) {
  std::vector<kernels::Backend*> backends;
  backends.reserve(members.size());
  for (const Member& member : members) backends.push_back(member.backend);
  auto communicators = MakeSharedDeviceCommunicators(backends, options_);
  for (size_t i = 0; i < members.size(); ++i) {
    members_[i].communicator = std::move(communicators[i]);
  }
}

void DeviceTeam::ConnectDevices(const std::vector<Member>& members,
                                Processes& processes) {
  kernels::DeviceCollectives& first = *members[0].backend->collectives();
  CheckLibraries(GatherOrThrow(processes, [&] { return first.library(); }));
  // one group for all; the others' is not used
  const std::string group = FromHex(GatherOrThrow(processes, [&] {
    return processes.rank() == 0 ? ToHex(first.NewGroup()) : std::string();
  })[0]);
  try {
    // making one does not wait, so that one thread can make all
    for (size_t i = 0; i < members.size(); ++i) {
      members_[i].communicator = MakeLibraryCommunicator(
          *members[i].backend, group, members[i].host, options_);
    }
    for (Watch& member : members_) member.communicator->AwaitOthers();
  } catch (const Error& e) {
    // the other processes must not wait for this one
    for (Watch& member : members_) {
      member.host->Abort(e.what());
      if (member.communicator) member.communicator->Abort(e.what());
    }
    throw;
  }
  thread_.emplace("device-watch",
                  [this](const Thread::StopToken&) { WatchAll(); });
}

DeviceTeam::~DeviceTeam() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.reset();
  for (const Watch& member : members_) {
    if (member.communicator) member.communicator->Leave();
  }
}

void DeviceTeam::Abort(const std::string& reason) {
  for (const Watch& member : members_) member.communicator->Abort(reason);
}

void DeviceTeam::Begin(size_t replica) {
  const MutexLock lock(mutex_);
  Watch& member = members_[replica];
  if (member.num_running++ == 0) {
    member.deadline = Clock::Real().Now() + options_.timeout;
  }
  ++num_running_;
  if (is_idle_) changed_.NotifyAll();
}

void DeviceTeam::End(size_t replica) {
  const MutexLock lock(mutex_);
  --members_[replica].num_running;
  --num_running_;
}

void DeviceTeam::ThrowIfFailed(size_t replica) {
  const DeviceCommunicator& communicator = *members_[replica].communicator;
  const std::string failure = communicator.failure();
  if (failure.empty()) return;
  // the failure may be this replica's own
  throw CommError(failure.starts_with(communicator.name())
                      ? failure
                      : fmt::format("{}: {}", communicator.name(), failure));
}

void DeviceTeam::WatchAll() {
  const MutexLock lock(mutex_);
  while (!is_stopped_) {
    if (num_running_ == 0) {
      is_idle_ = true;
      changed_.Wait(mutex_);
      is_idle_ = false;
      continue;
    }
    Clock::Real().WaitUntil(mutex_, changed_,
                            Clock::Real().Now() + kWatchInterval,
                            [&]() REQUIRES(mutex_) { return is_stopped_; });
    if (is_stopped_) return;
    const std::string failure = FindFailure();
    if (failure.empty()) continue;
    mutex_.Unlock();
    Abort(failure);
    for (const Watch& member : members_) member.host->Abort(failure);
    mutex_.Lock();
  }
}

std::string DeviceTeam::FindFailure() {
  for (const Watch& member : members_) {
    if (member.num_running == 0) continue;
    DeviceCommunicator& communicator = *member.communicator;
    // an abort is already known
    if (!communicator.failure().empty()) continue;
    std::string problem = communicator.Poll();
    if (problem.empty() && Clock::Real().Now() >= member.deadline) {
      problem = fmt::format(
          "waited {} s for the others; the last call launched is {}",
          ToSeconds(options_.timeout), communicator.last_call());
    }
    if (problem.empty()) continue;
    return fmt::format("{}: {}", communicator.name(), problem);
  }
  return {};
}

}  // namespace replicant::replicator
