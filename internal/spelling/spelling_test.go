package spelling

import (
	"strings"
	"testing"
)

func TestNearestNeedsTwoThirdsOfTheWord(t *testing.T) {
	names := []string{"max_num_seqs", "max_num_batched_tokens", "block_size"}
	for _, c := range [...]struct{ word, want string }{
		{"max_num_seq", "max_num_seqs"},
		{"blok_size", "block_size"},
		{"block", ""}, // five edits in a word of five
		{"temperature", ""},
		{"", ""},
		{strings.Repeat("block_size", 7), ""},
	} {
		if got := Nearest(c.word, names); got != c.want {
			t.Errorf("Nearest(%q) = %q, want %q", c.word, got, c.want)
		}
	}
}

func TestLikelyAlsoTakesPartsOfNames(t *testing.T) {
	names := []string{"ttft_ms", "block_size", "itl_ms"}
	for _, c := range [...]struct{ word, want string }{
		{"block", "block_size"}, {"gpu_block_size", "block_size"}, {"tft_ms", "ttft_ms"}, {"ms", ""}, {"zzzz", ""},
	} {
		if got := Likely(c.word, names); got != c.want {
			t.Errorf("Likely(%q) = %q, want %q", c.word, got, c.want)
		}
	}
}

func TestEditsIsADistance(t *testing.T) {
	words := []string{"", "a", "kitten", "sitting", "mitten"}
	for _, a := range words {
		for _, b := range words {
			if Edits(a, b) != Edits(b, a) || (Edits(a, b) == 0) != (a == b) {
				t.Errorf("Edits(%q, %q) = %d, the other way %d", a, b, Edits(a, b), Edits(b, a))
			}
			for _, c := range words {
				if Edits(a, c) > Edits(a, b)+Edits(b, c) {
					t.Errorf("%q to %q is longer than over %q", a, c, b)
				}
			}
		}
	}
	if got := Edits("kitten", "sitting"); got != 3 {
		t.Errorf("kitten to sitting: %d edits, want 3", got)
	}
}
