package compare

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynosweep/dynosweep/results"
)

// Every column that is read by name is one of the schema, and a table that lacks one is
// refused with its name, not judged as if no run had the figure.
func TestColumnsReadByNameAreThoseOfTheSchema(t *testing.T) {
	schema := results.Tables()[results.Points].Columns
	for _, name := range readColumns {
		if !slices.ContainsFunc(schema, func(c results.Column) bool { return c.Name == name }) {
			t.Errorf("the schema has no column %s", name)
		}
	}
	s := &Sweep{Dir: "d", Frame: &results.Frame{}}
	if err := s.join(); err == nil || !strings.Contains(err.Error(), "there is no column point_id") {
		t.Errorf("a table without columns: %v", err)
	}
}
