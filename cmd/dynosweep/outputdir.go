package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/dynosweep/dynosweep/sweep/recommend"
)

// Files that predict and recommend write, and older versions wrote; --overwrite
// removes these and nothing else (spec sweeps-and-schema 1).
var (
	ownFiles = []string{"prediction.json", "recommendation.json", "recommendation.csv", "requests.jsonl",
		"fpm-coverage.json", "resource-plan.json", "resource-runtime.json", "execution-events.jsonl"}
	ownGlobs        = []string{"afd-*.json"}
	ownCandidate    = regexp.MustCompile(`^[0-9]{4}\.yaml$`)
	candidatesDir   = "recommendations"
	errDirNotVacant = errors.New("output directory is not empty")
)

// checkOutputDir refuses a directory that holds anything, unless it may be
// overwritten. It changes nothing.
func checkOutputDir(dir string, overwrite bool) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && (overwrite || len(entries) == 0):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("--output-dir: %s holds %s: %w; choose another one, or --overwrite", dir, entries[0].Name(), errDirNotVacant)
}

// spareInputs refuses a directory in which a run would remove or replace a file that
// it reads.
func spareInputs(dir string, inputs []string) error {
	names, err := ownNames(dir)
	for _, n := range names {
		path := filepath.Join(dir, n)
		if (&outputs{inputs: inputs}).reads(path) {
			return fmt.Errorf("--output-dir: the run reads %s and would remove it: choose another directory", path)
		}
	}
	return err
}

// clearOutputDir removes what an earlier run left.
func clearOutputDir(dir string) error {
	names, err := ownNames(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := os.Remove(filepath.Join(dir, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ownNames are the files that predict and recommend may remove or replace in dir, and
// some that are not there.
func ownNames(dir string) ([]string, error) {
	names := append([]string{}, ownFiles...)
	for _, mode := range [...]string{"agg", "disagg"} {
		for _, table := range recommend.Tables {
			names = append(names, mode+"_"+table+".csv", mode+"_"+table+".json")
		}
	}
	for _, g := range ownGlobs {
		found, err := filepath.Glob(filepath.Join(dir, g))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, candidatesDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if ownCandidate.MatchString(e.Name()) {
			names = append(names, filepath.Join(candidatesDir, e.Name()))
		}
	}
	return names, nil
}
