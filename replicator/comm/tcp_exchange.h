#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "replicator/comm/process_exchange.h"
#include "replicator/comm/tcp_communicator.h"
#include "replicator/comm/tcp_mesh.h"

namespace replicant::comm {

// A ProcessExchange over TCP connections between all processes.
//
// A message is a header and its bytes, which go from and to the caller's memory
// without a copy in this process. The header names the message's call, so that
// processes notice when their calls differ. A wait polls for some microseconds
// and then sleeps.
//
// On one host a large message is its header alone, with the address of the
// bytes, which the receiver reads from the sender's memory (process_vm_readv):
// one copy instead of two and the work of TCP. When it has read all of an
// Exchange(), it says so by an empty message, and the sender may go on. Whether
// two processes can do this is tried at the start; containers and hardened
// systems may not allow it.
class TcpExchange : public ProcessExchange {
 public:
  // Meets the other processes of the group. They watch each other.
  static std::shared_ptr<TcpExchange> OfGroup(
      const TcpGroup& group, const CommunicatorOptions& options);

  TcpExchange(int process, TcpMesh mesh, const CommunicatorOptions& options);

  std::string_view transport() const override { return "tcp"; }
  std::shared_ptr<ProcessExchange> Split(bool is_member) override;

 private:
  // Precedes every message. The byte order is the host's, little-endian.
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
    // of the bytes in the sender's memory; 0: the bytes follow
    uint64_t address = 0;
  };
  static_assert(sizeof(Header) == 40);

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
    // process that shares memory reads, both ways; 0: none
    pid_t pid = 0;
    TcpSocket socket;
    std::string place;
    Stream sends;
    Stream receives;
    // Messages to receive, without the one that says that the peer has read
    // this process's memory.
    size_t num_to_receive = 0;
  };

  // An empty message: its sender has read the offered memory.
  static const Message kReceipt;

  void Move(std::span<const Message> messages) override;
  std::string NameOf(int peer) const override;

  // Finds the peers with which memory can be read, both ways.
  void FindReadable(bool reads_memory);
  // Adds the messages about memory that has been read.
  void AddReceipts(Peer* peer);
  bool IsRead(const Peer& peer, const Message& message) const;
  // The bytes that follow the header.
  size_t InlineBytes(const Peer& peer, const Message& message) const {
    return IsRead(peer, message) ? 0 : message.size_bytes;
  }
  void ReadMemory(const Peer& peer, const Message& message);
  Header HeaderOf(const Message& message) const;
  // These move all that they can now, and return whether they moved any.
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
