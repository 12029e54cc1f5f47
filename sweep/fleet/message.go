package fleet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

const (
	messageVersion = 1
	maxMessage     = 1 << 20
	maxRows        = 900 << 10 // of one message, before compression
	maxUnpacked    = 64 << 20
	maxPoints      = 4096 // of a parcel
)

// document tells runners what the points of a sweep have in common.
type document struct {
	V            int             `json:"v"`
	Name         string          `json:"name"`
	Digest       string          `json:"digest"`
	Version      string          `json:"version"` // of the submitter's program
	Axes         []scenario.Axis `json:"axes"`    // without their values
	Cost         scenario.Cost   `json:"cost"`
	Capture      bool            `json:"capture"`
	PointTimeout time.Duration   `json:"point_timeout_ns"`
	Inputs       []input         `json:"inputs"`
}

// input is what a path of the sweep stands for: one file, or the files of a folder.
type input struct {
	Path  string           `json:"path"`
	Use   scenario.PathUse `json:"use"`
	Base  string           `json:"base"` // file to name; "" for the folder
	Files []inputFile      `json:"files"`
}

type inputFile struct {
	Name   string `json:"name"` // relative, with slashes
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

func parseDocument(text []byte) (*document, error) {
	d := new(document)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, err
	}
	if d.V != messageVersion {
		return nil, fmt.Errorf("version %d of the messages, want %d", d.V, messageVersion)
	}
	for i := range d.Inputs {
		in := &d.Inputs[i]
		for _, f := range in.Files {
			if err := f.check(); err != nil {
				return nil, err
			}
		}
		if in.Base != "" && !validName(in.Base) {
			return nil, fmt.Errorf("%q is no clean file name", in.Base)
		}
	}
	return d, nil
}

var sha = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check refuses names that could leave their folder.
func (f *inputFile) check() error {
	if !sha.MatchString(f.SHA256) || f.Bytes < 0 {
		return fmt.Errorf("%q has no proper digest", f.Name)
	}
	if !validName(f.Name) {
		return fmt.Errorf("%q is no clean relative name", f.Name)
	}
	return nil
}

func validName(name string) bool {
	return name != "" && len(name) <= 255 && path.Clean(name) == name && !path.IsAbs(name) && name != "." &&
		name != ".." && !strings.HasPrefix(name, "../") && !strings.ContainsAny(name, "\\\x00:")
}

// recipe is the document as sweep knows it.
func (d *document) recipe() sweep.Recipe {
	return sweep.Recipe{SpecDigest: d.Digest, Version: d.Version, Axes: d.Axes, Cost: d.Cost, Capture: d.Capture, PointTimeout: d.PointTimeout}
}

// parcel is a message's worth of points.
type parcel struct {
	V      int     `json:"v"`
	Points []order `json:"points"`
}

// order is one point: its resolved configuration and the planned cells of its row.
type order struct {
	ID     string          `json:"id"`
	Seed   *uint64         `json:"seed,omitempty"`
	GPUs   int             `json:"gpus"`
	Axes   []axisCell      `json:"axes"`
	Config json.RawMessage `json:"config"`
}

// axisCell is a cell of an axis: at most one is set.
type axisCell struct {
	I *int64   `json:"i,omitempty"`
	F *float64 `json:"f,omitempty"`
	S *string  `json:"s,omitempty"`
	B *bool    `json:"b,omitempty"`
}

func orderOf(p *scenario.Point) order {
	o := order{ID: p.ID, Seed: p.Seed, GPUs: p.GPUs, Config: p.Resolved()}
	for _, v := range p.Values {
		var c axisCell
		switch x := v.(type) {
		case int64:
			c.I = &x
		case float64:
			c.F = &x
		case string:
			c.S = &x
		case bool:
			c.B = &x
		}
		o.Axes = append(o.Axes, c)
	}
	return o
}

// point makes the point of an order, and refuses one whose configuration has another id.
func (o *order) point() (*scenario.Point, error) {
	p := &scenario.Point{ID: o.ID, Seed: o.Seed, GPUs: o.GPUs}
	for _, c := range o.Axes {
		var v any
		switch {
		case c.I != nil:
			v = *c.I
		case c.F != nil:
			v = *c.F
		case c.S != nil:
			v = *c.S
		case c.B != nil:
			v = *c.B
		}
		p.Values = append(p.Values, v)
	}
	var err error
	if p.Run, err = scenario.ParseResolved(o.Config, nil); err != nil {
		return nil, fmt.Errorf("point %s: %w", o.ID, err)
	}
	if id := p.Run.ID(); id != o.ID {
		return nil, fmt.Errorf("point %s: its configuration has the id %s here: another program made it", o.ID, id)
	}
	return p, nil
}

func parseParcel(text []byte) (*parcel, error) {
	if len(text) > maxMessage {
		return nil, errors.New("too long")
	}
	p := new(parcel)
	if err := json.Unmarshal(text, p); err != nil {
		return nil, err
	}
	if p.V != messageVersion {
		return nil, fmt.Errorf("version %d of the messages, want %d", p.V, messageVersion)
	}
	if n := len(p.Points); n == 0 || n > maxPoints {
		return nil, fmt.Errorf("%d points", n)
	}
	return p, nil
}

// packRows is a message of parts: zstd of repeated [length uint32 LE][part].
func packRows(parts [][]byte) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(p))))
		b.Write(p)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic("fleet: zstd: " + err.Error()) // its options are constant
	}
	defer enc.Close()
	return enc.EncodeAll(b.Bytes(), nil)
}

// unpackRows reads what packRows made, at most maxUnpacked bytes of it.
func unpackRows(packed []byte) ([][]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	all, err := dec.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	var parts [][]byte
	for len(all) > 0 {
		if len(all) < 4 {
			return nil, errors.New("torn")
		}
		n := uint64(binary.LittleEndian.Uint32(all))
		if all = all[4:]; n > uint64(len(all)) {
			return nil, errors.New("torn")
		}
		parts, all = append(parts, all[:n:n]), all[n:]
	}
	return parts, nil
}
