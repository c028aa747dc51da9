#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace replicant::rpc {

// A CURVE key pair: two texts of 40 characters (Z85). The public key names the
// holder of the secret key.
struct CurveKeyPair {
  std::string public_key;
  std::string secret_key;

  bool operator==(const CurveKeyPair&) const = default;
};

// Which end of an encrypted connection a socket is. The server needs a
// ZapHandler (base/rpc/zap.h), which knows the clients; a client needs the
// server's public key.
struct CurveServer {
  CurveKeyPair keys;
};
struct CurveClient {
  CurveKeyPair keys;
  std::string server_public_key;
};
// std::monostate: no encryption and no authentication.
using CurveRole = std::variant<std::monostate, CurveServer, CurveClient>;

// A new pair from the operating system's random numbers. Throws CommError if
// libzmq was built without CURVE.
CurveKeyPair GenerateCurveKeyPair();

// Whether `key` has the form of a key: 40 characters of Z85 (the letters,
// digits and punctuation of ZeroMQ RFC 32).
bool IsCurveKey(const std::string& key);

// Writes both keys, readable by the owner alone (mode 0600), whole or not at
// all. Throws IoError.
//
//   public_key = <40 characters>
//   secret_key = <40 characters>
void WriteKeyPair(const std::filesystem::path& path, const CurveKeyPair& keys);

// Throws IoError if the file cannot be read, does not have this form, or may
// be read by others than its owner. A file of root's that its group may read is
// good for a process of that group: Kubernetes gives secrets to pods of other
// users in this way. No message contains a secret key.
CurveKeyPair ReadKeyPair(const std::filesystem::path& path);

// A list of public keys, one a line: a service's allowed clients, or the one
// key of a service. ReadPublicKeys() passes over empty lines and, unless they
// are keys themselves, lines that start with '#'. Both throw IoError.
void WritePublicKeys(const std::filesystem::path& path,
                     const std::vector<std::string>& keys);
std::vector<std::string> ReadPublicKeys(const std::filesystem::path& path);

}  // namespace replicant::rpc
