#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "replicator/comm/tcp_communicator.h"
#include "replicator/comm/tcp_socket.h"

namespace replicant::comm {

// The connections of one process to all others of its group.
struct TcpMesh {
  // By process; this one's own is not open.
  std::vector<TcpSocket> sockets;
  // Where each process runs: "host12/4711 at 10.0.0.2:41234".
  std::vector<std::string> places;
  // Opens connections to this group, and to groups that are split from it.
  std::string key;
  // Address for further listening: one host's group stays on loopback.
  std::string bind_host;
};

// Meets all processes of the group and connects each to each. Process 0 listens
// at the rendezvous, where the others register. Once all have, process 0 sends
// everyone the listening addresses, and the higher number of each pair connects
// to the lower one. Connections with a wrong key are dropped.
//
// Throws CommError if not all have met after `timeout`, naming the missing
// ones, or if process 0 refuses this one.
TcpMesh MakeTcpMesh(const TcpGroup& group, std::chrono::milliseconds timeout);

// The same for a part of a group, whose first process listens at `listener`,
// which the others reach at `address`.
TcpMesh MakeTcpMeshOfPart(const TcpGroup& part, const std::string& key,
                          TcpSocket listener, const TcpAddress& address,
                          std::chrono::milliseconds timeout);

}  // namespace replicant::comm
