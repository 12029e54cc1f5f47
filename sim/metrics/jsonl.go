package metrics

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// WriteRecords writes one compact JSON object per ended request (spec report 7),
// in ascending order of request id (none first), arrival and ordinal. It reorders
// records.
func WriteRecords(w io.Writer, records []Record) error {
	slices.SortFunc(records, CompareRecords)
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	for i := range records {
		r := &records[i]
		if r.Status == Unfinished {
			continue
		}
		line = append(r.AppendJSON(line[:0]), '\n')
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// CompareRecords is the order of per-request output.
func CompareRecords(a, b Record) int {
	return cmp.Or(cmp.Compare(a.requestID(), b.requestID()),
		cmp.Compare(a.ArrivalMs, b.ArrivalMs), cmp.Compare(a.Ordinal, b.Ordinal))
}

func (r *Record) requestID() string {
	if r.Detail == nil {
		return ""
	}
	return r.Detail.RequestID
}

// UUID is derived from the ordinal, so that equal runs give equal files.
func (r *Record) UUID() string {
	n := uint64(r.Ordinal) + 1
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(n>>48), n&(1<<48-1))
}

// NoDetail is a detail in which nothing happened: the start of a captured record,
// and what stands for the detail of one taken without capture.
func NoDetail() Detail {
	return Detail{DispatchedMs: Unset, PrefillScheduler: -1, DecodeScheduler: -1,
		PrefillAdmitMs: Unset, SourceHeldMs: Unset, DestinationReservedMs: Unset,
		DestinationActivatedMs: Unset, DecodeAdmitMs: Unset, SourceReleasedMs: Unset,
		PrefillReused: -1, DecodeReused: -1, PrefillOverlapTokens: -1, DecodeOverlapTokens: -1}
}

// AppendJSON appends the record as one compact JSON object.
func (r *Record) AppendJSON(b []byte) []byte {
	d := r.Detail
	if d == nil {
		none := NoDetail()
		d = &none
	}
	b = append(b, '{')
	if d.RequestID != "" {
		b = appendString(appendName(b, "request_id"), d.RequestID)
	}
	if d.PlayID != "" {
		b = appendString(appendName(b, "play_id"), d.PlayID)
	}
	if d.HasSession {
		b = appendString(appendName(b, "session_id"), d.Session)
		b = appendID(appendName(b, "turn_index"), d.Turn)
	} else {
		b = append(appendName(b, "session_id"), "null"...)
		b = append(appendName(b, "turn_index"), "null"...)
	}
	if d.PlayID != "" {
		b = d.appendAgentic(b)
	}
	b = appendString(appendName(b, "uuid"), r.UUID())
	b = r.appendTimes(b, d)
	b = r.appendLengths(b, d)
	b = d.appendHandoff(b)
	b = d.appendHistories(b)
	b = appendString(appendName(b, "terminal_status"), r.Status.String())
	return append(b, '}')
}

// appendAgentic appends where a request stands in its play.
func (d *Detail) appendAgentic(b []byte) []byte {
	b = append(appendName(b, "agentic"), '{')
	b = appendString(appendName(b, "request_id"), d.RequestID)
	b = appendString(appendName(b, "play_id"), d.PlayID)
	b = appendString(appendName(b, "conversation_id"), d.Session)
	for _, f := range [...]struct{ name, id string }{{"lane_id", d.LaneID}, {"root_id", d.RootID}, {"parent_id", d.ParentID}} {
		if f.id != "" {
			b = appendString(appendName(b, f.name), f.id)
		}
	}
	return append(b, '}')
}

func (r *Record) appendTimes(b []byte, d *Detail) []byte {
	b = appendTime(appendName(b, "arrival_time_ms"), r.ArrivalMs)
	b = appendTime(appendName(b, "dispatched_at_ms"), d.DispatchedMs)
	b = appendTime(appendName(b, "first_admit_ms"), r.FirstAdmitMs)
	b = appendTime(appendName(b, "terminal_time_ms"), r.TerminalMs)
	b = appendTime(appendName(b, "first_token_ms"), r.FirstTokenMs)
	b = appendTime(appendName(b, "last_token_ms"), r.LastTokenMs)
	ttft, ttst, e2e, itl := Unset, Unset, Unset, Unset
	if r.Output >= 1 {
		ttft, e2e = r.TTFTMs(), r.E2EMs()
	}
	if r.Output >= 2 {
		ttst, itl = r.TTSTMs(), r.TPOTMs()
	}
	b = appendTime(appendName(b, "ttft_ms"), ttft)
	b = appendTime(appendName(b, "ttst_ms"), ttst)
	b = appendTime(appendName(b, "e2e_latency_ms"), e2e)
	return appendTime(appendName(b, "itl_ms"), itl)
}

// ReusedInput is the field reused_input_tokens: in a disaggregated run the best
// prefill admission alone, else the best of all.
func (r *Record) ReusedInput() int32 {
	if r.Detail != nil && r.Detail.PrefillReused >= 0 {
		return r.Detail.PrefillReused
	}
	return r.Reused
}

func (r *Record) appendLengths(b []byte, d *Detail) []byte {
	b = appendInt(appendName(b, "input_length"), int64(r.Input))
	b = appendInt(appendName(b, "requested_output_length"), int64(r.Requested))
	b = appendInt(appendName(b, "output_length"), int64(r.Output))
	b = appendInt(appendName(b, "reused_input_tokens"), int64(r.ReusedInput()))
	if r.Tiered {
		b = appendInt(appendName(b, "first_admission_g1_reused_input_tokens"), int64(r.FirstDevice))
		b = appendInt(appendName(b, "first_admission_host_reused_input_tokens"), int64(r.FirstReused-r.FirstDevice))
	}
	b = appendID(appendName(b, "prefill_worker_idx"), d.PrefillScheduler)
	return appendID(appendName(b, "decode_worker_idx"), d.DecodeScheduler)
}

func (d *Detail) appendHandoff(b []byte) []byte {
	b = appendTime(appendName(b, "prefill_admit_ms"), d.PrefillAdmitMs)
	b = appendTime(appendName(b, "source_held_ms"), d.SourceHeldMs)
	b = appendTime(appendName(b, "destination_reserved_ms"), d.DestinationReservedMs)
	b = appendTime(appendName(b, "destination_activated_ms"), d.DestinationActivatedMs)
	b = appendTime(appendName(b, "decode_admit_ms"), d.DecodeAdmitMs)
	b = appendTime(appendName(b, "source_released_ms"), d.SourceReleasedMs)
	b = appendID(appendName(b, "decode_reused_input_tokens"), d.DecodeReused)
	b = appendID(appendName(b, "prefill_route_overlap_tokens"), d.PrefillOverlapTokens)
	return appendID(appendName(b, "decode_route_overlap_tokens"), d.DecodeOverlapTokens)
}

func (d *Detail) appendHistories(b []byte) []byte {
	b = append(appendName(b, "routing_history"), '[')
	for i := range d.Routing {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.Routing[i].appendJSON(b)
	}
	b = append(appendName(append(b, ']'), "admission_history"), '[')
	for i := range d.Admitted {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.Admitted[i].appendJSON(b, i)
	}
	b = appendInt(appendName(append(b, ']'), "admission_count"), int64(len(d.Admitted)))
	b = appendInt(appendName(b, "readmission_count"), d.readmissions())
	return append(appendName(b, "pressure_record_ordinals"), "[]"...)
}

// readmissions counts the admissions to a pool after the first to it.
func (d *Detail) readmissions() (n int64) {
	for _, a := range d.Admitted {
		if a.PoolOrdinal > 0 {
			n++
		}
	}
	return n
}

func (e *Routing) appendJSON(b []byte) []byte {
	b = append(b, '{')
	b = appendString(appendName(b, "pool"), e.Pool.String())
	outcome, waited := "immediate", 0.0
	if e.Queued {
		outcome, waited = "queued", Unset
		if e.ReleasedMs >= 0 {
			waited = e.ReleasedMs - e.EnteredMs
		}
	}
	b = appendString(appendName(b, "outcome"), outcome)
	b = appendTime(appendName(b, "queue_entered_at_ms"), e.EnteredMs)
	b = appendTime(appendName(b, "released_at_ms"), e.ReleasedMs)
	b = appendTime(appendName(b, "queue_wait_ms"), waited)
	b = appendID(appendName(b, "logical_worker_id"), e.Worker)
	b = appendID(appendName(b, "scheduler_id"), e.Scheduler)
	b = appendID(appendName(b, "dp_rank"), e.Rank)
	b = appendInt(appendName(b, "reported_overlap_tokens"), int64(e.OverlapTokens))
	b = appendID(appendName(b, "selected_overlap_blocks"), e.Selected)
	b = appendID(appendName(b, "best_available_overlap_blocks"), e.Best)
	regret := int32(-1)
	if e.Selected >= 0 && e.Best >= 0 {
		regret = max(e.Best-e.Selected, 0)
	}
	b = appendID(appendName(b, "overlap_regret_blocks"), regret)
	return append(b, `,"placement_replica_id":null}`...)
}

func (a *Admission) appendJSON(b []byte, ordinal int) []byte {
	b = append(b, '{')
	b = appendInt(appendName(b, "admission_ordinal"), int64(ordinal))
	b = appendInt(appendName(b, "pool_admission_ordinal"), int64(a.PoolOrdinal))
	b = appendString(appendName(b, "pool"), a.Pool.String())
	b = appendFloat(appendName(b, "at_ms"), a.AtMs)
	b = appendInt(appendName(b, "reused_input_tokens"), int64(a.Reused))
	if a.Tiered {
		b = appendInt(appendName(b, "g1_reused_input_tokens"), int64(a.Device))
		b = appendInt(appendName(b, "host_reused_input_tokens"), int64(a.Reused-a.Device))
	}
	b = appendBool(appendName(b, "is_readmission"), a.PoolOrdinal > 0)
	return append(b, '}')
}
