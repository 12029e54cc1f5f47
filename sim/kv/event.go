package kv

// Event is one KV event of an engine rank (spec engine-vllm 5, engine-sglang 7):
// blocks that became visible to prefix lookup, or that lost their last copy.
type Event struct {
	Stored    bool    // else removed
	HasParent bool    // stored: false for block 0
	Parent    BlockID // stored: identity of the block before the first
	From, To  int32   // blocks are Events.Blocks[From:To], in order
}

// Events gathers the events of one pass or command in order of creation. Reset
// keeps its buffers; slices handed out live until the next Reset.
type Events struct {
	Items  []Event
	Blocks []BlockID
}

// Reset empties the buffers and keeps their room.
func (e *Events) Reset() { e.Items, e.Blocks = e.Items[:0], e.Blocks[:0] }

// BeginStored opens a stored event; add its blocks with Add.
func (e *Events) BeginStored(parent BlockID, hasParent bool) {
	n := int32(len(e.Blocks))
	e.Items = append(e.Items, Event{Stored: true, HasParent: hasParent, Parent: parent, From: n, To: n})
}

// BeginRemoved opens a removed event.
func (e *Events) BeginRemoved() {
	n := int32(len(e.Blocks))
	e.Items = append(e.Items, Event{From: n, To: n})
}

// Add appends one block to the event opened last.
func (e *Events) Add(b BlockID) {
	e.Blocks = append(e.Blocks, b)
	e.Items[len(e.Items)-1].To++
}

// dropEmpty takes the event opened last back if it has no blocks.
func (e *Events) dropEmpty() {
	if n := len(e.Items) - 1; e.Items[n].From == e.Items[n].To {
		e.Items = e.Items[:n]
	}
}

// BlocksOf returns the blocks of event v.
func (e *Events) BlocksOf(v Event) []BlockID { return e.Blocks[v.From:v.To] }
