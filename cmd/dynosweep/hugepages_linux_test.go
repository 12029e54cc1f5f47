package main

import "testing"

func TestHeapMappingsAreAnonymousAndWritable(t *testing.T) {
	for _, c := range []struct {
		line string
		size uintptr // 0: none
	}{
		{"c000000000-c000400000 rw-p 00000000 00:00 0 [anon: Go: heap]", 4 << 20},
		{"2d7491400000-2d7491800000 rw-p 00000000 00:00 0 ", 4 << 20},
		{"2d7491800000-2d7494000000 ---p 00000000 00:00 0 ", 0},
		{"55dd3683c000-55dd3687e000 rw-p 00000000 00:00 0                          [heap]", 0},
		{"7f48f38e9000-7f48f78e9000 rw-p 00000000 00:00 0 [anon: Go: page summary]", 0},
		{"0055c000-00565000 rw-p 0015c000 fe:00 10141895                           /usr/bin/x", 0},
		{"zz-00565000 rw-p 00000000 00:00 0", 0},
		{"", 0},
	} {
		from, to, ok := heapMapping(c.line)
		if ok != (c.size > 0) || ok && to-from != c.size {
			t.Errorf("%q: %x to %x, %v", c.line, from, to, ok)
		}
	}
}
