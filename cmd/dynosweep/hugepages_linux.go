package main

import (
	"bufio"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
)

// hugePage is the least size of a mapping that is worth a hint, in bytes.
const hugePage = 2 << 20

// useHugePages asks the kernel to back the heap with huge pages, now and when it has
// grown by the end of a garbage collection. A run with a deep backlog touches tens of
// megabytes all over, where small pages cost a fault each, and later a walk through
// the page tables. It is a hint: without it a run is slower and nothing else.
func useHugePages() {
	size := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	advised := uint64(0)
	afterGC(func() {
		if metrics.Read(size); size[0].Value.Uint64() > advised {
			advised = size[0].Value.Uint64()
			adviseHeap()
		}
	})
}

// afterGC calls f now and after every garbage collection, until the program ends.
func afterGC(f func()) {
	f()
	runtime.AddCleanup(new([64]byte), func(int) { afterGC(f) }, 0)
}

// adviseHeap gives the hint for what is mapped as heap.
func adviseHeap() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if from, to, ok := heapMapping(lines.Text()); ok && to-from >= hugePage {
			syscall.Syscall(syscall.SYS_MADVISE, from, to-from, 14) // MADV_HUGEPAGE; a refusal is no loss
		}
	}
}

// heapMapping reads a line of /proc/self/maps; false if that is no heap of Go's, which
// kernels that know names of anonymous memory call so.
func heapMapping(line string) (from, to uintptr, ok bool) {
	f := strings.Fields(line) // range, rights, offset, device, inode, name
	if len(f) < 5 || f[1] != "rw-p" || f[4] != "0" {
		return 0, 0, false
	}
	if name := strings.Join(f[5:], " "); name != "" && name != "[anon: Go: heap]" {
		return 0, 0, false
	}
	a, b, _ := strings.Cut(f[0], "-")
	lo, err1 := strconv.ParseUint(a, 16, 64)
	hi, err2 := strconv.ParseUint(b, 16, 64)
	return uintptr(lo), uintptr(hi), err1 == nil && err2 == nil && lo < hi
}
