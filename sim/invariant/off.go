//go:build !invariants

// Package invariant switches checks of the simulator's own laws on. In a build with
// the tag `invariants`, structures check themselves at every drain and panic with their
// numbers; in any other build the compiler removes the checks.
package invariant

// On is a constant, so that `if invariant.On { ... }` costs nothing when off.
const On = false
