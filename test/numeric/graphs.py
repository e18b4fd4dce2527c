"""MLIR text of attention, fused by hand and not fused, for the tests of the CPU target."""

# ruff: noqa: E501 (IR reads best unbroken)


def tensor(*shape_and_type: int | str) -> str:
    return "tensor<" + "x".join(map(str, shape_and_type)) + ">"


def fused(q: int, k: int, d: int, dv: int, bq: int, bk: int, kind: str = "f32", op: str = "softmax", outer: str = "q"):
    """Single-head attention over tiles of bq queries and bk keys; K is given transposed, [d, k].

    `outer` says which loop is the outer one, "q" or "k"; `op` is "softmax" or "unnorm_softmax". Boundary tiles come
    from affine.min. Statistics and accumulators are f32 for f16 and bf16.
    """
    acc = kind if kind == "f64" else "f32"
    qs, ks = ("%tq", "%tk")
    tq = "?" if q % bq else bq
    tk = "?" if k % bk else bk
    dyn_q, dyn_k = ([qs] if tq == "?" else []), ([ks] if tk == "?" else [])
    size_q, size_k = (qs if tq == "?" else bq), (ks if tk == "?" else bk)

    def dims(*names: str) -> str:
        return ", ".join(names)

    s_in, p_kind = (kind, kind) if kind in ("f32", "f64") else ("f32", "f32")
    S, P = tensor(tq, tk, s_in), tensor(tq, tk, kind)
    row = tensor(tq, acc)
    out, full_row = tensor(tq, dv, acc), tensor(q, acc)
    full_o = tensor(q, dv, acc)
    cast = ""
    p = "%sm#0"
    if p_kind != kind:
        cast = f"""
      %pe = tensor.empty({dims(*dyn_q, *dyn_k)}) : {P}
      %p = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
           iterator_types = ["parallel", "parallel"]}} ins(%sm#0 : {S}) outs(%pe : {P}) {{
        ^bb0(%x: f32, %y: {kind}):
          %t = arith.truncf %x : f32 to {kind}
          linalg.yield %t : {kind}
      }} -> {P}"""
        p = "%p"
    loops = {
        "q": ("%q", "%cq", "%cbq", "%k", "%ck", "%cbk"),
        "k": ("%k", "%ck", "%cbk", "%q", "%cq", "%cbq"),
    }[outer]
    types = f"{full_o}, {full_row}, {full_row}"
    normalise = ""
    result = "%r#0"
    if op == "unnorm_softmax":
        normalise = f"""
  %n = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
       iterator_types = ["parallel", "parallel"]}} ins(%r#2 : {full_row}) outs(%r#0 : {full_o}) {{
    ^bb0(%a: {acc}, %o: {acc}):
      %masked = arith.cmpf oeq, %a, %zero : {acc}
      %quotient = arith.divf %o, %a : {acc}
      %y = arith.select %masked, %zero, %quotient : {acc}
      linalg.yield %y : {acc}
  }} -> {full_o}"""
        result = "%n"
    infinity = "0xFFF0000000000000" if acc == "f64" else "0xFF800000"
    qt, kt, vt = tensor(tq, d, kind), tensor(d, tk, kind), tensor(tk, dv, kind)
    return f"""
func.func @main(%Q: {tensor(q, d, kind)}, %K: {tensor(d, k, kind)}, %V: {tensor(k, dv, kind)}) -> {full_o} {{
  %c0 = arith.constant 0 : index
  %cq = arith.constant {q} : index
  %ck = arith.constant {k} : index
  %cbq = arith.constant {bq} : index
  %cbk = arith.constant {bk} : index
  %zero = arith.constant 0.0 : {acc}
  %inf = arith.constant {infinity} : {acc}
  %e0 = tensor.empty() : {full_o}
  %e1 = tensor.empty() : {full_row}
  %o0 = linalg.fill ins(%zero : {acc}) outs(%e0 : {full_o}) -> {full_o}
  %m0 = linalg.fill ins(%inf : {acc}) outs(%e1 : {full_row}) -> {full_row}
  %a0 = linalg.fill ins(%zero : {acc}) outs(%e1 : {full_row}) -> {full_row}
  %r:3 = scf.for {loops[0]} = %c0 to {loops[1]} step {loops[2]} iter_args(%o1 = %o0, %m1 = %m0, %a1 = %a0) -> ({types}) {{
    %r2:3 = scf.for {loops[3]} = %c0 to {loops[4]} step {loops[5]} iter_args(%o2 = %o1, %m2 = %m1, %a2 = %a1) -> ({types}) {{
      %tq = affine.min affine_map<(i) -> (-i + {q}, {bq})>(%q)
      %tk = affine.min affine_map<(i) -> (-i + {k}, {bk})>(%k)
      %qt = tensor.extract_slice %Q[%q, 0] [{size_q}, {d}] [1, 1] : {tensor(q, d, kind)} to {qt}
      %kt = tensor.extract_slice %K[0, %k] [{d}, {size_k}] [1, 1] : {tensor(d, k, kind)} to {kt}
      %vt = tensor.extract_slice %V[%k, 0] [{size_k}, {dv}] [1, 1] : {tensor(k, dv, kind)} to {vt}
      %se = tensor.empty({dims(*dyn_q, *dyn_k)}) : {S}
      %zs = arith.constant 0.0 : {s_in}
      %s0 = linalg.fill ins(%zs : {s_in}) outs(%se : {S}) -> {S}
      %s = linalg.matmul ins(%qt, %kt : {qt}, {kt}) outs(%s0 : {S}) -> {S}
      %mt = tensor.extract_slice %m2[%q] [{size_q}] [1] : {full_row} to {row}
      %at = tensor.extract_slice %a2[%q] [{size_q}] [1] : {full_row} to {row}
      %ot = tensor.extract_slice %o2[%q, 0] [{size_q}, {dv}] [1, 1] : {full_o} to {out}
      %pr = tensor.empty({dims(*dyn_q, *dyn_k)}) : {S}
      %re = tensor.empty({dims(*dyn_q)}) : {row}
      %sm:4 = "linalg_ext.{op}"(%s, %pr, %mt, %at, %re) {{dimension = 1 : i64}}
        : ({S}, {S}, {row}, {row}, {row}) -> ({S}, {row}, {row}, {row}){cast}
      %de = tensor.empty({dims(*dyn_q, *dyn_q)}) : {tensor(tq, tq, acc)}
      %dg = "linalg_ext.diag"(%sm#3, %de) : ({row}, {tensor(tq, tq, acc)}) -> {tensor(tq, tq, acc)}
      %oe = tensor.empty({dims(*dyn_q)}) : {out}
      %oz = linalg.fill ins(%zero : {acc}) outs(%oe : {out}) -> {out}
      %os = linalg.matmul ins(%dg, %ot : {tensor(tq, tq, acc)}, {out}) outs(%oz : {out}) -> {out}
      %on = linalg.matmul ins({p}, %vt : {P}, {vt}) outs(%os : {out}) -> {out}
      %o3 = tensor.insert_slice %on into %o2[%q, 0] [{size_q}, {dv}] [1, 1] : {out} into {full_o}
      %m3 = tensor.insert_slice %sm#1 into %m2[%q] [{size_q}] [1] : {row} into {full_row}
      %a3 = tensor.insert_slice %sm#2 into %a2[%q] [{size_q}] [1] : {row} into {full_row}
      scf.yield %o3, %m3, %a3 : {types}
    }}
    scf.yield %r2#0, %r2#1, %r2#2 : {types}
  }}{normalise}
  return {result} : {full_o}
}}"""


def unfused(
    batch: tuple[int, ...], q: int | str, k: int | str, d: int | str, dv: int, kind: str = "f32", layout: str = "nt"
):
    """softmax(Q·Kᵀ)·V over batch dimensions; q, k and d may be "?"; K is [k, d] ("nt") or [d, k] ("nn")."""
    acc = kind if kind in ("f32", "f64") else "f32"
    k_shape = [k, d] if layout == "nt" else [d, k]
    Q, K, V = (tensor(*batch, *s, kind) for s in ([q, d], k_shape, [k, dv]))
    S, out, row = tensor(*batch, q, k, acc), tensor(*batch, q, dv, acc), tensor(*batch, q, acc)
    infinity = "0xFFF0000000000000" if acc == "f64" else "0xFF800000"
    n = len(batch)
    nq = f"%q = tensor.dim %Q, %dq : {Q}" if q == "?" else ""
    nk = f"%k = tensor.dim %K, %dk : {K}" if k == "?" else ""
    dyn_q, dyn_k = (["%q"] if q == "?" else []), (["%k"] if k == "?" else [])
    sizes = {name: ", ".join(v) for name, v in {"qk": dyn_q + dyn_k, "q": dyn_q}.items()}
    cast_p, p, P = "", "%sm#0", S
    if acc != kind:
        P = tensor(*batch, q, k, kind)
        names = ", ".join(f"d{i}" for i in range(n + 2))
        cast_p = f"""
  %pe = tensor.empty({sizes["qk"]}) : {P}
  %p = linalg.generic {{indexing_maps = [affine_map<({names}) -> ({names})>, affine_map<({names}) -> ({names})>],
       iterator_types = [{", ".join(['"parallel"'] * (n + 2))}]}} ins(%sm#0 : {S}) outs(%pe : {P}) {{
    ^bb0(%x: {acc}, %y: {kind}):
      %t = arith.truncf %x : {acc} to {kind}
      linalg.yield %t : {kind}
  }} -> {P}"""
        p = "%p"
    return f"""
func.func @main(%Q: {Q}, %K: {K}, %V: {V}) -> {out} {{
  %dq = arith.constant {n} : index
  %dk = arith.constant {n + (layout == "nn")} : index
  {nq}
  {nk}
  %zero = arith.constant 0.0 : {acc}
  %inf = arith.constant {infinity} : {acc}
  %se = tensor.empty({sizes["qk"]}) : {S}
  %s0 = linalg.fill ins(%zero : {acc}) outs(%se : {S}) -> {S}
  %s = "linalg_ext.batch_matmul"(%Q, %K, %s0) {{layout = "{layout}"}} : ({Q}, {K}, {S}) -> {S}
  %re = tensor.empty({sizes["q"]}) : {row}
  %m = linalg.fill ins(%inf : {acc}) outs(%re : {row}) -> {row}
  %a = linalg.fill ins(%zero : {acc}) outs(%re : {row}) -> {row}
  %sm:4 = "linalg_ext.softmax"(%s, %se, %m, %a, %re) {{dimension = {n + 1} : i64}}
    : ({S}, {S}, {row}, {row}, {row}) -> ({S}, {row}, {row}, {row}){cast_p}
  %oe = tensor.empty({sizes["q"]}) : {out}
  %o0 = linalg.fill ins(%zero : {acc}) outs(%oe : {out}) -> {out}
  %o = "linalg_ext.batch_matmul"({p}, %V, %o0) {{layout = "nn"}} : ({P}, {V}, {out}) -> {out}
  return %o : {out}
}}"""
