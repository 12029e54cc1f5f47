package workload

type graph struct{ plays []int }

func (t *Trace) newGraphSource(d Drive) (Source, error) { return nil, nil }

type WekaTimestamps uint8
