//go:build noembed

// Package embed is empty in a program built without a broker of its own.
package embed

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sweep/fleet"
)

// Server is never made in this build.
type Server struct{ Link *fleet.Link }

// Start refuses: the program was built with the tag noembed.
func Start(string, string) (*Server, error) {
	return nil, fmt.Errorf("%w: this program was built without a server of its own (tag noembed)", fleet.ErrInput)
}

// Close does nothing.
func (*Server) Close(bool) error { return nil }
