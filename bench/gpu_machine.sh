#!/usr/bin/env bash
# Tests and measures on a machine that has a GPU, common packages (numpy, ml_dtypes, llvmlite, pytest, torch), and no
# package registry.
#
#   bench/gpu_machine.sh pack OUT.tar.xz [PYTHON]   where there is a registry: this tree and the bindings in one file,
#                                                    for the GPU machine's Python (default: 3.12)
#   bench/gpu_machine.sh run OUT.tar.xz PART…        on the GPU machine; parts: tests, memcheck, racecheck, launch, table
#
# Every part has a time limit; what one part does, does not stop the next. The exit status says whether all went well.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

pack() {
  local out python=${2:-3.12} work platforms=()
  out=$(realpath -m "$1")
  work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  for version in 2_34 2_31 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${version}_x86_64"); done
  python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$python" --implementation cp \
    "${platforms[@]}" --dest "$work/wheels" "$(sed -n 's/^ *"\(torch-mlir==[0-9]*\)".*/\1/p' "$here/pyproject.toml")" || return
  mkdir -p "$work/site"
  for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/site"; done
  rm -f "$work/site/torch_mlir/_mlir_libs/torch-mlir-opt"
  find "$work/site" -type d -name include -prune -exec rm -rf {} +
  mkdir -p "$work/tree/build/import/attn_opt"
  (cd "$here" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -c) | tar -x -C "$work/tree"
  for folder in compiler dialects transforms; do ln -s "../../../$folder" "$work/tree/build/import/attn_opt/$folder"; done
  tar -C "$work" -c site tree | xz -3 -T0 >"$out"
  ls -l "$out"
}

run() {
  local place=${ATTN_OPT_GPU_FOLDER:-/tmp/attn-opt-gpu} failed=0 part
  mkdir -p "$place"
  tar -xJf "$1" -C "$place" || return
  shift
  cd "$place/tree" || return
  export PYTHONPATH="$place/tree/build/import:$place/site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
  export ATTN_OPT_CACHE_DIR="$place/cache"
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader
  for part in "$@"; do
    echo "== $part"
    local start=$SECONDS
    case $part in
      tests)
        timeout 240 python3 -m pytest -q -n 8 --timeout 120 -p no:cacheprovider \
          test/numeric/test_gpu_attention.py test/python/test_gpu_calls.py ;;
      memcheck | racecheck)
        # One process: the tool follows the kernels of all cases. A few cases of each kind suffice for races.
        timeout 240 compute-sanitizer --tool "$part" --report-api-errors no --error-exitcode 9 --print-limit 20 \
          python3 -m pytest -q --timeout 100 -p no:cacheprovider test/numeric/test_gpu_attention.py \
          -k "test_graphs or against_float64 and (odd or f8 or pages or f32 or causal or value_bias)" ;;
      launch) timeout 120 python3 bench/launch.py ;;
      table) timeout 500 python3 bench/table.py --target nvidia ${ATTN_OPT_TABLE:-} ;;
      *) echo "unknown part '$part'"; false ;;
    esac || { echo "== $part failed ($?)"; failed=1; }
    echo "== $part took $((SECONDS - start)) s"
  done
  return $failed
}

case ${1:-} in
  pack | run) command=$1; shift; [ $# -gt 0 ] || { echo "$command needs a file" >&2; exit 1; }; "$command" "$@" ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 1 ;;
esac
