package metrics

import (
	"bytes"
	"encoding/json"
	"io"
)

// Report is what a run hands out: the summary keys at top level, the other blocks
// beside them (nil: null, PerRequest, Telemetry and Provenance: absent).
type Report struct {
	Summary    *Summary
	PerRequest any
	Planner    any
	Provenance any
	Telemetry  any
}

// MarshalJSON writes the summary keys in their order as one flat object.
func (s *Summary) MarshalJSON() ([]byte, error) {
	b, err := s.appendFields([]byte{'{'})
	return append(b, '}'), err
}

// appendFields appends `"key":value` pairs, comma-separated, without braces.
func (s *Summary) appendFields(b []byte) ([]byte, error) {
	for i := range keys {
		k := &keys[i]
		if !k.In(s) {
			continue
		}
		b = k.append(appendName(b, k.Name), s)
		if k.Name == committedKey {
			var err error
			if b, err = s.appendOffload(b); err != nil {
				return b, err
			}
		}
		if k.Name != lastTrajectoryKey {
			continue
		}
		for _, f := range s.Totals.Agentic {
			var err error
			if b, err = appendAny(appendName(b, f.Name), f.Value); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

func (k *Key) append(b []byte, s *Summary) []byte {
	if k.Kind == Text {
		return appendString(b, k.text(s))
	}
	v, ok := k.Value(s)
	switch {
	case !ok:
		return append(b, "null"...)
	case k.Kind == Int:
		return appendInt(b, int64(v))
	}
	return appendFloat(b, v)
}

// MarshalJSON writes the whole report as one object.
func (r *Report) MarshalJSON() ([]byte, error) {
	b, err := r.Summary.appendFields([]byte{'{'})
	if err != nil {
		return nil, err
	}
	blocks := []Field{{"planner", r.Planner}, {"coverage", r.Summary.Coverage}}
	if r.PerRequest != nil {
		blocks = append(blocks, Field{"per_request", r.PerRequest})
	}
	if r.Telemetry != nil {
		blocks = append(blocks, Field{"telemetry", r.Telemetry})
	}
	if r.Provenance != nil {
		blocks = append(blocks, Field{"provenance", r.Provenance})
	}
	for _, f := range blocks {
		if b, err = appendAny(appendName(b, f.Name), f.Value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// WriteJSON writes the report indented by two spaces, with a final newline.
func (r *Report) WriteJSON(w io.Writer) error {
	compact, err := r.MarshalJSON()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = b.WriteTo(w)
	return err
}

// appendOffload appends what only runs with memory behind their KV pools have.
func (s *Summary) appendOffload(b []byte) (_ []byte, err error) {
	if s.Totals.G2Domains != nil {
		if b, err = appendAny(appendName(b, "g2_domains"), s.Totals.G2Domains); err != nil {
			return b, err
		}
	}
	if s.Totals.G3 != nil {
		b, err = appendAny(appendName(b, "g3_offload"), s.Totals.G3)
	}
	return b, err
}
