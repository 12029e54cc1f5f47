//go:build ignore

// Samepoints runs every file of configs with two binaries and compares the points:
// ids, seeds, statuses and resolved configurations of the sweeps, point and
// configuration of the prediction, candidates of the recommendation. It exits 1 where
// they differ. From the repository root:
//
//	go run scripts/samepoints.go OLD NEW
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

func main() {
	names, _ := filepath.Glob("configs/*.yaml")
	if len(os.Args) != 3 || len(names) == 0 {
		fatal("usage, from the repository root: go run scripts/samepoints.go OLD NEW")
	}
	differ := 0
	for _, name := range names {
		old, now := points(os.Args[1], name), points(os.Args[2], name)
		bad := max(len(old), len(now)) - min(len(old), len(now))
		for i := range min(len(old), len(now)) {
			if old[i] != now[i] {
				if bad++; bad == 1 {
					fmt.Printf("old %s\nnew %s\n", old[i], now[i])
				}
			}
		}
		fmt.Printf("%s: %d rows, %d differ\n", name, len(now), bad)
		differ += bad
	}
	if differ > 0 {
		os.Exit(1)
	}
}

// points are the identifying cells of every row that a binary makes of a file.
func points(binary, name string) []string {
	dir, err := os.MkdirTemp("", "samepoints")
	check(err)
	defer os.RemoveAll(dir)
	run := func(args ...string) {
		out, err := exec.Command(binary, args...).CombinedOutput()
		if err != nil {
			fatal(fmt.Sprintf("%s %s: %v\n%s", binary, strings.Join(args, " "), err, out))
		}
	}
	switch filepath.Base(name) {
	case "predict.yaml":
		run("predict", "-c", name, "--output-dir", dir)
		text, err := os.ReadFile(filepath.Join(dir, "prediction.json"))
		check(err)
		var doc struct {
			Provenance struct {
				ID     string          `json:"point_id"`
				Config json.RawMessage `json:"config"`
			} `json:"provenance"`
		}
		check(json.Unmarshal(text, &doc))
		var plain bytes.Buffer
		check(json.Compact(&plain, doc.Provenance.Config))
		return []string{doc.Provenance.ID + " " + plain.String()}
	case "recommend.yaml":
		run("recommend", "-c", name, "--output-dir", dir)
		text, err := os.Open(filepath.Join(dir, "recommendation.csv"))
		check(err)
		defer text.Close()
		rows, err := csv.NewReader(text).ReadAll()
		check(err)
		var out []string
		for _, row := range rows {
			out = append(out, strings.Join(row[:9], " ")) // from the id to the configuration
		}
		return out
	}
	run("sweep", name, "--out", dir, "--quiet")
	return cells(filepath.Join(dir, "points.parquet"), "point_id", "seed", "status", "reason", "config")
}

// cells are columns of a Parquet file as one text per row.
func cells(path string, columns ...string) []string {
	f, err := file.OpenParquetFile(path, false)
	check(err)
	defer f.Close()
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	check(err)
	table, err := r.ReadTable(context.Background())
	check(err)
	out := make([]string, table.NumRows())
	for _, name := range columns {
		row := 0
		for _, chunk := range table.Column(table.Schema().FieldIndices(name)[0]).Data().Chunks() {
			for i := range chunk.Len() {
				out[row] += chunk.ValueStr(i) + " "
				row++
			}
		}
	}
	return out
}

func check(err error) {
	if err != nil {
		fatal(err.Error())
	}
}

func fatal(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(2)
}
