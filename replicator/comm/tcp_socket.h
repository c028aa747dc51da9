#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace replicant::comm {

struct TcpAddress {
  // A name or a number: "host12", "10.0.0.2", "::1".
  std::string host;
  uint16_t port = 0;

  // Parses "tcp://HOST:PORT". Throws ConfigError.
  static TcpAddress Parse(const std::string& text);
  // "10.0.0.2:41234".
  std::string ToString() const;
  bool is_loopback() const;
  // Whether it is the address that Debian's /etc/hosts gives the host's own
  // name: no other host reaches it, though others know the name.
  bool IsOwnName() const;
};

// A TCP socket. Frames are for the start of a group (tcp_mesh.h); afterwards
// the owner reads and writes the descriptor, which does not block.
//
// Thread-safety: one thread at a time.
class TcpSocket {
 public:
  // No socket.
  TcpSocket() = default;
  ~TcpSocket();
  TcpSocket(TcpSocket&& other) noexcept;
  TcpSocket& operator=(TcpSocket&& other) noexcept;

  // Port 0: any free one. Throws CommError.
  static TcpSocket Listen(const TcpAddress& address);
  // Throws CommError if the connection is refused or not made by `deadline`.
  static TcpSocket Connect(const TcpAddress& address,
                           Clock::TimePoint deadline);
  // The next connection to a listening socket; std::nullopt at `deadline`.
  std::optional<TcpSocket> Accept(Clock::TimePoint deadline);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // The addresses of this side and of the peer.
  TcpAddress local() const;
  TcpAddress remote() const;
  // Whether the other side has closed the connection, or it broke.
  bool IsClosedByPeer() const;

  // A frame is its size, u32, and its bytes. These throw CommError if the
  // connection ends or `deadline` passes, and for more than `max_bytes`.
  void SendFrame(std::span<const std::byte> bytes, Clock::TimePoint deadline);
  std::vector<std::byte> ReceiveFrame(uint32_t max_bytes,
                                      Clock::TimePoint deadline);

  // Prepares the socket for the messages of collectives. A connection on which
  // nothing is acknowledged for `silence` breaks; 0: after the system's time.
  void TuneForMessages(std::chrono::milliseconds silence);

 private:
  explicit TcpSocket(int fd) : fd_(fd) {}
  void ReceiveAll(std::span<std::byte> bytes, Clock::TimePoint deadline);

  int fd_ = -1;
};

}  // namespace replicant::comm
