#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/comm/process_exchange.h"
#include "core/comm/tcp_communicator.h"
#include "core/comm/tcp_mesh.h"

namespace replicant::comm {

// A ProcessExchange over TCP connections between all processes.
//
// A message is a header and its bytes, which go from and to the caller's memory
// without a copy in this process. The header says which call the message is of,
// so that processes that make different calls find out. A wait polls for some
// microseconds and then sleeps.
class TcpExchange : public ProcessExchange {
 public:
  // Meets the other processes of the group. They watch each other.
  static std::shared_ptr<TcpExchange> OfGroup(
      const TcpGroup& group, const CommunicatorOptions& options);

  TcpExchange(int process, TcpMesh mesh, const CommunicatorOptions& options);

  std::string_view transport() const override { return "tcp"; }
  std::shared_ptr<ProcessExchange> Split(bool is_member) override;

 private:
  // In front of every message. The byte order is the host's, little-endian.
  struct Header {
    std::string ToString() const;
    bool operator==(const Header&) const = default;

    uint64_t call = 0;
    int64_t elements = 0;
    uint32_t size_bytes = 0;
    int32_t source = 0;
    uint8_t kind = 0;
    uint8_t op = 0;
    uint8_t dtype = 0;
    std::array<uint8_t, 5> reserved{};
  };
  static_assert(sizeof(Header) == 32);

  // The messages of one Move() to, or from, a peer, of which the first `done`
  // are complete, and `progress` bytes of the next one and its header.
  struct Stream {
    bool is_done() const { return done == messages.size(); }

    std::vector<const Message*> messages;
    size_t done = 0;
    size_t progress = 0;
    Header header;
  };
  struct Peer {
    bool is_idle() const { return sends.is_done() && receives.is_done(); }

    int process = 0;
    TcpSocket socket;
    std::string place;
    Stream sends;
    Stream receives;
  };

  void Move(std::span<const Message> messages) override;
  std::string NameOf(int peer) const override;

  Header HeaderOf(const Message& message) const;
  // These move what they can now, and return whether that was anything.
  bool Push(Peer& peer);
  bool Pull(Peer& peer);
  // Waits until a peer that is not idle can go on, for a short time at most.
  void Sleep();
  void CheckHeader(const Peer& peer, const Message& message) const;
  [[noreturn]] void ThrowLost(const Peer& peer, const std::string& why);

  const std::string key_;
  const std::string bind_host_;
  std::vector<Peer> peers_;  // by process
  // kept so that calls allocate nothing
  std::vector<Peer*> busy_;
  std::vector<pollfd> polled_;
};

}  // namespace replicant::comm
