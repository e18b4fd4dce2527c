#!/usr/bin/env bash
# Tests and measures on a machine that has a GPU, common packages (numpy, ml_dtypes, llvmlite, pytest, torch), and no
# package registry. Where there is one, pack what it needs, for its Python (default: 3.12):
#
#   bench/gpu_machine.sh pack OUT.tar.xz [PYTHON]         this tree and the bindings (40 MB)
#   bench/gpu_machine.sh pack-table OUT.tar.xz            this tree and the table's kernels, compiled here; no bindings
#   bench/gpu_machine.sh pack-peers OUT.tar.xz [PYTHON]   flash-attn-4 with what it needs (45 MB)
#
#   bench/gpu_machine.sh run PACK.tar.xz… PART…           on the GPU machine
#
# Parts: tests, memcheck, racecheck, launch, autotune (these need the bindings), table. Rows of the table are kept in
# $ATTN_OPT_KEPT as they are measured, and not measured again; ATTN_OPT_TABLE has options of bench/table.py.
# Every part has a time limit; what one part does, does not stop the next. The exit status says whether all went well.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

wheels() { # wheels FOLDER PYTHON REQUIREMENT…: unpacks wheels for the GPU machine, without what no one imports
  local site=$1 python=$2 platforms=(manylinux2014_x86_64) work
  shift 2
  work=$(mktemp -d)
  for version in 2_39 2_34 2_31 2_28 2_27 2_24 2_17; do platforms+=("manylinux_${version}_x86_64"); done
  python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$python" --implementation cp \
    "${platforms[@]/#/--platform=}" --dest "$work" "$@" || return
  mkdir -p "$site"
  for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$site"; done
  rm -rf "$work" "$site/torch_mlir/_mlir_libs/torch-mlir-opt" "$site/tvm_ffi/3rdparty"
  find "$site" -type d -name include -prune -exec rm -rf {} +
  if command -v strip >/dev/null; then find "$site" -name "*.so" -exec strip --strip-unneeded {} +; fi
}

tree() { # tree FOLDER: what git has, or would take
  mkdir -p "$1/build/import/attn_opt"
  (cd "$here" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -c) | tar -x -C "$1"
  for folder in compiler dialects transforms; do ln -s "../../../$folder" "$1/build/import/attn_opt/$folder"; done
}

compressed() { # compressed FOLDER OUT: machine code becomes smaller with its jumps rewritten
  tar -C "$1" -c . | xz -T0 --x86 --lzma2=preset=7,dict=128MiB >"$2" && ls -l "$2"
}

packed() { # packed OUT FUNCTION…: what the functions put in a folder, in one file
  local out work
  out=$(realpath -m "$1")
  shift
  work=$(mktemp -d)
  for function in "$@"; do "$function" "$work" || { rm -rf "$work"; return 1; }; done
  compressed "$work" "$out"
  rm -rf "$work"
}

put-tree() { tree "$1/tree"; }
put-bindings() { wheels "$1/site" "$python" "$(sed -n 's/^ *"\(torch-mlir==[0-9]*\)".*/\1/p' "$here/pyproject.toml")"; }
put-kernels() {
  PYTHONPATH="$1/tree/build/import" "${PYTHON:-python3}" "$1/tree/bench/table.py" --target nvidia --kept "$1/kept" \
    --stop-before-timing ${ATTN_OPT_TABLE:-}
}
put-peers() { # later wheels of cutlass-dsl are split, and lack their Python sources
  wheels "$1/site" "$python" flash-attn-4==4.0.0b18 nvidia-cutlass-dsl==4.5.3 nvidia-cutlass-dsl-libs-base==4.5.3 \
    quack-kernels==0.5.0 apache-tvm-ffi torch-c-dlpack-ext einops
}

run() {
  local place=${ATTN_OPT_GPU_FOLDER:-/tmp/attn-opt-gpu} failed=0 part
  mkdir -p "$place"
  while [[ ${1:-} == *.tar.xz ]]; do
    tar -xJf "$1" -C "$place" || return
    shift
  done
  cd "$place/tree" || return
  # cutlass-dsl's packages stand in a folder that a .pth file names, which PYTHONPATH knows nothing of.
  local folders="$place/tree/build/import:$place/site:$place/site/nvidia_cutlass_dsl/python_packages"
  export PYTHONPATH="$folders${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
  export ATTN_OPT_CACHE_DIR="$place/cache"
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader
  for part in "$@"; do
    echo "== $part"
    local start=$SECONDS
    case $part in
      tests)
        timeout 480 python3 -m pytest -q -n 12 --timeout 120 -p no:cacheprovider -m "" -k "not compiles_anywhere" \
          test/numeric/test_gpu_{attention,graphs,arrays,own_keys,features,masks,matmuls,several_products,torch,torch_rows}.py \
          test/python/test_gpu_{calls,results,code}.py ;;
      memcheck | racecheck)
        # One process: the tool follows the kernels of all cases. A few cases of each kind suffice for races.
        timeout 480 compute-sanitizer --tool "$part" --report-api-errors no --error-exitcode 9 --print-limit 20 \
          python3 -m pytest -q --timeout 100 -p no:cacheprovider test/numeric/test_gpu_own_keys.py \
          test/numeric/test_gpu_{attention,graphs}.py \
          -k "normal and 256 or test_graphs or split_keys or against_float64 and (odd or f8 or pages or f32 or causal or bias or mask or softcap) and not wide and not normal" ;;
      launch) timeout 120 python3 bench/launch.py ;;
      autotune)
        timeout 300 python3 -m attn_opt.compiler.tools.attn_bench --target nvidia --autotune --peak \
          ${ATTN_OPT_AUTOTUNE:--prec fp16 -b 4 -h 16 -s 4096 -d 128} ;;
      table)
        timeout 580 python3 bench/table.py --target nvidia --kept "${ATTN_OPT_KEPT:-$place/kept}" \
          ${ATTN_OPT_TABLE:-} ;;
      *) echo "unknown part '$part'"; false ;;
    esac || { echo "== $part failed ($?)"; failed=1; }
    echo "== $part took $((SECONDS - start)) s"
  done
  return $failed
}

command=${1:-} python=${3:-3.12}
[ $# -gt 1 ] || command=help
case $command in
  pack) packed "$2" put-tree put-bindings ;;
  pack-table) packed "$2" put-tree put-kernels ;;
  pack-peers) packed "$2" put-peers ;;
  run) shift; run "$@" ;;
  *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 1 ;;
esac
