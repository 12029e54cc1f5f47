package aic

import "fmt"

// sizeSOL makes a collective proportional outside its curve.
type sizeSOL struct{}

func (sizeSOL) sol(_, _, size float64) float64 { return size }

// collectiveOp moves x*elems elements among g GPUs (spec aic-perfmodel 5.4).
type collectiveOp struct {
	sys     *System
	kind    string // all_reduce (custom kernel or NCCL), all_gather, reduce_scatter, alltoall
	custom  bool
	g       int
	elems   float64
	curve   curve
	factor  float64 // of a fan-out beyond the measured ones
	capped  int     // measured fan-out in use
	err     error
	samples *utilField
}

// collective binds a collective. custom asks for the framework's own allreduce.
func (b *binder) collective(kind string, custom bool, g int, elems float64) op {
	o := &collectiveOp{sys: b.sys, kind: kind, custom: custom, g: g, elems: elems, factor: 1}
	if custom && b.sys.GPUsPerNode == 72 && g > 4 {
		o.custom = false
	}
	if g <= 1 || b.mode == SOL {
		return o
	}
	if o.custom {
		t, err := b.table("custom_allreduce_perf")
		if err != nil {
			o.err = err
			return o
		}
		o.bind(t, sliceKey{}, 0)
		return o
	}
	for _, name := range []string{"nccl_perf", "oneccl_perf"} {
		t, err := b.table(name)
		if err != nil {
			if o.err == nil {
				o.err = err
			}
			continue
		}
		o.err = nil
		key := sliceKey{t.word("half"), t.word(kind)}
		if key[0] < 0 || key[1] < 0 {
			o.err = fmt.Errorf("%s: %s of half is not measured: %w", name, kind, ErrMissing)
			continue
		}
		if o.bind(t, key, 2); o.err == nil {
			break
		}
	}
	return o
}

// bind picks the curve of the nearest measured fan-out; at is the key place of the GPU count.
func (o *collectiveOp) bind(t *table, key sliceKey, at int) {
	top, have := int32(0), []string{}
	for i := range t.slices {
		k := t.slices[i].key
		g := k[at]
		if k[at] = 0; k == key {
			top = max(top, g)
			have = append(have, fmt.Sprint(g))
		}
	}
	if top == 0 {
		o.err = fmt.Errorf("%s: nothing measured: %w", o.kind, ErrMissing)
		return
	}
	o.capped = min(o.g, int(top))
	key[at] = int32(o.capped)
	s := t.find(key)
	if s == nil {
		o.err = fmt.Errorf("%s among %d GPUs is not measured (measured: %s): %w", o.kind, o.capped, sortedWords(have), ErrMissing)
		return
	}
	o.curve = s.curve()
	if g, e := float64(o.g), float64(o.capped); o.g > int(top) {
		o.factor = (g - 1) / g * e / max(e-1, 1) * o.sys.p2pBW(o.capped) / o.sys.p2pBW(o.g)
	}
}

func (o *collectiveOp) silicon(st *step) float64 {
	if o.g <= 1 {
		return 0
	}
	if o.err != nil {
		return st.fail(o.err)
	}
	return o.curve.at(float64(st.x)*o.elems, sizeSOL{}, &st.reach) * o.factor
}

func (o *collectiveOp) sol(st *step) float64 {
	if o.g <= 1 {
		return 0
	}
	return o.solMs(float64(st.x)*o.elems, o.g)
}

// solMs is the speed of light of a size among g GPUs (spec aic-perfmodel 11).
func (o *collectiveOp) solMs(size float64, gpus int) float64 {
	g, bw := float64(gpus), o.sys.p2pBW(gpus)
	if o.custom {
		return 2 * size * 2 / g * (g - 1) / bw * 1000
	}
	v := 2 * size * (g - 1) / g / bw * 1000
	if o.kind == "all_reduce" {
		v *= 2
	}
	return v
}

func (o *collectiveOp) empirical(st *step) float64 {
	if o.g <= 1 {
		return 0
	}
	if o.err != nil {
		return st.fail(o.err)
	}
	if o.samples == nil {
		o.samples = curveField(o.curve, &cappedSOL{o}, 1)
	}
	return o.samples.estimate([3]float64{2: float64(st.x) * o.elems}, o.sol(st), 1, st)
}

// cappedSOL is the speed of light among the measured GPUs; size is axis 2.
type cappedSOL struct{ *collectiveOp }

func (s *cappedSOL) sol(_, _, size float64) float64 { return s.solMs(size, s.capped) }

func (o *collectiveOp) weights() float64 { return 0 }
func (o *collectiveOp) usesSeq() bool    { return false }

// sumOp adds ops that one name covers.
type sumOp struct{ list []op }

func (o *sumOp) inMode(m Mode, st *step) float64 { return sumOps(m, o.list, st) }
func (o *sumOp) silicon(st *step) float64        { return o.inMode(Silicon, st) }
func (o *sumOp) empirical(st *step) float64      { return o.inMode(Empirical, st) }
func (o *sumOp) sol(st *step) float64            { return o.inMode(SOL, st) }
func (o *sumOp) weights() float64                { return 0 }
func (o *sumOp) usesSeq() bool                   { return false }

// dispatch binds the exchange before (pre) or after the experts: tokens of h values
// among the GPUs of the expert group (spec aic-perfmodel 5.6).
func (b *binder) dispatch(pre bool, h, g, dp int, moeMode string) op {
	atp := max(1, g/dp)
	v := float64(h)
	vdp := v * float64(dp)
	ar := func() op { return b.collective("all_reduce", true, g, v) }
	gather := func(n int, elems float64) op { return b.collective("all_gather", false, n, elems) }
	scatter := func(n int, elems float64) op { return b.collective("reduce_scatter", false, n, elems) }
	spread := func(elems float64) op {
		if pre {
			return gather(g, elems)
		}
		return scatter(g, vdp)
	}
	var list []op
	switch {
	case b.backend == "vllm":
		if atp > 1 {
			list = append(list, ar())
		}
		if dp > 1 {
			list = append(list, spread(vdp))
		}
	case b.backend == "sglang" && atp > 1 && dp > 1:
		if pre {
			list = []op{scatter(atp, v), gather(g, vdp)}
		} else {
			list = []op{scatter(g, vdp), gather(atp, v)}
		}
	case b.backend == "trtllm" && b.sys.sm == 100 && dp > 1:
		f := 1.0
		switch moeMode {
		case "nvfp4":
			f = 0.28125
		case "fp8", "fp8_block":
			f = 0.5
		}
		list = append(list, spread(float64(dp)*(v*f)))
	case atp > 1:
		list = append(list, ar())
	case dp > 1:
		list = append(list, spread(vdp))
	}
	return &sumOp{list}
}
