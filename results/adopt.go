package results

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrRefused says that a part made elsewhere is not what was asked for.
var ErrRefused = errors.New("refused")

// ConflictError says that two runs of one point gave different figures.
type ConflictError struct {
	Key          Key
	Column       string
	Kept, Answer string // cells as read; the kept one stays
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("point %s: two runs differ in %s: %s is kept, another run says %s: figures must not depend on who computes them",
		e.Key, e.Column, e.Kept, e.Answer)
}

// Adopted says what became of one part: Err is of class ErrRefused, a *ConflictError,
// or what the disk says.
type Adopted struct {
	Finished Finished
	Fresh    bool
	Err      error
}

// AdoptAll is Adopt for many parts, in order, with one sync at the end: when it returns
// without error, every part that was kept outlasts a power cut. The answers are in the
// order of parts; they end early where the disk fails.
func (s *Store) AdoptAll(parts [][]byte, asked func(Key) *Point) ([]Adopted, error) {
	out := make([]Adopted, 0, len(parts))
	var failed error
	for _, part := range parts {
		var a Adopted
		a.Finished, a.Fresh, a.Err = s.Adopt(part, asked)
		var conflict *ConflictError
		if a.Err != nil && !errors.Is(a.Err, ErrRefused) && !errors.As(a.Err, &conflict) {
			failed = a.Err
			break
		}
		out = append(out, a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return out, errors.Join(failed, s.pack.err, s.pack.sync(s.opt.Now()))
}

// Adopt brings in a part that a Maker of the same specification made elsewhere. asked
// gives the row as planned (axes, configuration, GPUs), nil for a point nobody asked for.
// fresh is false where the point had a row that stays: an equal one, or a done one
// beside a failed answer. Errors: ErrRefused for a part that is torn, of another
// specification or schema, or not as planned; *ConflictError where two done rows differ
// outside wall_* columns; else what the disk says.
func (s *Store) Adopt(part []byte, asked func(Key) *Point) (f Finished, fresh bool, err error) {
	head, set, at, err := newFrames(bytes.NewReader(part), location{size: int64(len(part))}).row()
	if err != nil {
		return f, false, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if id := s.opt.Identity.SpecDigest; head.SchemaVersion != SchemaVersion || head.SpecDigest != id {
		return f, false, fmt.Errorf("%w: a part of specification %s and schema %d, want %s and %d", ErrRefused, head.SpecDigest, head.SchemaVersion, id, SchemaVersion)
	}
	f = Finished{Key: head.key(), Status: head.Status, Reason: head.Reason, Version: head.Version, tables: set}
	cells, err := s.decodeRow(head)
	if err != nil {
		return f, false, fmt.Errorf("%w: point %s: %w", ErrRefused, f.Key, err)
	}
	if err := s.asPlanned(f.Key, cells, asked(f.Key)); err != nil {
		return f, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.finished[f.Key]; ok && (have.Status == Done || f.Status != Done) {
		if have.Status == Done && f.Status == Done {
			return have, false, s.compareWith(have, cells)
		}
		return have, false, nil
	}
	if f.at, err = s.addToPack(part); err != nil {
		return f, false, err
	}
	f.at.row = at
	s.note(f)
	return f, true, nil
}

// asPlanned refuses a row whose planned cells are not those of the plan.
func (s *Store) asPlanned(key Key, cells []Value, want *Point) error {
	if want == nil {
		return fmt.Errorf("%w: point %s was not asked for", ErrRefused, key)
	}
	for i := range s.columns {
		c := &s.columns[i]
		planned := c.Axis || c.Name == "point_id" || c.Name == "seed" || c.Name == "config" || c.Name == "gpus"
		if planned && !c.of(want).equal(cells[i], c.Type) {
			return fmt.Errorf("%w: point %s has another %s than planned", ErrRefused, key, c.Name)
		}
	}
	return nil
}

// compareWith looks for a figure in which a second run differs from the row kept. The
// caller holds mu.
func (s *Store) compareWith(have Finished, cells []Value) error {
	files := &openFiles{}
	defer files.close()
	head, err := files.head(have.at)
	if err != nil {
		return err
	}
	kept, err := s.decodeRow(head)
	if err != nil {
		return fmt.Errorf("%s: %w", have.at.file, err)
	}
	for i := range s.columns {
		if c := &s.columns[i]; !c.Wall() && !kept[i].equal(cells[i], c.Type) {
			return &ConflictError{have.Key, c.Name, kept[i].show(c.Type), cells[i].show(c.Type)}
		}
	}
	return nil
}
