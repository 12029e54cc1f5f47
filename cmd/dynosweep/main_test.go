package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// A closed terminal ends a run in order; a program started under nohup outlives it.
func TestAClosedTerminalEndsARun(t *testing.T) {
	defer signal.Reset(syscall.SIGHUP)
	signal.Reset(syscall.SIGHUP)
	if !slices.ContainsFunc(endSignals(), func(s os.Signal) bool { return s == syscall.SIGHUP }) {
		t.Skip("this test runs under nohup")
	}
	signal.Ignore(syscall.SIGHUP)
	if len(endSignals()) != 2 {
		t.Errorf("%v although SIGHUP is ignored", endSignals())
	}
}
