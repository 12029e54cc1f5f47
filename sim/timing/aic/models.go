package aic

import (
	"archive/zip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
)

// embedded is the data that scripts/perfdata builds: see data/NOTICE.
//
//go:embed data
var embedded embed.FS

func embeddedRoot() (*root, error) {
	sub, err := fs.Sub(embedded, "data")
	if err != nil {
		return nil, err
	}
	return newRoot(sub, "the embedded data", true)
}

// openModelConfigs finds the model configurations that belong to a systems path.
func openModelConfigs(src string) (fs.FS, error) {
	st, err := os.Stat(src)
	if err != nil {
		return nil, err
	}
	var fsys fs.FS
	patterns := []string{"model_configs", "*/model_configs"}
	if st.IsDir() {
		fsys = os.DirFS(filepath.Dir(filepath.Clean(src)))
	} else if fsys, err = zip.OpenReader(src); err != nil {
		return nil, err
	}
	for _, p := range patterns {
		if found, err := fs.Glob(fsys, p+"/*_config.json"); err == nil && len(found) > 0 {
			return fs.Sub(fsys, path.Dir(found[0]))
		}
	}
	return nil, fmt.Errorf("%s: no model configurations beside it", src)
}

type bundled struct {
	Config  json.RawMessage `json:"config"`
	HFQuant json.RawMessage `json:"hf_quant"`
}

// bundledModels reads the bundled configurations at first use.
var bundledModels = sync.OnceValues(func() (map[string]bundled, error) {
	data, err := embedded.ReadFile("data/models.json")
	if err != nil {
		return nil, err
	}
	var out map[string]bundled
	err = json.Unmarshal(data, &out)
	return out, err
})

// loadCheckpoint reads a local model directory or a bundled configuration.
func loadCheckpoint(model string) (*checkpoint, error) {
	model = strings.TrimSpace(model)
	if model == "" {
		return nil, classed(ErrModel, "no model named")
	}
	if st, err := os.Stat(model); err == nil && st.IsDir() {
		config, err := readBounded(os.DirFS(model), "config.json", maxDocument)
		if err != nil {
			return nil, classed(ErrModel, "model %s: %w", model, err)
		}
		hf, err := readBounded(os.DirFS(model), "hf_quant_config.json", maxDocument)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, classed(ErrModel, "model %s: %w", model, err)
		}
		return parseCheckpoint(model, config, hf)
	}
	all, err := bundledModels()
	if err != nil {
		return nil, err
	}
	b, ok := all[model]
	if !ok {
		return nil, classed(ErrModel, "unknown model %q: neither a directory with config.json nor bundled; bundled: %s", model, strings.Join(supported(all), ", "))
	}
	return parseCheckpoint(model, b.Config, b.HFQuant)
}

// HasExperts reports whether a model, a local folder or a bundled name, has experts: only
// such a model minds how wide they are spread. The error is of class ErrModel.
func HasExperts(model string) (bool, error) {
	c, err := loadCheckpoint(model)
	if err != nil {
		return false, err
	}
	return c.family != llama, nil
}

// supported lists the bundled models that parse, sorted.
func supported(all map[string]bundled) []string {
	var out []string
	for name, b := range all {
		if _, err := parseCheckpoint(name, b.Config, b.HFQuant); err == nil {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

// Models lists the bundled models whose architecture is supported, sorted.
func Models() ([]string, error) {
	all, err := bundledModels()
	if err != nil {
		return nil, err
	}
	return supported(all), nil
}
