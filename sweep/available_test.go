package sweep

import (
	"testing"
	"testing/fstest"
)

func TestAvailableMemoryFollowsEveryGroupAbove(t *testing.T) {
	const free = "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, 0},
		{"no groups", map[string]string{"proc/meminfo": free}, 3000 << 10},
		{"version 2, own group", map[string]string{"proc/meminfo": free, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1000000\n", "sys/fs/cgroup/a/b/memory.current": "400000\n",
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "500000\n"}, 600000},
		{"version 2, the group above is tighter", map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "1\n",
			"sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "900\n"}, 100},
		{"version 2 in a container", map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "300\n"}, 700},
		{"page cache is given back", map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "900\n",
			"sys/fs/cgroup/memory.stat": "anon 100\ninactive_file 500\n"}, 600},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job/step\n",
			"sys/fs/cgroup/memory/job/step/memory.limit_in_bytes": "9223372036854771712", "sys/fs/cgroup/memory/job/step/memory.usage_in_bytes": "5",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "500"}, 1500},
		{"version 1, a path of the host", map[string]string{"proc/self/cgroup": "4:memory:/docker/abc\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2000", "sys/fs/cgroup/memory/memory.usage_in_bytes": "500"}, 1500},
		{"a full group", map[string]string{"proc/meminfo": free, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "1000\n"}, 1},
		{"damaged", map[string]string{"proc/meminfo": "MemAvailable:", "proc/self/cgroup": "0:\n::\nx", "sys/fs/cgroup/memory.max": ""}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := availableMemory(root); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
