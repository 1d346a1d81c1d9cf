#!/usr/bin/env bash
# A Ray cluster of several nodes on this one machine, for as long as one command runs.
#
#   launch/local.sh -n cpus=4 -n cpus=4 -- cudal1 train name=demo cluster.address=auto
#   launch/local.sh -n cpus=6 -n cpus=1,gpus=1,type=A100 -n cpus=1,gpus=1,type=H100 -- python check_placement.py
#
# Each -n is a node, the first one the head. `cpus` and `gpus` are what Ray may hand out there; `type` is the accelerator
# type that a role asks for with accelerator_type=. Where there are GPUs, nodes get them in order, each its own; where
# there are none, gpus= and type= are labels to try placement with. -p is the port of the head (6379).
set -euo pipefail

usage() {
  sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

nodes=()
port=6379
while getopts 'n:p:h' option; do
  case $option in
    n) nodes+=("$OPTARG") ;;
    p) port=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
if [ ${#nodes[@]} -eq 0 ] || [ $# -eq 0 ]; then usage; fi

# A token of this cluster's own: without one, a process that reaches its ports may run code here.
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1)
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN

# Ray's files apart from those of any other Ray on this machine; short, for the names of sockets.
RAY_TMPDIR=$(mktemp -d /tmp/ray-XXXXXX)
export RAY_TMPDIR
pids=()
finish() {
  trap - EXIT INT TERM
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do # the head last: the others need it to leave in order
    kill "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
  rm -rf "$RAY_TMPDIR"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME DEVICES ARGUMENT... : one node in the background; returns when it has joined.
start() {
  local log=$RAY_TMPDIR/node-$1.log
  CUDA_VISIBLE_DEVICES=$2 ray start --node-ip-address=127.0.0.1 --block --disable-usage-stats "${@:3}" >"$log" 2>&1 &
  pids+=($!)
  until grep -q 'Ray runtime started' "$log"; do
    if ! kill -0 "${pids[-1]}" 2>/dev/null; then
      cat "$log" >&2
      echo "launch/local.sh: node $1 did not start; what it said is above" >&2
      exit 1
    fi
    sleep 0.2
  done
}

first_gpu=0
for i in "${!nodes[@]}"; do
  cpus=1 gpus=0 type=
  IFS=, read -ra fields <<<"${nodes[i]}"
  for field in "${fields[@]}"; do
    case $field in
      cpus=*) cpus=${field#*=} ;;
      gpus=*) gpus=${field#*=} ;;
      type=*) type=${field#*=} ;;
      *) echo "launch/local.sh: -n ${nodes[i]}: $field is none of cpus=, gpus=, type=" >&2 && exit 2 ;;
    esac
  done
  devices=
  if [ "$gpus" -gt 0 ]; then devices=$(seq -s, "$first_gpu" $((first_gpu + gpus - 1))); fi
  first_gpu=$((first_gpu + gpus))
  arguments=(--num-cpus="$cpus" --num-gpus="$gpus")
  if [ -n "$type" ]; then arguments+=(--resources="{\"accelerator_type:$type\": 1}"); fi
  if [ "$i" -eq 0 ]; then
    start "$i" "$devices" --head --port="$port" --include-dashboard=false "${arguments[@]}"
  else
    start "$i" "$devices" --address="127.0.0.1:$port" "${arguments[@]}"
  fi
done

export RAY_ADDRESS=127.0.0.1:$port
# In the background, since bash would hear of a signal only after a command in the foreground has ended; there a command
# would ignore interrupts, so it is told not to. Ctrl-C reaches it from the terminal, SIGTERM from here.
env --default-signal=INT,QUIT "$@" <&0 &
command=$!
trap 'wait "$command" || true; exit 130' INT
trap 'kill "$command"; wait "$command" || true; exit 143' TERM
wait "$command"
