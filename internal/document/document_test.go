package document

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestBothNotationsGiveTheSameTree(t *testing.T) {
	fromYAML, err := ParseYAML("a.yaml", []byte("a: 1\nb: [true, null, 1.5, x]\nc: {d: -3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := ParseJSON("a.json", []byte(`{"a": 1, "b": [true, null, 1.5, "x"], "c": {"d": -3}}`))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := string(fromYAML.JSON()), string(fromJSON.JSON()); a != b {
		t.Errorf("YAML %s, JSON %s", a, b)
	}
	if d := fromYAML.Find("c.d"); d == nil || d.Line != 3 || d.Path != "c.d" {
		t.Errorf("c.d stands at %+v", d)
	}
}

func TestDocumentsAreBounded(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'i'; c++ {
		p := string(c - 1)
		bomb += fmt.Sprintf("%c: &%c [*%s, *%s, *%s, *%s, *%s, *%s, *%s, *%s, *%s, *%s]\n", c, c, p, p, p, p, p, p, p, p, p, p)
	}
	for _, c := range []struct{ name, text, want string }{
		{"alias expansion", bomb, "the document is too large or nested too deeply"},
		{"own anchor", "a: &x [1, *x]\n", "s.yaml:1: *x refers to a value that contains it"},
		{"own anchor, below", "a: &x\n  b:\n    c: *x\n", "s.yaml:3: *x refers to a value that contains it"},
		{"depth", "a: " + strings.Repeat("[", 70) + strings.Repeat("]", 70), "the document is too large or nested too deeply"},
		{"doubled key", "a: 1\nb: 2\na: 3\n", "s.yaml:3: a: duplicate field `a`"},
		{"second document", "a: 1\n---\nb: 1\n", "s.yaml:3: a second YAML document"},
		{"key that is no word", "? [1]\n: 2\n", "s.yaml:1: a key must be a word"},
	} {
		_, err := ParseYAML("s.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := ParseJSON("s.json", []byte(strings.Repeat("[", 70))); err == nil || !strings.HasPrefix(err.Error(), "s.json:1: ") {
		t.Errorf("depth of JSON: %v", err)
	}
	if _, err := ParseInlineJSON("--x", []byte("{\"a\": 1,\n\"a\": 2}")); err == nil || err.Error() != "--x: a: duplicate field `a` at line 2 column 3" {
		t.Errorf("doubled key of JSON: %v", err)
	}
}

func TestReadTellsAllFaultsByLine(t *testing.T) {
	n, err := ParseYAML("s.yaml", []byte("rate: 2\nname: reed\ncuont: 1\nflag: 1\nwhole: -1\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := &Faults{Origin: "s.yaml"}
	v := f.Read(n, []Key{
		{Name: "rate", Kind: Float, Range: Range{0, 1, "must be between 0 and 1"}},
		{Name: "name", Kind: String, Choices: []string{"red", "green"}},
		{Name: "count", Kind: Int, Required: true},
		{Name: "flag", Kind: Bool},
		{Name: "whole", Kind: Int, Bits: 16},
	})
	want := "s.yaml:1: missing field `count`\n" +
		"s.yaml:1: rate: rate must be between 0 and 1\n" +
		"s.yaml:2: name: unknown variant `reed`, expected `red` or `green` (did you mean `red`?)\n" +
		"s.yaml:3: cuont: unknown field `cuont`, expected one of `rate`, `name`, `count`, `flag`, `whole`\n" +
		"s.yaml:4: flag: invalid type: integer `1`, expected a boolean\n" +
		"s.yaml:5: whole: invalid value: integer `-1`, expected a whole number from 0 to 65535"
	if err := f.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if v.Has("rate") || v.Whole("whole").Set || v.Bool("flag").Or(true) != true {
		t.Error("a refused value is set")
	}
}

// FuzzParse: no panic, every refusal has a position, and what is read marshals to
// JSON that reads back as the same value.
func FuzzParse(f *testing.F) {
	f.Add("a: 1\nb: [x, {c: .inf}]\n")
	f.Add(`{"a": [1e400, -0, 18446744073709551616]}`)
	f.Add("a: &a [1, *a]")
	f.Add("? x\n: !!binary aGk=\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string, []byte) (*Node, error){ParseYAML, ParseJSON} {
			n, err := parse("f", []byte(text))
			if err != nil {
				if !strings.HasPrefix(err.Error(), "f:") {
					t.Errorf("no position: %v", err)
				}
				continue
			}
			if n == nil {
				continue
			}
			written := n.JSON()
			back, err := ParseJSON("g", written)
			if err != nil || string(back.JSON()) != string(written) {
				t.Errorf("%s reads back as %v, %v", written, back, err)
			}
		}
	})
}
