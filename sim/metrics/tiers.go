package metrics

// G2Domain is one host memory that all workers share, at the end of the run (spec
// kv-offload 8).
type G2Domain struct {
	CapacityBlocks int `json:"capacity_blocks"`
	ResidentBlocks int `json:"resident_blocks"`
	UsedBlocks     int `json:"used_blocks"`
}

// G3Offload is what went on between the host memory and the tier behind it.
type G3Offload struct {
	LookupProbes          int64     `json:"lookup_probes"`
	LookupHits            int64     `json:"lookup_hits"`
	LookupPending         int64     `json:"lookup_pending"`
	Read                  Transfers `json:"read"`
	Write                 Transfers `json:"write"`
	Evictions             int64     `json:"evictions"`
	CrossWorkerReadBlocks int64     `json:"cross_worker_read_blocks"`
	ResidentBlocks        int       `json:"resident_blocks"`
	PendingBlocks         int       `json:"pending_blocks"`
}

// Transfers counts the jobs of one direction; TransferMs sums their ends less their
// submissions.
type Transfers struct {
	SubmittedJobs  int64   `json:"submitted_jobs"`
	CompletedJobs  int64   `json:"completed_jobs"`
	CancelledJobs  int64   `json:"cancelled_jobs"`
	CompletedBytes int64   `json:"completed_bytes"`
	TransferMs     float64 `json:"transfer_ms"`
}

// Tier is the figures of one tier behind the KV pool: the host, then what stands
// behind it. It is our own block of the coverage, beside the upstream keys.
type Tier struct {
	Name           string  `json:"tier"`
	CapacityBlocks int     `json:"capacity_blocks"` // of all pools of the tier
	PeakBlocks     int     `json:"peak_blocks"`
	ResidentBlocks int     `json:"resident_blocks"` // at the end
	HitTokens      int64   `json:"hit_tokens"`      // read from it for a prompt
	JobsIn         int64   `json:"jobs_in"`
	JobsOut        int64   `json:"jobs_out"`
	BytesIn        float64 `json:"bytes_in"`
	BytesOut       float64 `json:"bytes_out"`
	InMs           float64 `json:"in_ms"`  // submission to end, summed over jobs
	OutMs          float64 `json:"out_ms"` // the same of reads: what requests waited
	Evictions      int64   `json:"evictions"`
	StoresRefused  int64   `json:"stores_refused"` // stores that found no room, retries included
}
