package safetext

import (
	"strings"
	"testing"
)

func TestControlCharactersAreVisible(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain\ttext\n", "plain\ttext\n"},
		{"a\x1b[2Jb\rc\a", `a\x1b[2Jb\x0dc\x07`},
		{"\u009b2J \u00a0 é ü 模型 \x7f", `\u009b2J ` + "\u00a0 é ü 模型 " + `\x7f`},
		{"torn \xc2", "torn \xc2"},
		{"\xff\xfe", "\xff\xfe"},
	} {
		if got := Text(c.in); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
		var out strings.Builder
		w := NewWriter(&out)
		for i := range len(c.in) { // however the text is cut
			if n, err := w.Write([]byte{c.in[i]}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := out.String(); got != strings.TrimSuffix(c.want, "\xc2") {
			t.Errorf("%q byte by byte: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestCellsAreNoFormulas(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "x": "x", "=1+1": "'=1+1", "@SUM(A1)": "'@SUM(A1)", "-x": "'-x", "+x": "'+x", "-": "'-",
		"-1.5e3": "-1.5e3", "+2": "+2", "-Inf": "-Inf", "a=b": "a=b", "\t=1": "'\t=1",
	} {
		if got := Cell(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[0m \u0085")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Text(text) {
			if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7F && r < 0xA0 {
				t.Fatalf("%q holds %U", Text(text), r)
			}
		}
	})
}
