#!/bin/sh
# cut_network.sh LOST_RANK FOLDER SIZE: ranks over TCP, the last one of which is
# on another host, whose link is cut. Rank R writes to FOLDER/R. The host is
# emulated by a network namespace, without root. Exits with 77 if this user may
# have none.
set -eu
if [ "$1" != --inside ]; then
  unshare --user --map-root-user --net true 2> /dev/null || exit 77
  exec unshare --user --map-root-user --net "$0" --inside "$@"
fi
lost_rank=$2 folder=$3 last=$(($4 - 1))

ip link set lo up
ip link add name here type veth peer name there || exit 77
unshare --net sleep 600 &
host=$!
own=$(readlink /proc/$$/ns/net)
until [ "$(readlink /proc/$host/ns/net)" != "$own" ]; do sleep 0.01; done
there="nsenter --target $host --net"
ip link set there netns $host
ip address add 10.213.9.1/24 dev here
ip link set here up
$there ip link set lo up
$there ip address add 10.213.9.2/24 dev there
$there ip link set there up

ranks=
for rank in $(seq 0 $last); do
  enter=
  if [ "$rank" = "$last" ]; then enter=$there; fi
  $enter "$lost_rank" "$last" cut tcp://10.213.9.1:7100 "$rank" $((last + 1)) \
    > "$folder/$rank" 2>&1 &
  ranks="$ranks $!"
done
until grep -q ready "$folder/$last"; do sleep 0.05; done
ip link set here down
for pid in $ranks; do wait "$pid" || true; done
kill $host
