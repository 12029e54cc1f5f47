package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/internal/document"
)

// Exit codes. They are attached on the way up and read in main alone.
const (
	exitGood        = 0
	exitFailed      = 1
	exitBadInput    = 2
	exitInterrupted = 130
)

// codedError is an error that knows its exit code.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// interrupted is the end of a run that was told to stop.
type interrupted struct{ msg string }

func (e *interrupted) Error() string     { return e.msg }
func (e *interrupted) Is(err error) bool { return err == context.Canceled }

// describeInterrupt replaces a bare context.Canceled by an error that says "interrupted";
// other errors stay, and so does an interruption that already has a message.
func describeInterrupt(err error) error {
	var said *interrupted
	if errors.Is(err, context.Canceled) && !errors.As(err, &said) {
		return &interrupted{"interrupted"}
	}
	return err
}

// badInput marks err as caused by what the user gave; nil stays nil.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	return &codedError{exitBadInput, err}
}

func exitCode(err error) int {
	var coded *codedError
	var usage cli.ExitCoder // of the library: a help topic or shell that is not there
	switch {
	case err == nil:
		return exitGood
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, document.ErrInput), errors.As(err, &usage):
		return exitBadInput
	}
	return exitFailed
}
