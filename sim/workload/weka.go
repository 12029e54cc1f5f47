package workload

import "errors"

type WekaTimestamps uint8

func loadWeka(path string, o LoadOptions) (*Trace, error) { return nil, errors.New("x") }
