package trace

import (
	"errors"
	"fmt"
	"math"
)

// Load reads trace files and checks all that can be checked without knowing the
// run. Faults are *InputError where a place in a file can be named.
func Load(files []string, o LoadOptions) (*Trace, error) {
	if err := o.checkFiles(files); err != nil {
		return nil, err
	}
	if o.Format > Weka {
		return nil, fmt.Errorf("a table of requests in the form of '%s' cannot be replayed; convert it first", o.Format)
	}
	t, err := read(files, o)
	if err != nil {
		return nil, err
	}
	t.path = files[0]
	return t, nil
}

func read(files []string, o LoadOptions) (*Trace, error) {
	switch o.Format {
	case Mooncake, MooncakeDelta:
		return loadMooncake(files[0], o)
	case AgenticMooncake:
		return loadAgentic(files[0], o)
	case AppliedCompute:
		return loadApplied(files[0], o)
	case Dynamo:
		return loadDynamo(files, o)
	case Weka:
		return loadWeka(files[0], o)
	}
	panic("workload: unknown format")
}

// checkFiles checks what can be checked before any file is opened.
func (o LoadOptions) checkFiles(files []string) error {
	if len(files) == 0 {
		return errors.New("trace replay requires at least one trace file")
	}
	if len(files) != 1 && o.Format != Dynamo {
		return fmt.Errorf("trace_format='%s' requires exactly one trace file, got %d", o.Format, len(files))
	}
	if o.BlockSize < 0 || o.BlockSize == 0 && o.Format != Dynamo && o.Format != Weka {
		return errors.New("trace_block_size must be greater than 0")
	}
	if o.BlockSize > math.MaxInt32 {
		return fmt.Errorf("trace_block_size must be at most %d, got %d", math.MaxInt32, o.BlockSize)
	}
	return nil
}
