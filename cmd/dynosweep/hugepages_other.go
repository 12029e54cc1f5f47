//go:build !linux

package main

// useHugePages does nothing here: only Linux takes the hint.
func useHugePages() {}
