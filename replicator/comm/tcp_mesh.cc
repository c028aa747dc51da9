#include "replicator/comm/tcp_mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rpc/fields.h"

namespace replicant::comm {
namespace {

// "RTCP": the first bytes of every frame, with the version of the protocol.
constexpr uint32_t kMagic = 0x50435452;
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxFrameBytes = 1 << 20;
constexpr uint32_t kMaxTextBytes = 4096;
// Time for one frame of somebody who has connected.
constexpr auto kFrameTime = std::chrono::seconds(5);
// Time between two attempts to reach process 0.
constexpr auto kRetry = std::chrono::milliseconds(50);

// All interfaces of a host, for its address family.
std::string AnyHost(const TcpAddress& address) {
  return address.host.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

// The beginning of every frame.
template <class V>
void StartFields(V& v) {
  uint32_t magic = kMagic;
  v.Number("magic", &magic);
  if (magic != kMagic) {
    throw CommError("it is not a process of Replicant");
  }
  uint32_t version = kVersion;
  v.Number("version", &version);
  if (version != kVersion) {
    throw CommError(
        fmt::format("its version is {}, want {}", version, kVersion));
  }
}

// The one that connects says this first.
struct Join {
  static constexpr std::string_view kName = "comm.join";

  std::string key;
  std::string description;
  uint32_t num_processes = 0;
  uint32_t process = 0;
  // where it listens
  uint16_t port = 0;
  std::string place;

  template <class V>
  void Fields(V& v) {
    StartFields(v);
    v.String("key", &key, kMaxTextBytes);
    v.String("description", &description, kMaxTextBytes);
    v.Number("num_processes", &num_processes);
    v.Number("process", &process);
    v.Number("port", &port);
    v.String("place", &place, kMaxTextBytes);
  }
};

// What process 0 knows of another one.
struct Joined {
  TcpAddress address;
  std::string place;

  template <class V>
  void Fields(V& v) {
    v.String("host", &address.host, kMaxTextBytes);
    v.Number("port", &address.port);
    v.String("place", &place, kMaxTextBytes);
  }
};

// Process 0's answer: everyone's address and place, or why not.
struct Welcome {
  static constexpr std::string_view kName = "comm.welcome";

  std::string refusal;
  std::string key;
  std::vector<Joined> processes;

  template <class V>
  void Fields(V& v) {
    StartFields(v);
    v.String("refusal", &refusal, kMaxTextBytes);
    v.String("key", &key, kMaxTextBytes);
    v.List("count", &processes, /*max_count=*/UINT32_MAX);
  }
};

std::string RandomKey() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(),
                     random());
}

std::string NameOf(uint32_t process, uint32_t count, const std::string& place) {
  return fmt::format("rank {} of {} ({})", process, count, place);
}

Clock::TimePoint FrameDeadline(Clock::TimePoint deadline) {
  return std::min<Clock::TimePoint>(deadline, Clock::Real().Now() + kFrameTime);
}

// A meeting of one process with the others.
class Meeting {
 public:
  Meeting(const TcpGroup& group, std::chrono::milliseconds timeout)
      : group_(group),
        timeout_(timeout),
        deadline_(Clock::Real().Now() + timeout),
        count_(static_cast<size_t>(group.num_processes)) {
    mesh_.sockets.resize(count_);
    mesh_.places.resize(count_);
  }

  Clock::TimePoint deadline() const { return deadline_; }

  // Process 0, which listens already.
  TcpMesh Lead(TcpSocket listener, const std::string& key) {
    const TcpAddress own = listener.local();
    SetOwnPlace(own);
    joined_.resize(count_);
    mesh_.key = RandomKey();
    mesh_.bind_host = own.is_loopback() ? own.host : AnyHost(own);
    while (!AreAllThere()) {
      std::optional<TcpSocket> socket = listener.Accept(deadline_);
      if (!socket) FailForMissing();
      Admit(*std::move(socket), key);
    }
    for (size_t p = 1; p < count_; ++p) {
      mesh_.places[p] = fmt::format("{} at {}", joined_[p].place,
                                    joined_[p].address.ToString());
    }
    for (size_t p = 1; p < count_; ++p) {
      mesh_.sockets[p].SendFrame(rpc::EncodePart(WelcomeFor(p)).bytes(),
                                 FrameDeadline(deadline_));
    }
    return std::move(mesh_);
  }

  // Another process: tries once. Returns std::nullopt, and why in `problem`, if
  // process 0 is not there or another attempt may do better.
  std::optional<TcpMesh> TryJoin(const TcpAddress& address,
                                 const std::string& key, std::string* problem) {
    TcpSocket first;
    TcpSocket listener;
    std::vector<std::byte> answer;
    try {
      first = TcpSocket::Connect(address, FrameDeadline(deadline_));
      const TcpAddress remote = first.remote();
      mesh_.bind_host = remote.is_loopback() && !remote.IsOwnName()
                            ? first.local().host
                            : AnyHost(remote);
      listener = TcpSocket::Listen({.host = mesh_.bind_host});
      const TcpAddress own{first.local().host, listener.local().port};
      SetOwnPlace(own);
      first.SendFrame(
          rpc::EncodePart(
              Join{.key = key,
                   .description = group_.description,
                   .num_processes = static_cast<uint32_t>(group_.num_processes),
                   .process = static_cast<uint32_t>(group_.process),
                   .port = own.port,
                   .place = HostAndPid()})
              .bytes(),
          FrameDeadline(deadline_));
      answer = first.ReceiveFrame(kMaxFrameBytes, deadline_);
    } catch (const CommError& e) {
      *problem = fmt::format("rank 0 at {}: {}", address.ToString(), e.what());
      return std::nullopt;
    }
    Welcome welcome;
    try {
      welcome = rpc::DecodePart<Welcome>(answer);
    } catch (const CommError& e) {
      throw CommError(fmt::format("tcp: {} cannot join rank 0 at {}: {}",
                                  Name(), address.ToString(), e.what()));
    }
    if (!welcome.refusal.empty()) throw CommError(welcome.refusal);
    mesh_.key = welcome.key;
    mesh_.places.clear();
    for (const Joined& one : welcome.processes) {
      mesh_.places.push_back(one.place);
    }
    mesh_.sockets[0] = std::move(first);
    ConnectToLower(welcome);
    AcceptHigher(&listener);
    return std::move(mesh_);
  }

  [[noreturn]] void FailToJoin(const std::string& problem) const {
    throw CommError(fmt::format(
        "tcp: {} has not met the others in {} s: {}; hint: is rank 0 running, "
        "and is the rendezvous the same?",
        Name(), Seconds(), problem));
  }

 private:
  double Seconds() const { return static_cast<double>(timeout_.count()) / 1e3; }
  std::string Name() const {
    return NameOf(static_cast<uint32_t>(group_.process),
                  static_cast<uint32_t>(group_.num_processes), HostAndPid());
  }
  void SetOwnPlace(const TcpAddress& own) {
    mesh_.places[static_cast<size_t>(group_.process)] =
        fmt::format("{} at {}", HostAndPid(), own.ToString());
  }

  // --- process 0 ---

  bool AreAllThere() {
    bool are_there = true;
    for (size_t p = 1; p < count_; ++p) {
      TcpSocket& socket = mesh_.sockets[p];
      // one that has died meanwhile may come again
      if (socket.is_open() && socket.IsClosedByPeer()) socket = TcpSocket();
      are_there &= socket.is_open();
    }
    return are_there;
  }

  // Takes the process at the other end, or refuses it.
  void Admit(TcpSocket socket, const std::string& key) {
    TcpAddress address = socket.remote();
    std::string refusal;
    Join join;
    try {
      join = rpc::DecodePart<Join>(
          socket.ReceiveFrame(kMaxFrameBytes, FrameDeadline(deadline_)));
      refusal = ProblemOf(join, key);
    } catch (const CommError& e) {
      refusal = e.what();
    }
    if (refusal.empty()) {
      address.port = join.port;
      mesh_.sockets[join.process] = std::move(socket);
      joined_[join.process] = {std::move(address), std::move(join.place)};
      return;
    }
    refusal_ = fmt::format(
        "tcp: {} at {} refuses {} at {}: {}", Name(), socket.local().ToString(),
        join.place.empty()
            ? "a process"
            : NameOf(join.process, join.num_processes, join.place),
        address.ToString(), refusal);
    spdlog::warn("{}", refusal_);
    try {
      socket.SendFrame(rpc::EncodePart(Welcome{.refusal = refusal_}).bytes(),
                       FrameDeadline(deadline_));
    } catch (const CommError&) {
      // it has gone
    }
  }

  // Why the process cannot take part; empty if it can.
  std::string ProblemOf(const Join& join, const std::string& key) {
    if (join.key != key) return "its key is another";
    if (join.num_processes != count_) {
      return fmt::format("its group has {} processes, want {}",
                         join.num_processes, count_);
    }
    if (join.description != group_.description) {
      return fmt::format("its group is '{}', want '{}'", join.description,
                         group_.description);
    }
    if (join.process < 1 || join.process >= count_) {
      return fmt::format("its rank is not in [1, {})", count_);
    }
    TcpSocket& earlier = mesh_.sockets[join.process];
    if (earlier.is_open() && !earlier.IsClosedByPeer()) {
      return fmt::format("{} at {} has this rank", joined_[join.process].place,
                         joined_[join.process].address.ToString());
    }
    return {};
  }

  // The addresses as process `to` reaches them: those on the host of process 0
  // may be known by loopback only.
  Welcome WelcomeFor(size_t to) const {
    const TcpAddress here = mesh_.sockets[to].local();
    Welcome welcome{.key = mesh_.key};
    for (size_t p = 0; p < count_; ++p) {
      TcpAddress address = p == 0 ? here : joined_[p].address;
      if (address.is_loopback() && !here.is_loopback()) {
        address.host = here.host;
      }
      welcome.processes.push_back({std::move(address), mesh_.places[p]});
    }
    return welcome;
  }

  [[noreturn]] void FailForMissing() {
    std::vector<std::string> missing;
    for (size_t p = 1; p < count_; ++p) {
      if (!mesh_.sockets[p].is_open()) {
        missing.push_back(fmt::format("rank {}", p));
      }
    }
    const std::string problem = fmt::format(
        "tcp: rank 0 of {} ({}) waited {} s for {}{}", count_, mesh_.places[0],
        Seconds(), fmt::join(missing, ", "),
        refusal_.empty() ? ""
                         : fmt::format("; the last refusal: {}", refusal_));
    for (size_t p = 1; p < count_; ++p) {
      if (!mesh_.sockets[p].is_open()) continue;
      try {
        mesh_.sockets[p].SendFrame(
            rpc::EncodePart(Welcome{.refusal = problem}).bytes(),
            Clock::Real().Now() + kFrameTime);
      } catch (const CommError&) {
        // it has gone
      }
    }
    throw CommError(problem);
  }

  // --- the others ---

  void ConnectToLower(const Welcome& welcome) {
    for (size_t p = 1; p < static_cast<size_t>(group_.process); ++p) {
      try {
        mesh_.sockets[p] =
            TcpSocket::Connect(welcome.processes[p].address, deadline_);
        mesh_.sockets[p].SendFrame(
            rpc::EncodePart(
                Join{.key = mesh_.key,
                     .num_processes =
                         static_cast<uint32_t>(group_.num_processes),
                     .process = static_cast<uint32_t>(group_.process)})
                .bytes(),
            deadline_);
      } catch (const CommError& e) {
        throw CommError(fmt::format(
            "tcp: {} cannot reach rank {} ({}): {}; hint: let the hosts "
            "connect to each other",
            Name(), p, mesh_.places[p], e.what()));
      }
    }
  }

  void AcceptHigher(TcpSocket* listener) {
    size_t missing = count_ - 1 - static_cast<size_t>(group_.process);
    while (missing > 0) {
      std::optional<TcpSocket> socket = listener->Accept(deadline_);
      if (!socket) {
        std::vector<std::string> names;
        for (auto p = static_cast<size_t>(group_.process) + 1; p < count_;
             ++p) {
          if (!mesh_.sockets[p].is_open()) {
            names.push_back(fmt::format("rank {} ({})", p, mesh_.places[p]));
          }
        }
        FailToJoin(fmt::format("{} did not connect", fmt::join(names, ", ")));
      }
      try {
        const Join join = rpc::DecodePart<Join>(
            socket->ReceiveFrame(kMaxFrameBytes, FrameDeadline(deadline_)));
        const bool is_expected =
            join.key == mesh_.key &&
            join.process > static_cast<uint32_t>(group_.process) &&
            join.process < count_ && !mesh_.sockets[join.process].is_open();
        if (!is_expected) throw CommError("it belongs to another group");
        mesh_.sockets[join.process] = *std::move(socket);
        --missing;
      } catch (const CommError& e) {
        spdlog::warn("tcp: {} drops the connection of {}: {}", Name(),
                     socket->remote().ToString(), e.what());
      }
    }
  }

  const TcpGroup& group_;
  const std::chrono::milliseconds timeout_;
  const Clock::TimePoint deadline_;
  const size_t count_;
  TcpMesh mesh_;
  std::vector<Joined> joined_;
  // the last one given
  std::string refusal_;
};

// --- the file of a rendezvous: "HOST PORT KEY" ---

struct Notice {
  TcpAddress address;
  std::string key;
};

void WriteNotice(const std::filesystem::path& file, const Notice& notice) {
  AtomicWriteFile(file,
                  fmt::format("{} {} {}\n", notice.address.host,
                              notice.address.port, notice.key),
                  // nobody else may read the key
                  /*mode=*/0600);
}

std::optional<Notice> ReadNotice(const std::filesystem::path& file) {
  std::istringstream text;
  try {
    text.str(ReadFile(file, kMaxTextBytes));
  } catch (const IoError&) {
    return std::nullopt;  // not there yet, or removed meanwhile
  }
  Notice notice;
  if (!(text >> notice.address.host >> notice.address.port >> notice.key)) {
    return std::nullopt;
  }
  return notice;
}

}  // namespace

TcpMesh MakeTcpMesh(const TcpGroup& group, std::chrono::milliseconds timeout) {
  if (group.num_processes == 1) {
    return {.sockets = std::vector<TcpSocket>(1),
            .places = {HostAndPid()},
            .bind_host = "127.0.0.1"};
  }
  const bool has_address = group.rendezvous.starts_with("tcp://");
  Meeting meeting(group, timeout);
  if (group.process == 0 && has_address) {
    return meeting.Lead(TcpSocket::Listen(TcpAddress::Parse(group.rendezvous)),
                        group.key);
  }
  if (group.process == 0) {
    // a second run must not take the first one's processes
    const FileLock lock(group.rendezvous + ".lock",
                        fmt::format("rendezvous {}", group.rendezvous));
    TcpSocket listener = TcpSocket::Listen({.host = "127.0.0.1"});
    const Notice notice{listener.local(), RandomKey()};
    WriteNotice(group.rendezvous, notice);
    TcpMesh mesh = meeting.Lead(std::move(listener), notice.key);
    std::filesystem::remove(group.rendezvous);
    return mesh;
  }
  std::string problem;
  while (Clock::Real().Now() < meeting.deadline()) {
    std::optional<Notice> notice;
    if (has_address) {
      notice = {TcpAddress::Parse(group.rendezvous), group.key};
    } else {
      notice = ReadNotice(group.rendezvous);
      problem = fmt::format("{} is not there", group.rendezvous);
    }
    if (notice) {
      auto mesh = meeting.TryJoin(notice->address, notice->key, &problem);
      if (mesh) return *std::move(mesh);
    }
    std::this_thread::sleep_for(kRetry);
  }
  meeting.FailToJoin(problem);
}

TcpMesh MakeTcpMeshOfPart(const TcpGroup& part, const std::string& key,
                          TcpSocket listener, const TcpAddress& address,
                          std::chrono::milliseconds timeout) {
  if (part.num_processes == 1) return MakeTcpMesh(part, timeout);
  Meeting meeting(part, timeout);
  if (part.process == 0) return meeting.Lead(std::move(listener), key);
  std::string problem;
  auto mesh = meeting.TryJoin(address, key, &problem);
  if (!mesh) meeting.FailToJoin(problem);
  return *std::move(mesh);
}

}  // namespace replicant::comm
