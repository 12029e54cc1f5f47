package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/dynosweep/dynosweep/internal/npz"
)

// readNPZ reads the named arrays of an .npz file, flattened; those that it does not
// hold are left out.
func readNPZ(name string, arrays []string) (map[string][]float64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	z, err := npz.New(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := map[string][]float64{}
	for _, key := range arrays {
		a, err := z.Array(key)
		if errors.Is(err, npz.ErrAbsent) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, key, err)
		}
		out[key] = a.Values
	}
	return out, nil
}

// readArrays reads a JSON object of numbers and lists of numbers.
func readArrays(name string) (map[string][]float64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := map[string][]float64{}
	for key, v := range raw {
		var list []float64
		var one float64
		if json.Unmarshal(v, &list) == nil {
			out[key] = list
		} else if json.Unmarshal(v, &one) == nil {
			out[key] = []float64{one}
		}
	}
	return out, nil
}
