package results

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// checkArrowSchema refuses a damaged Arrow schema, the metadata entry "ARROW:schema"
// that every Arrow program reads first: base64 of an IPC message whose FlatBuffer names
// the fields. Some readers allocate whatever a vector's length in it says, so that one
// flipped bit takes all memory; here every length must fit the text.
// Layout: Arrow columnar format, "Encapsulated message format" and Schema.fbs.
func checkArrowSchema(text string) (err error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("its Arrow schema is no base64: %w", err)
	}
	defer func() {
		if recover() != nil { // an offset leads out of the text
			err = errors.New("its Arrow schema has an offset out of range")
		}
	}()
	if len(raw) < 16 || binary.LittleEndian.Uint32(raw) != 0xffffffff {
		return errors.New("its Arrow schema is no IPC message")
	}
	b := flatBuffer(raw[8:]) // behind the marker and the length
	const header, fields = 2, 1
	message := b.follow(0)
	schema := b.follow(b.slot(message, header))
	return b.checkFields(b.slot(schema, fields), 0)
}

// flatBuffer reads tables of a FlatBuffer. Positions are offsets into the slice; one out
// of range panics.
type flatBuffer []byte

func (b flatBuffer) u32(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }

// follow is the position that the offset at a position leads to.
func (b flatBuffer) follow(at int) int { return at + b.u32(at) }

// slot is the position of a table's field, 0 where the table lacks it.
func (b flatBuffer) slot(table, field int) int {
	vtable := table - int(int32(b.u32(table)))
	if size := int(binary.LittleEndian.Uint16(b[vtable:])); 4+2*field >= size {
		return 0
	}
	if offset := int(binary.LittleEndian.Uint16(b[vtable+4+2*field:])); offset > 0 {
		return table + offset
	}
	return 0
}

// checkFields walks the vector of fields that stands behind a slot, and their children.
func (b flatBuffer) checkFields(slot, depth int) error {
	const children, maxNesting = 5, 16
	if slot == 0 {
		return nil
	}
	vector := b.follow(slot)
	n := b.u32(vector)
	if n > (len(b)-vector)/4 || depth > maxNesting {
		return fmt.Errorf("its Arrow schema promises %d fields in %d bytes", n, len(b))
	}
	for i := range n {
		if err := b.checkFields(b.slot(b.follow(vector+4+4*i), children), depth+1); err != nil {
			return err
		}
	}
	return nil
}
