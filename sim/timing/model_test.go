package timing

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

func TestPolynomialGivesTheReferenceTimes(t *testing.T) {
	p := Polynomial{}
	for _, c := range []struct {
		name string
		raw  float64
		want float64
	}{
		{"prefill of 1000", p.PrefillMs(1, 1000, 0), 32.105859},
		{"prefill of 2 x 850", p.PrefillMs(2, 850, 0), 43.529955},
		{"prefill of 2 x (256 - 96)", p.PrefillMs(2, 256, 96), 21.403231},
		{"nothing to prefill", p.PrefillMs(3, 64, 64), 0},
		{"nobody to prefill", p.PrefillMs(0, 64, 0), 0},
		{"decode of a full cache", p.DecodeMs(9, 100, 100), 34.01},
		{"decode beyond a full cache", p.DecodeMs(9, 101, 100), 34.01},
		{"decode without a cache", p.DecodeMs(1, 0, 0), 34.01},
		{"nobody to decode", p.DecodeMs(0, 0, 100), 0},
	} {
		if got, err := Duration(c.raw, 1); err != nil || got != c.want {
			t.Errorf("%s: %v (%v), want %v", c.name, got, err, c.want)
		}
	}
}

func TestDecodeSeriesEqualsStepByStep(t *testing.T) {
	profile := loadProfile(t)
	series := make([]float64, 300)
	for _, m := range []Model{Polynomial{}, Fixed{10, 2.5}, profile} {
		for _, c := range [][3]int64{{1, 1, 4096}, {7, 5000, 6000}, {64, 3, 1 << 20}, {3, 990, 1 << 20}, {0, 5, 9}} {
			m.DecodeSeries(c[0], c[1], c[2], series)
			for j, got := range series {
				if want := m.DecodeMs(c[0], c[1]+int64(j)*c[0], c[2]); got != want {
					t.Fatalf("%T %v step %d: %v, want %v", m, c, j, got, want)
				}
			}
		}
	}
}

func loadProfile(t *testing.T) *Profile {
	t.Helper()
	p, err := LoadProfile("testdata/profile.npz")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProfileGivesTheReferenceTimes has the table of spec engine-timing 5: TTFT and
// the next two gaps of one prompt.
func TestProfileGivesTheReferenceTimes(t *testing.T) {
	for _, file := range []string{"profile", "fortran", "compressed"} {
		p, err := LoadProfile("testdata/" + file + ".npz")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			prompt int64
			want   string
		}{
			{50, "8.33333 2.20731 2.21152"}, {550, "25 4.73973 4.74447"}, {1000, "40 7.00478 7.00956"},
			{2500, "120 16.1741 16.1816"}, {8000, "413.333 84.0172 84.0344"},
		} {
			got := fmt.Sprintf("%.6g %.6g %.6g", p.PrefillMs(1, c.prompt, 0), p.DecodeMs(1, c.prompt+1, 0), p.DecodeMs(1, c.prompt+2, 0))
			if got != c.want {
				t.Errorf("%s, prompt of %d: %s, want %s", file, c.prompt, got, c.want)
			}
		}
		if got := fmt.Sprintf("%.6g %.6g", p.PrefillMs(4, 300, 0), p.DecodeMs(4, 1204, 0)); got != "50.6667 5.65129" {
			t.Errorf("four prompts of 300: %s", got)
		}
	}
	flat, err := NewProfile([]float64{1, 2}, []float64{-1, -2}, []float64{0, 1}, []float64{0, 1}, make([]float64, 4), 2, 2)
	if err != nil || flat.DecodeMs(1, 5, 0) != 1 || flat.PrefillMs(1, 5, 0) != 0 {
		t.Errorf("floors: decode %v, prefill %v (%v)", flat.DecodeMs(1, 5, 0), flat.PrefillMs(1, 5, 0), err)
	}
}

// array is an array of a profile as a test writes it.
type array struct {
	shape  [2]int
	values []float64
}

// packNPZ packs arrays, given as header dictionary and values.
func packNPZ(arrays map[string]array, descr string) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range []string{"prefill_isl", "prefill_ttft_ms", "decode_active_kv_tokens", "decode_context_length", "decode_itl"} {
		a, ok := arrays[name]
		if !ok {
			continue
		}
		shape := fmt.Sprintf("(%d,)", a.shape[0])
		if a.shape[1] > 0 {
			shape = fmt.Sprintf("(%d, %d)", a.shape[0], a.shape[1])
		}
		head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape)
		w, _ := z.Create(name + ".npy")
		w.Write([]byte("\x93NUMPY\x01\x00"))
		binary.Write(w, binary.LittleEndian, uint16(len(head)))
		w.Write([]byte(head))
		binary.Write(w, binary.LittleEndian, a.values)
	}
	z.Close()
	return out.Bytes()
}

func vector(v ...float64) array { return array{[2]int{len(v), 0}, v} }

func TestProfileFaultsAreNamed(t *testing.T) {
	good := func() map[string]array {
		return map[string]array{"prefill_isl": vector(1, 2, 3), "prefill_ttft_ms": vector(1, 2, 3),
			"decode_active_kv_tokens": vector(1, 2), "decode_context_length": vector(1, 2, 3),
			"decode_itl": {[2]int{2, 3}, make([]float64, 6)}}
	}
	for _, c := range []struct {
		name  string
		set   func(a map[string]array)
		descr string
		want  string
	}{
		{"missing", func(a map[string]array) { delete(a, "decode_itl") }, "<f8", "Failed to load decode_itl from NPZ: "},
		{"lengths", func(a map[string]array) { a["prefill_ttft_ms"] = vector(1, 2) }, "<f8", "Prefill array length mismatch: isl=3, ttft=2"},
		{"shape", func(a map[string]array) { a["decode_itl"] = array{[2]int{3, 2}, make([]float64, 6)} }, "<f8",
			"Decode array dimension mismatch: itl shape=(3, 2), active_kv=2, context=3"},
		{"axis", func(a map[string]array) { a["prefill_isl"] = vector(1, 1, 3) }, "<f8",
			"Failed to build prefill interpolator: Values in the x axis need to be strictly monotonic rising"},
		{"rows", func(a map[string]array) { a["decode_active_kv_tokens"] = vector(2, 1) }, "<f8", "The x-axis needs to be strictly monotonic rising"},
		{"columns", func(a map[string]array) { a["decode_context_length"] = vector(2, 1, 3) }, "<f8", "The y-axis needs to be strictly monotonic rising"},
		{"one point", func(a map[string]array) { a["prefill_isl"], a["prefill_ttft_ms"] = vector(1), vector(1) }, "<f8", "needs at least 2 data points"},
		{"one row", func(a map[string]array) {
			a["decode_active_kv_tokens"], a["decode_itl"] = vector(1), array{[2]int{1, 3}, make([]float64, 3)}
		}, "<f8", "needs at least 2 data points"},
		{"endless axis", func(a map[string]array) { a["decode_context_length"] = vector(1, 2, math.Inf(1)) }, "<f8",
			"decode_context_length: entry 2 is +Inf, must be finite"},
		{"integers", func(map[string]array) {}, "<i8", "Failed to load prefill_isl from NPZ: incorrect descriptor ('<i8') for this type"},
		{"dimensions", func(a map[string]array) { a["prefill_isl"] = array{[2]int{1, 3}, make([]float64, 3)} }, "<f8",
			"ndim 2 of array did not match Dimension type with NDIM = Some(1)"},
		{"cut", func(a map[string]array) { a["decode_itl"] = array{[2]int{2, 3}, make([]float64, 5)} }, "<f8", "data of 6 entries ends after 40 bytes"},
	} {
		a := good()
		c.set(a)
		data := packNPZ(a, c.descr)
		if _, err := ReadProfile(bytes.NewReader(data), int64(len(data))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := LoadProfile("testdata/none.npz"); err == nil || !strings.HasPrefix(err.Error(), `Failed to open NPZ file: "testdata/none.npz"`) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzReadProfile(f *testing.F) {
	for _, name := range []string{"profile", "compressed"} {
		data, err := os.ReadFile("testdata/" + name + ".npz")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadProfile(bytes.NewReader(data), int64(len(data)))
		if err == nil && (p.DecodeMs(3, 100, 0) < 1 || p.PrefillMs(1, 10, 0) < 0) {
			t.Error("a time below its floor")
		}
	})
}

// words are fixed draws.
type words []uint64

func (w *words) Uint64() uint64 {
	v := (*w)[0]
	*w = (*w)[1:]
	return v
}

// TestSamplerCountsAcceptedDrafts draws from the keystream of seed 42; spec
// engine-timing 7 lists the samples.
func TestSamplerCountsAcceptedDrafts(t *testing.T) {
	stream := words{0x86cc7763222724a2, 0x8af00a133fad517d, 0xa2ef6071de5134d1, 0x67e92d78fd7630b2}
	s := NewSampler([]float64{0.8, 0.5}, &stream)
	if a, b := s.Accepted(), s.Accepted(); a != 2 || b != 3 {
		t.Errorf("samples %d %d, want 2 3", a, b)
	}
	sure := words{1}
	s = NewSampler([]float64{1, 0}, &sure)
	if got := s.Accepted(); got != 2 || len(sure) != 0 {
		t.Errorf("rates 1, 0 give %d with %d words left: a certain draft draws nothing, an impossible one draws", got, len(sure))
	}
}
