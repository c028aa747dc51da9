#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rpc/curve.h"
#include "base/rpc/socket.h"
#include "base/rpc/zap.h"

namespace replicant::rpc {

// The CURVE key pair that all processes of a run hold, or none.
//
// Every socket of the run uses the pair, on either side of a connection:
// whoever holds it may serve and call, and nobody else may do either. Processes
// of one run trust each other, so one pair is enough. Without a pair sockets
// are neither encrypted nor authenticated, and reach only this host.
//
//   const GroupKey key = GroupKey::FromFile(path);
//   const auto guard = key.MakeGuard(context);      // before the server
//   Server server(context, protocol, {.socket = {.curve = key.server_role()}});
//   Client client(context, protocol, {.socket = {.curve = key.client_role()}});
class GroupKey {
 public:
  GroupKey() = default;
  explicit GroupKey(CurveKeyPair pair) : pair_(std::move(pair)) {}
  // An empty path: none. Throws IoError as ReadKeyPair() does.
  static GroupKey FromFile(const std::filesystem::path& path);

  bool is_set() const { return pair_.has_value(); }

  CurveRole server_role() const;
  // For a server of the group, or a server with another key that admits this
  // one.
  CurveRole client_role() const;
  CurveRole client_role(const std::string& server_public_key) const;

  // Admits this key's holders, and `other_public_keys`, to the servers of
  // `context`; nullptr without a key. Make it before the servers are bound and
  // destroy it after them (see ZapHandler).
  std::unique_ptr<ZapHandler> MakeGuard(
      ZmqContext& context,
      const std::vector<std::string>& other_public_keys = {}) const;

 private:
  std::optional<CurveKeyPair> pair_;
};

}  // namespace replicant::rpc
