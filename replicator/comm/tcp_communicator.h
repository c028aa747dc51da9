#pragma once

#include <memory>
#include <string>

#include "replicator/comm/communicator.h"

namespace replicant::comm {

// A process's account of itself to the others of its group.
struct TcpGroup {
  // Index of this process among num_processes.
  int process = 0;
  int num_processes = 1;
  // Where the processes meet. "tcp://HOST:PORT": process 0 listens there, and
  // the others may be on other hosts. Otherwise a file, for processes of one
  // host: process 0 listens at a free loopback port, and writes port and
  // key there, for this user alone.
  std::string rendezvous;
  // With an address: a secret that all processes share; may be empty. Without
  // it, anyone who reaches the address can take part.
  std::string key;
  // Other settings that must be equal on all processes, as readable text
  // ("between_graph of 4 replicas").
  std::string description;
  // Whether a process may read large messages straight from the memory of
  // another one on its host, if the system lets it. False: all bytes go through
  // connections. Two processes do so only if both allow it.
  bool reads_memory = true;
};

// Makes `count` >= 1 (checked) ranks in this process, over TCP connections
// between all processes of the group. All processes call it, and all have met
// when it returns; those that come first wait for the others
// (CommunicatorOptions::timeout).
//
// A process that makes another call than the others ends them all with a
// CommError that names both calls. Processes watch each other
// (replicator/comm/liveness.h): one that dies, stalls, fails or cannot be
// reached any more ends the calls of all others with a CommError that names it
// and its address. In these messages, and in messages about deadlines, a rank
// is a process.
//
// Data is not encrypted. Each process has a connection, and a descriptor, for
// each other one.
//
// Throws ConfigError for an invalid group, CommError if the processes do not
// meet or process 0 refuses this one: another number of processes, another
// description, key or version, or a number that is taken.
LocalRanks MakeTcpRanks(int count, const TcpGroup& group,
                        const CommunicatorOptions& options = {});

}  // namespace replicant::comm
