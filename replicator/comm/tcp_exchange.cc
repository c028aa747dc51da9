#include "replicator/comm/tcp_exchange.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/process.h"

namespace replicant::comm {
namespace {

// Time to poll for a peer before sleeping: about a round trip on one host.
constexpr auto kSpinning = std::chrono::microseconds(30);
// Longest sleep, after which a verdict on a process is noticed.
constexpr int kSleepMs = 20;

// Size from which reading memory is faster than a connection.
constexpr size_t kMinReadBytes = size_t{64} << 10;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

// What is left of a header and its bytes, as a system call takes it. Returns
// the number of parts.
size_t Parts(std::byte* header, size_t header_bytes, std::byte* data,
             size_t size_bytes, size_t progress, std::array<iovec, 2>* parts) {
  size_t count = 0;
  if (progress < header_bytes) {
    (*parts)[count++] = {header + progress, header_bytes - progress};
  }
  const size_t done = progress > header_bytes ? progress - header_bytes : 0;
  if (done < size_bytes) {
    (*parts)[count++] = {data + done, size_bytes - done};
  }
  return count;
}

}  // namespace

const ProcessExchange::Message TcpExchange::kReceipt;

std::shared_ptr<TcpExchange> TcpExchange::OfGroup(
    const TcpGroup& group, const CommunicatorOptions& options) {
  TcpMesh mesh = MakeTcpMesh(group, options.timeout);
  const std::string place = mesh.places[static_cast<size_t>(group.process)];
  auto exchange =
      std::make_shared<TcpExchange>(group.process, std::move(mesh), options);
  exchange->FindReadable(group.reads_memory);
  exchange->MeetOthers(place);
  return exchange;
}

TcpExchange::TcpExchange(int process, TcpMesh mesh,
                         const CommunicatorOptions& options)
    : ProcessExchange(process, static_cast<int>(mesh.sockets.size()), options),
      key_(std::move(mesh.key)),
      bind_host_(std::move(mesh.bind_host)) {
  for (size_t p = 0; p < mesh.sockets.size(); ++p) {
    if (mesh.sockets[p].is_open()) {
      mesh.sockets[p].TuneForMessages(options.heartbeat_timeout);
    }
    Peer peer;
    peer.process = static_cast<int>(p);
    peer.socket = std::move(mesh.sockets[p]);
    peer.place = std::move(mesh.places[p]);
    peers_.push_back(std::move(peer));
  }
}

std::shared_ptr<ProcessExchange> TcpExchange::Split(bool is_member) {
  const std::vector<int> members = GatherMembers(is_member);
  TcpSocket listener;
  int32_t port = 0;
  const bool leads = !members.empty() && members[0] == process();
  if (leads) {
    listener = TcpSocket::Listen({.host = bind_host_});
    port = listener.local().port;
  }
  const std::vector<int32_t> ports = GatherNumbers(port);
  if (!is_member) return nullptr;
  const auto first = static_cast<size_t>(members[0]);
  TcpAddress address{.port = static_cast<uint16_t>(ports[first])};
  if (!leads) address.host = peers_[first].socket.remote().host;
  const TcpGroup part{
      .process = static_cast<int>(std::ranges::find(members, process()) -
                                  members.begin()),
      .num_processes = static_cast<int>(members.size()),
      .description = "part of a group"};
  auto result = std::make_shared<TcpExchange>(
      part.process,
      MakeTcpMeshOfPart(part, key_, std::move(listener), address,
                        options().timeout),
      options());
  for (size_t p = 0; p < members.size(); ++p) {
    result->peers_[p].pid = peers_[static_cast<size_t>(members[p])].pid;
  }
  result->BecomePartOf(*this, members);
  return result;
}

std::string TcpExchange::NameOf(int peer) const {
  return fmt::format("rank {} ({})", peer,
                     peers_[static_cast<size_t>(peer)].place);
}

TcpExchange::Header TcpExchange::HeaderOf(const Message& message) const {
  const Collective& c = call();
  const bool is_reduction = c.kind == Collective::Kind::kAllReduce ||
                            c.kind == Collective::Kind::kReduceScatter;
  Header header;
  header.call = num_calls();
  header.elements = c.in.shape().num_elements();
  header.size_bytes = static_cast<uint32_t>(message.size_bytes);
  header.source = c.kind == Collective::Kind::kBroadcast ? c.source : 0;
  header.kind = static_cast<uint8_t>(c.kind);
  header.op = is_reduction ? static_cast<uint8_t>(c.op) : uint8_t{0};
  header.dtype = static_cast<uint8_t>(c.in.dtype());
  return header;
}

std::string TcpExchange::Header::ToString() const {
  const bool is_known =
      kind <= static_cast<uint8_t>(Collective::Kind::kBarrier) &&
      op <= static_cast<uint8_t>(ReduceOp::kProd) &&
      dtype <= static_cast<uint8_t>(DType::kBool) && elements >= 0 &&
      elements <= Shape::kMaxElements;
  if (!is_known) return "something that is not a call";
  // a view has memory; nobody reads this one's
  const Collective c{
      .kind = static_cast<Collective::Kind>(kind),
      .op = static_cast<ReduceOp>(op),
      .source = source,
      .in = TensorView(static_cast<DType>(dtype), Shape({elements}), this)};
  return fmt::format("call {}, {}", call, c.ToString());
}

void TcpExchange::Move(std::span<const Message> messages) {
  busy_.clear();
  for (const Message& message : messages) {
    Peer& peer = peers_[static_cast<size_t>(message.peer)];
    if (peer.is_idle()) {
      for (Stream* stream : {&peer.sends, &peer.receives}) {
        stream->messages.clear();
        stream->done = stream->progress = 0;
      }
      busy_.push_back(&peer);
    }
    (message.is_send ? peer.sends : peer.receives).messages.push_back(&message);
  }
  for (Peer* const peer : busy_) AddReceipts(peer);
  Clock::TimePoint last_progress = Clock::Real().Now();
  while (!busy_.empty()) {
    bool has_moved = false;
    for (Peer* const peer : busy_) {
      has_moved |= Push(*peer);
      has_moved |= Pull(*peer);
    }
    std::erase_if(busy_, [](const Peer* peer) { return peer->is_idle(); });
    if (busy_.empty()) return;
    const Clock::TimePoint now = Clock::Real().Now();
    if (has_moved) {
      last_progress = now;
      continue;
    }
    ThrowIfAborted();
    if (now - last_progress >= options().timeout) {
      std::vector<int> missing;
      for (const Peer* const peer : busy_) missing.push_back(peer->process);
      ThrowMissing(std::move(missing));
    }
    if (now - last_progress < kSpinning) {
      sched_yield();
    } else {
      Sleep();
    }
  }
}

void TcpExchange::AddReceipts(Peer* peer) {
  const auto is_read = [&](const Message* message) {
    return IsRead(*peer, *message);
  };
  peer->num_to_receive = peer->receives.messages.size();
  const bool reads = std::ranges::any_of(peer->receives.messages, is_read);
  if (std::ranges::any_of(peer->sends.messages, is_read)) {
    peer->receives.messages.push_back(&kReceipt);
  }
  if (reads) peer->sends.messages.push_back(&kReceipt);
}

bool TcpExchange::IsRead(const Peer& peer, const Message& message) const {
  return peer.pid != 0 && message.size_bytes >= kMinReadBytes;
}

void TcpExchange::ReadMemory(const Peer& peer, const Message& message) {
  size_t done = 0;
  while (done < message.size_bytes) {
    const iovec own{message.data + done, message.size_bytes - done};
    const iovec other{
        // an address in the peer's memory
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        reinterpret_cast<void*>(peer.receives.header.address + done),
        message.size_bytes - done};
    const ssize_t n = ::process_vm_readv(peer.pid, &own, 1, &other, 1, 0);
    if (n <= 0) ThrowLost(peer, std::strerror(errno));
    done += static_cast<size_t>(n);
  }
}

void TcpExchange::FindReadable(bool reads_memory) {
  struct Probe {
    int64_t pid = 0;
    uint64_t address = 0;
    uint64_t token = 0;
  };
  // only the peer itself has this token at this address
  std::random_device random;
  const uint64_t token = uint64_t{random()} << 32 | random();
  const Probe own{.pid = reads_memory ? ::getpid() : 0,
                  .address = reinterpret_cast<uintptr_t>(&token),
                  .token = token};
  const std::vector<std::byte> bytes =
      GatherBytes(std::as_bytes(std::span(&own, 1)));
  std::vector<Probe> probes(peers_.size());
  std::memcpy(probes.data(), bytes.data(), bytes.size());
  std::vector<uint8_t> reads(peers_.size());
  for (size_t p = 0; p < peers_.size(); ++p) {
    uint64_t found = 0;
    const iovec to{&found, sizeof(found)};
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const iovec from{reinterpret_cast<void*>(probes[p].address), sizeof(found)};
    reads[p] = reads_memory && probes[p].pid != 0 &&
               ::process_vm_readv(static_cast<pid_t>(probes[p].pid), &to, 1,
                                  &from, 1, 0) == sizeof(found) &&
               found == probes[p].token;
  }
  // also keeps the token until all have tried
  const std::vector<std::byte> all =
      GatherBytes(std::as_bytes(std::span(reads)));
  const auto own_column = static_cast<size_t>(process());
  for (size_t p = 0; p < peers_.size(); ++p) {
    const bool is_read = all[p * peers_.size() + own_column] != std::byte{0};
    if (p != own_column && reads[p] != 0 && is_read) {
      peers_[p].pid = static_cast<pid_t>(probes[p].pid);
    }
  }
}

bool TcpExchange::Push(Peer& peer) {
  Stream& stream = peer.sends;
  bool has_moved = false;
  while (!stream.is_done()) {
    const Message& message = *stream.messages[stream.done];
    // the receipt comes last
    if (&message == &kReceipt && peer.receives.done < peer.num_to_receive) {
      break;
    }
    const size_t size = InlineBytes(peer, message);
    if (stream.progress == 0) {
      stream.header = HeaderOf(message);
      if (IsRead(peer, message)) {
        stream.header.address = reinterpret_cast<uintptr_t>(message.data);
      }
    }
    std::array<iovec, 2> parts{};
    msghdr request{};
    request.msg_iov = parts.data();
    request.msg_iovlen =
        Parts(reinterpret_cast<std::byte*>(&stream.header), sizeof(Header),
              message.data, size, stream.progress, &parts);
    const ssize_t n =
        ::sendmsg(peer.socket.fd(), &request, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (WouldBlock()) break;
      ThrowLost(peer, std::strerror(errno));
    }
    has_moved = true;
    stream.progress += static_cast<size_t>(n);
    if (stream.progress < sizeof(Header) + size) break;
    ++stream.done;
    stream.progress = 0;
  }
  return has_moved;
}

bool TcpExchange::Pull(Peer& peer) {
  Stream& stream = peer.receives;
  bool has_moved = false;
  while (!stream.is_done()) {
    const Message& message = *stream.messages[stream.done];
    const size_t size = InlineBytes(peer, message);
    std::array<iovec, 2> parts{};
    msghdr request{};
    request.msg_iov = parts.data();
    request.msg_iovlen =
        Parts(reinterpret_cast<std::byte*>(&stream.header), sizeof(Header),
              message.data, size, stream.progress, &parts);
    const ssize_t n = ::recvmsg(peer.socket.fd(), &request, MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (WouldBlock()) break;
      ThrowLost(peer, std::strerror(errno));
    }
    if (n == 0) ThrowLost(peer, "it was closed");
    has_moved = true;
    const bool had_header = stream.progress >= sizeof(Header);
    stream.progress += static_cast<size_t>(n);
    if (!had_header && stream.progress >= sizeof(Header)) {
      CheckHeader(peer, message);
      if (IsRead(peer, message)) ReadMemory(peer, message);
    }
    if (stream.progress < sizeof(Header) + size) break;
    ++stream.done;
    stream.progress = 0;
  }
  return has_moved;
}

void TcpExchange::Sleep() {
  polled_.clear();
  for (const Peer* const peer : busy_) {
    const int events = (peer->sends.is_done() ? 0 : POLLOUT) |
                       (peer->receives.is_done() ? 0 : POLLIN);
    polled_.push_back({peer->socket.fd(), static_cast<short>(events), 0});
  }
  // a signal ends it early, and the caller asks again
  static_cast<void>(::poll(polled_.data(), polled_.size(), kSleepMs));
}

void TcpExchange::CheckHeader(const Peer& peer, const Message& message) const {
  const Header own = HeaderOf(message);
  Header other = peer.receives.header;
  other.address = 0;
  if (own == other) return;
  throw CommError(
      fmt::format("tcp: the ranks call different things: rank {} call {}, {}, "
                  "and {} {}",
                  process(), num_calls(), call().ToString(),
                  NameOf(peer.process), other.ToString()));
}

void TcpExchange::ThrowLost(const Peer& peer, const std::string& why) {
  ThrowProblem(fmt::format(
      "tcp: rank {} of {} lost its connection to {} in call {}, {}: {}",
      process(), num_processes(), NameOf(peer.process), num_calls(),
      call().ToString(), why));
}

}  // namespace replicant::comm
