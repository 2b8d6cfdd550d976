#!/bin/sh
# Speed of whole quantizations beside `cp` of the same source and the reading
# of memory, in alternating rounds so that neighbours and clock changes hit all
# alike.
#   bench/quantize_bench.sh [OPTIONS] DIR
# DIR         a checkpoint, best from tools/make_random_llama.cc
#   --nibble P     the program (build-bench/bin/nibble)
#   --encode P     nibble_encode_bench, for memory reads (beside it)
#   --recipes L    "int4 int8 fp8" and others, separated by blanks
#   --rounds N     rounds, of which medians are printed (3)
#   --threads N    of nibble (2)
#   --scratch D    where results are written and removed (beside DIR)
#   --cold         nothing in the page cache when a run begins, and `sync` is
#                  part of cp's time, as it is of nibble's
#   --peer P --gguf F  llama.cpp's llama-quantize and the same model as a GGUF
#                  file; or NIBBLE_LLAMA_QUANTIZE and NIBBLE_LLAMA_GGUF
#   --fail-below R  fails when the first three recipes do not reach R of cp
# Prints GB/s of source bytes, and each as a part of cp's.
set -eu

usage() {
  sed -n '2,20s/^# \{0,1\}//p' "$0"
  exit 2
}

nibble=build-bench/bin/nibble
encode=
recipes="int4 int8 fp8"
rounds=3
threads=2
scratch=
cold=
peer=${NIBBLE_LLAMA_QUANTIZE:-}
gguf=${NIBBLE_LLAMA_GGUF:-}
least=
while [ $# -gt 1 ]; do
  case $1 in
    --nibble) nibble=$2; shift ;;
    --encode) encode=$2; shift ;;
    --recipes) recipes=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --threads) threads=$2; shift ;;
    --scratch) scratch=$2; shift ;;
    --peer) peer=$2; shift ;;
    --gguf) gguf=$2; shift ;;
    --fail-below) least=$2; shift ;;
    --cold) cold=yes ;;
    *) usage ;;
  esac
  shift
done
[ $# -eq 1 ] && [ -d "$1" ] || usage
source=${1%/}
: "${encode:=$(dirname "$nibble")/../bench/nibble_encode_bench}"
out=$(mktemp -d "${scratch:-$(dirname "$source")}/quantize-bench.XXXXXX")
results=$out/results
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM

bytes_of() { cat "$@" | wc -c; }
weights=$(echo "$source"/*.safetensors)
bytes=$(bytes_of $weights)

# Warm: the source is cached, and memory that was freed before has been touched
# again. Virtual machines give free memory back to their host; whoever runs
# first after a pause would pay for all the others.
prepare() {
  rm -rf "$out/made"
  sync
  if [ -n "$cold" ]; then
    for file in $weights $gguf; do
      dd if="$file" iflag=nocache count=0 status=none
    done
    return
  fi
  dd if=/dev/zero of="$out/warm" bs=1M count=$((bytes / 1000000)) status=none
  rm -f "$out/warm"
  sync
  for file in "$@"; do
    cat "$file" >/dev/null
  done
}

# timed NAME BYTES COMMAND...
timed() {
  name=$1
  size=$2
  shift 2
  begin=$(date +%s%N)
  "$@" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
  end=$(date +%s%N)
  echo "$name $size $((end - begin))" |
    awk '{ printf "%s %.4f\n", $1, $2 / $3 }' >>"$results"
}

copy() {
  cp -r "$source" "$out/made"
  [ -z "$cold" ] || sync "$out/made"/*
}

round=0
while [ "$round" -lt "$rounds" ]; do
  prepare $weights
  timed cp "$bytes" copy
  if [ -x "$encode" ]; then
    "$encode" --benchmark_filter=read_memory --benchmark_format=csv 2>/dev/null |
      awk -F, '/^"read_memory"/ { printf "memory-read %.4f\n", $6 / 1e9 }' \
        >>"$results"
  fi
  for recipe in $recipes; do
    prepare $weights
    timed "$recipe" "$bytes" "$nibble" quantize "$source" --recipe "$recipe" \
      --threads "$threads" -o "$out/made" --quiet
  done
  if [ -n "$peer" ] && [ -n "$gguf" ]; then
    mkdir -p "$out/made"
    for type in Q4_0 Q8_0; do
      prepare "$gguf"
      mkdir -p "$out/made"
      timed "llama.cpp-$type" "$(bytes_of "$gguf")" \
        "$peer" "$gguf" "$out/made/model.gguf" "$type" "$threads"
    done
  fi
  round=$((round + 1))
done

median() {
  awk -v name="$1" '$1 == name { print $2 }' "$results" | sort -n |
    awk '{ value[NR] = $1 }
      END { if (NR == 0) exit 1; print value[int((NR + 1) / 2)] }'
}

copied=$(median cp)
status=0
tested=0
printf '%-16s %8s %8s\n' what GB/s 'of cp'
for name in $(awk '!seen[$1]++ { print $1 }' "$results"); do
  awk -v name="$name" -v speed="$(median "$name")" -v cp="$copied" \
    'BEGIN { printf "%-16s %8.2f %7.0f%%\n", name, speed, 100 * speed / cp }'
done
if [ -n "$least" ]; then
  for recipe in $recipes; do
    tested=$((tested + 1))
    [ "$tested" -le 3 ] || break
    awk -v speed="$(median "$recipe")" -v cp="$copied" -v least="$least" \
      'BEGIN { exit speed < least * cp }' || {
        echo "$recipe: below $least of cp" >&2
        status=1
      }
  done
fi
exit $status
