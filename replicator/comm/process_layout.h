#pragma once

#include <span>
#include <vector>

namespace replicant::comm {

// The processes of a group by host, and the order in which messages go from one
// process to the next. Processes are numbered in the order of their ranks.
//
// Memory of a host is fast and a link between hosts is slow, so messages should
// cross from host to host once. Reductions still keep rank order
// (communicator.h): the sum that leaves one host is the first term on the next
// one.
struct ProcessLayout {
  // `host_of`: by process; equal numbers are one host.
  explicit ProcessLayout(std::span<const int> host_of);

  // The processes of each host, in order; hosts in the order of their first
  // process.
  std::vector<std::vector<int>> hosts;
  // Index in `hosts`, by process.
  std::vector<int> host_of;
  // All processes, host by host: neighbours share a host where they can.
  std::vector<int> chain;
  // Processes that reduce together, each a part of the elements; sums go from
  // group to group. Groups are neighbouring processes of one host, kMaxGroup of
  // them at most, in the order of processes. All processes are one
  // group if they are at most kMaxGroup, unless two on one host can save bytes
  // between hosts by reducing before they send.
  std::vector<std::vector<int>> groups;

  // Largest group in which each process sends to all others.
  static constexpr int kMaxGroup = 4;
};

}  // namespace replicant::comm
