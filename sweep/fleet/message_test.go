package fleet

import (
	"bytes"
	"testing"
)

func TestRowsComeBack(t *testing.T) {
	want := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("x"), 5000)}
	packed := packRows(want)
	got, err := unpackRows(packed)
	if err != nil || len(got) != len(want) {
		t.Fatal(len(got), err)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("part %d: %q", i, got[i])
		}
	}
	if _, err := unpackRows(packRows([][]byte{make([]byte, maxUnpacked)})); err == nil {
		t.Error("a message that unpacks to more than the bound is read")
	}
}

func TestInputNamesStayInTheirFolder(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "a/b.npz": true, "": false, ".": false, "..": false, "../a": false,
		"a/../b": false, "/etc/shadow": false, "a\\b": false, "C:a": false, "a//b": false, "...": true} {
		if validName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"v":1,"points":[{"id":"0","config":{}}]}`))
	f.Add([]byte(`{"v":1,"inputs":[{"files":[{"name":"../x"}]}]}`))
	f.Add([]byte(`{"address":"nats://127.0.0.1:1","token":"t"}`))
	f.Add(packRows([][]byte{[]byte("part")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseParcel(b); err == nil {
			for i := range p.Points {
				p.Points[i].point()
			}
		}
		parseDocument(b)
		parseLink(b)
		unpackRows(b)
	})
}
