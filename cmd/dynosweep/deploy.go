package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/sweep/launch"
)

// deploy writes the manifest and commands of one point.
func deploy(w io.Writer, a *compare.Analysis, dir, id string) error {
	c, err := pointToDeploy(a, id)
	if err != nil {
		return err
	}
	d, err := launch.New(a, c, newReplayer())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return badInput(err)
	}
	files := &outputs{}
	defer files.discard()
	for _, name := range launch.Files {
		out, err := files.create(filepath.Join(dir, name), w)
		if err != nil {
			return badInput(err)
		}
		if err := d.Write(out, name); err != nil {
			return err
		}
	}
	if err := files.commit(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s  %s\n%s\n", c.ID, c.Label, filepath.Join(dir, strings.Join(launch.Files, ", ")))
	for _, n := range d.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	return nil
}

// pointToDeploy finds the named point, or the choice where there is one.
func pointToDeploy(a *compare.Analysis, id string) (*compare.Case, error) {
	if id == "" {
		if len(a.Loads) == 1 && a.Loads[0].Verdict.Winner != nil {
			return a.Loads[0].Verdict.Winner, nil
		}
		return nil, badInput(errors.New("--deploy: no single point is the choice: name one with --point ID"))
	}
	var found []*compare.Case
	for i := range a.Cases {
		if strings.HasPrefix(a.Cases[i].ID, id) {
			found = append(found, &a.Cases[i])
		}
	}
	if len(found) != 1 {
		return nil, badInput(fmt.Errorf("--point: %d finished points begin with %q; see the point_id column", len(found), id))
	}
	return found[0], nil
}
