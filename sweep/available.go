package sweep

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// AvailableMemory is what this process may still take, in bytes; 0 if unknown. It is
// bounded by the machine's free memory and by every control group above the process,
// of version 1 or 2, nested or not.
func AvailableMemory() int64 { return availableMemory(os.DirFS("/")) }

// availableMemory reads the files of Linux under root (proc(5), cgroups(7)).
func availableMemory(root fs.FS) int64 {
	best := int64(0)
	bound := func(v int64) {
		if v > 0 && (best == 0 || v < best) {
			best = v
		}
	}
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		bound(fieldOf(b, "MemAvailable:") << 10)
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for _, line := range strings.Split(string(groups), "\n") {
		part := strings.SplitN(line, ":", 3) // number:controllers:path
		if len(part) < 3 {
			continue
		}
		switch {
		case part[0] == "0" && part[1] == "":
			groupVersion2.each(root, part[2], bound)
		case hasWord(part[1], "memory"):
			groupVersion1.each(root, part[2], bound)
		}
	}
	return best
}

// hasWord reports whether a list with commas has a word.
func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// controlGroup names the files in which a version of control groups bounds memory.
type controlGroup struct {
	mount, limit, used string
	reclaimable        string // key of memory.stat: page cache that the kernel gives back
}

var (
	groupVersion1 = controlGroup{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	groupVersion2 = controlGroup{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
)

// each calls bound with what is left in the group of a path and in every group above it.
// In a container the path may be one of the host, which does not exist here: then the
// mount itself is the container's group.
func (g *controlGroup) each(root fs.FS, group string, bound func(int64)) {
	for at := path.Join("/", group); ; at = path.Dir(at) {
		dir := path.Join(g.mount, at)
		limit, ok1 := readNumber(root, path.Join(dir, g.limit))
		used, ok2 := readNumber(root, path.Join(dir, g.used))
		if ok1 && ok2 {
			if stat, err := fs.ReadFile(root, path.Join(dir, "memory.stat")); err == nil {
				used -= min(used, fieldOf(stat, g.reclaimable))
			}
			bound(max(limit-used, 1)) // a full group leaves next to nothing, which is not "unknown"
		}
		if at == "/" {
			return
		}
	}
}

// readNumber reads a file of one number; false for "max", and for no such file.
func readNumber(root fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return v, err == nil && v >= 0
}

// fieldOf is the number behind a key at the beginning of a line; 0 if there is none.
func fieldOf(text []byte, key string) int64 {
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		if f := strings.Fields(s.Text()); len(f) >= 2 && f[0] == key {
			v, _ := strconv.ParseInt(f[1], 10, 64)
			return v
		}
	}
	return 0
}
