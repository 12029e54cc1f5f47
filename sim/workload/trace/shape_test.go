package trace

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"os"
)

const dayShape = `duration_seconds: 86400
rate: 0.5
seed: 7
waves:
  - {type: diurnal, factor: 1.6, at_seconds: 50400, lasts_seconds: 86400}
  - {type: burst, factor: 3, at_seconds: 3600, lasts_seconds: 300, every_seconds: 7200}
  - {type: flash_crowd, factor: 5, at_seconds: 40000, lasts_seconds: 60, decay_seconds: 600}
  - {type: ramp, factor: 0.5, at_seconds: 70000, lasts_seconds: 3600}
classes:
  - {name: chat, weight: 3, input_tokens: {median: 900, p95: 4000, max: 8000}, output_tokens: {median: 150, p95: 600}, prefix_tokens: 1024, prefix_groups: 4}
  - {name: batch, input_tokens: 6000, output_tokens: 50}
`

func mustShape(t testing.TB, text string) *Shape {
	t.Helper()
	s, err := ParseShape("shape.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The factors of each wave at times whose value is plain.
func TestWavesAtPlainTimes(t *testing.T) {
	s := mustShape(t, dayShape)
	for _, c := range []struct {
		wave     int
		at, want float64
	}{
		{0, 50400, 1.6}, {0, 50400 + 43200, 0.4}, {0, 50400 + 21600, 1},
		{1, 3599, 1}, {1, 3600, 3}, {1, 3899, 3}, {1, 3900, 1}, {1, 10800, 3},
		{2, 39999, 1}, {2, 40030, 3}, {2, 40060, 5}, {2, 40660, 1 + 4/math.E},
		{3, 70000, 1}, {3, 71800, 0.75}, {3, 80000, 0.5},
	} {
		if got := s.Waves[c.wave].factor(c.at); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s at %v s: %v, want %v", waveNames[s.Waves[c.wave].Kind], c.at, got, c.want)
		}
	}
}

// The trace has the requests that the rate promises, hour by hour and in all, the
// classes' shares, and lengths with the quantiles asked for; it reads back as mooncake.
func TestShapeHasItsRateAndItsLengths(t *testing.T) {
	s := mustShape(t, dayShape)
	var out bytes.Buffer
	n, err := WriteShape(&out, s)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if _, err := WriteShape(&again, s); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("the same seed gives other bytes")
	}
	path := filepath.Join(t.TempDir(), "day.jsonl")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	stats, err := Stat([]string{path}, DefaultLoadOptions(Mooncake))
	if err != nil || stats.Requests != n {
		t.Fatalf("%d requests of %d, %v", stats.Requests, n, err)
	}
	expected, count := 0.0, make([]float64, 24)
	for at := 0.5; at < s.DurationS; at++ {
		expected += s.RateAt(at)
		count[int(at/3600)] += s.RateAt(at)
	}
	if sd := math.Sqrt(expected); math.Abs(float64(n)-expected) > 4*sd {
		t.Errorf("%d requests, want %.0f +- %.0f", n, expected, sd)
	}
	var chat []float64
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var row struct {
			ms, input float64
			class     string
		}
		row.ms, row.input, row.class = numberIn(line, "timestamp"), numberIn(line, "input_length"), "batch"
		if strings.Contains(line, `"chat"`) {
			row.class = "chat"
			chat = append(chat, row.input)
		}
		count[int(row.ms/3.6e6)]--
	}
	for hour, left := range count {
		if math.Abs(left) > 5*math.Sqrt(1800*2) {
			t.Errorf("hour %d differs by %.0f requests", hour, left)
		}
	}
	share := float64(len(chat)) / float64(n)
	slices.Sort(chat)
	p95 := chat[len(chat)*95/100]
	if math.Abs(share-0.75) > 0.01 || math.Abs(p95-4000) > 200 || chat[0] < 1024 || chat[len(chat)-1] > 8000 {
		t.Errorf("chat: share %.3f, p95 %.0f, from %.0f to %.0f", share, p95, chat[0], chat[len(chat)-1])
	}
}

// numberIn is the number behind a key of a row.
func numberIn(line, key string) float64 {
	_, rest, _ := strings.Cut(line, `"`+key+`": `)
	number := 0.0
	scale := 0.0
	for _, c := range rest {
		switch {
		case c >= '0' && c <= '9':
			number = number*10 + float64(c-'0')
			scale *= 10
		case c == '.':
			scale = 1
		default:
			return number / max(scale, 1)
		}
	}
	return number
}

func TestShapeFaultsComeAtOnce(t *testing.T) {
	_, err := ParseShape("s.yaml", []byte(`duration_seconds: 0
rat: 2
waves:
  - {type: diurnal, factor: 3, lasts_seconds: 60}
  - {type: burst, factor: 3, lasts_seconds: 60, every_seconds: 30}
  - {type: flash_crowd, factor: 3, lasts_seconds: 60}
  - {type: brust, factor: 3, lasts_seconds: 60}
classes:
  - {input_tokens: {median: 100, p95: 50}}
`))
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"s.yaml:1: duration_seconds: ", "s.yaml:2: rat: ", "`rate`?", "s.yaml:4: waves[0].factor: ", "s.yaml:5: waves[1].every_seconds: ",
		"s.yaml:6: waves[2]", "s.yaml:7: waves[3].type: ", "s.yaml:9: classes[0]", "output_tokens", "p95"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	s := mustShape(t, "duration_seconds: 1e9\nrate: 1e6\nclasses: [{input_tokens: 1, output_tokens: 1}]\n")
	if _, err := WriteShape(&bytes.Buffer{}, s); err == nil || !strings.Contains(err.Error(), "at most 20000000") {
		t.Errorf("endless load: %v", err)
	}
}

func FuzzShape(f *testing.F) {
	f.Add(dayShape)
	f.Add("duration_seconds: 1\nrate: 1\nclasses: []\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseShape("s.yaml", []byte(text))
		if err == nil && s.Rate*s.DurationS < 100 && len(s.Waves) < 3 {
			s.DurationS = min(s.DurationS, 10)
			s.Rate = min(s.Rate, 10)
			for i := range s.Waves {
				s.Waves[i].Factor = min(s.Waves[i].Factor, 3)
			}
			for i := range s.Classes {
				s.Classes[i].Input, s.Classes[i].PrefixTokens = Lengths{Median: 1, P95: 1}, 0
			}
			if _, err := WriteShape(&bytes.Buffer{}, s); err != nil {
				t.Error(err)
			}
		}
	})
}
