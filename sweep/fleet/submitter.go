package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Submitter hands the points of a sweep to runners and collects their rows.
type Submitter struct {
	Link    *Link
	Version string        // of the program
	AckWait time.Duration // a parcel silent so long goes to another runner
	Notice  func(format string, args ...any)
}

var _ sweep.Fleet = (*Submitter)(nil)

// submission is one sweep that a Submitter works on.
type submission struct {
	*Submitter
	work    *sweep.Work
	js      jetstream.JetStream
	name    string
	figures string
	doc     []byte
	inputs  []input
	local   map[string]string // [digest], path
	open    map[results.Key]sweep.Task
	queue   []sweep.Task // not published in this generation
	rows    jetstream.Consumer
	quiet   time.Time // since when nothing is queued and no row came
}

const (
	wave       = 64 // parcels kept in the queue
	parcelSize = 2  // points of a parcel; one each towards the end
	quietFor   = 2 * time.Second
)

// Run hands out the points of w until each has a row. Only a failure to write, two
// answers for one point, ctx, and a server that refuses the token end it early.
func (s *Submitter) Run(ctx context.Context, w *sweep.Work) error {
	fig, err := figures(s.Version)
	if err != nil {
		return err
	}
	n := &submission{Submitter: s, work: w, name: sweepName(w.Recipe.SpecDigest), figures: fig, open: map[results.Key]sweep.Task{}, queue: w.Todo}
	for _, t := range w.Todo {
		n.open[sweep.Key(t.Point)] = t
	}
	if n.inputs, n.local, err = listInputs(w.Todo); err != nil {
		return err
	}
	rc := w.Recipe
	d := document{V: messageVersion, Name: w.Name, Digest: rc.SpecDigest, Version: rc.Version, Cost: rc.Cost,
		Capture: rc.Capture, PointTimeout: rc.PointTimeout, Inputs: n.inputs}
	for _, a := range rc.Axes {
		d.Axes = append(d.Axes, scenario.Axis{Path: a.Path, Type: a.Type})
	}
	if n.doc, err = json.Marshal(&d); err != nil {
		return err
	}
	if len(n.doc) > maxMessage-1024 {
		return fmt.Errorf("%w: the list of input files is too long for a fleet: run the sweep without --on", ErrInput)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	nc, err := s.Link.connect("dynosweep sweep", func(err error) { stop(fmt.Errorf("the server refuses this process: %w", err)) })
	if err != nil {
		return err
	}
	defer nc.Close()
	if n.js, err = jetstream.New(nc); err != nil {
		return err
	}
	return n.loop(ctx)
}

// loop attaches to the broker, and again after each of its errors.
func (s *submission) loop(ctx context.Context) error {
	failing := time.Time{}
	for attached := false; len(s.open) > 0; {
		var err error
		if !attached {
			if err = s.attach(ctx); err == nil {
				attached, failing = true, time.Time{}
			}
		} else {
			err = s.turn(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var end *endError
		if errors.As(err, &end) {
			return end.error
		}
		if err != nil {
			attached = false
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) > 30*time.Second {
				s.Notice("fleet: the server does not answer (%v), still trying", err)
				failing = time.Now()
			}
			pause(ctx, 300*time.Millisecond)
		}
	}
	s.leave(ctx)
	return nil
}

// endError ends the sweep; every other error is the broker's, and is tried again.
type endError struct{ error }

// attach makes what the sweep needs of the broker, and begins a generation.
func (s *submission) attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, c := range []jetstream.StreamConfig{
		{Name: workStream, Subjects: []string{"dsw.work.*.*"}, MaxBytes: 1 << 30},
		{Name: rowsStream, Subjects: []string{"dsw.rows.*"}, MaxBytes: 1 << 30},
	} {
		c.Retention, c.Discard, c.MaxMsgSize = jetstream.WorkQueuePolicy, jetstream.DiscardNew, maxMessage
		if _, err := s.js.CreateOrUpdateStream(ctx, c); err != nil {
			return err
		}
	}
	kv, err := s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: sweepsKV})
	if err != nil {
		return err
	}
	if len(s.inputs) > 0 {
		store, err := s.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: inputStore})
		if err != nil {
			return err
		}
		if err := upload(ctx, store, s.inputs, s.local); err != nil {
			return err
		}
	}
	if _, err := kv.Put(ctx, s.name, s.doc); err != nil {
		return err
	}
	_, err = s.js.CreateOrUpdateConsumer(ctx, workStream, jetstream.ConsumerConfig{Durable: "w-" + s.figures, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: s.AckWait, MaxAckPending: 10000, FilterSubject: "dsw.work." + s.figures + ".>"})
	if err != nil {
		return err
	}
	s.rows, err = s.js.CreateOrUpdateConsumer(ctx, rowsStream, jetstream.ConsumerConfig{Durable: "c-" + s.name, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Minute, MaxAckPending: 2000, FilterSubject: "dsw.rows." + s.name})
	if err != nil {
		return err
	}
	return s.again(ctx)
}

func (s *submission) subject() string { return "dsw.work." + s.figures + "." + s.name }

// again begins a generation: everything that has no row may be published.
func (s *submission) again(ctx context.Context) error {
	st, err := s.js.Stream(ctx, workStream)
	if err != nil {
		return err
	}
	s.queue, s.quiet = s.queue[:0:0], time.Time{}
	for _, t := range s.work.Todo {
		if _, open := s.open[sweep.Key(t.Point)]; open {
			s.queue = append(s.queue, t)
		}
	}
	return st.Purge(ctx, jetstream.WithPurgeSubject(s.subject()))
}

// turn collects rows once, and fills the queue.
func (s *submission) turn(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, 30*time.Second)
	defer cancel()
	came, err := s.collect(ctx)
	if err != nil || len(s.open) == 0 {
		return err
	}
	st, err := s.js.Stream(ctx, workStream)
	if err != nil {
		return err
	}
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(s.subject()))
	if err != nil {
		return err
	}
	queued := int(info.State.Subjects[s.subject()])
	for ; queued < wave && len(s.queue) > 0; queued++ {
		if err := s.publish(ctx); err != nil {
			return err
		}
	}
	switch {
	case queued > 0 || came > 0:
		s.quiet = time.Time{}
	case s.quiet.IsZero():
		s.quiet = time.Now()
	case time.Since(s.quiet) > quietFor:
		return s.again(ctx)
	}
	return nil
}

// publish sends the next points of the queue as one parcel.
func (s *submission) publish(ctx context.Context) error {
	n := parcelSize
	if len(s.queue) < len(s.work.Todo)/10 {
		n = 1
	}
	n = min(n, len(s.queue))
	p := parcel{V: messageVersion}
	for _, t := range s.queue[:n] {
		if _, open := s.open[sweep.Key(t.Point)]; open {
			p.Points = append(p.Points, orderOf(t.Point))
		}
	}
	if len(p.Points) > 0 {
		text, err := json.Marshal(&p)
		if err != nil {
			return &endError{err}
		}
		if _, err := s.js.Publish(ctx, s.subject(), text); err != nil {
			return err
		}
	}
	s.queue = s.queue[n:]
	return nil
}

// collect makes the rows that wait durable, and lets their messages go after that.
func (s *submission) collect(ctx context.Context) (came int, err error) {
	batch, err := s.rows.Fetch(256, jetstream.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return 0, err
	}
	var parts [][]byte
	var messages []jetstream.Msg
	for msg := range batch.Messages() {
		rows, err := unpackRows(msg.Data())
		if err != nil {
			s.Notice("fleet: rows do not read (%v): their points run again", err)
			msg.TermWithReason("rows do not read")
			continue
		}
		parts, messages = append(parts, rows...), append(messages, msg)
	}
	if err := batch.Error(); err != nil && len(parts) == 0 && !strings.Contains(err.Error(), "timeout") {
		return 0, err
	}
	if len(parts) == 0 {
		return 0, nil
	}
	answers, err := s.work.Adopt(parts)
	if err != nil {
		return 0, &endError{err}
	}
	for _, a := range answers {
		if a.Refused != nil {
			s.Notice("fleet: %v", a.Refused)
			continue
		}
		delete(s.open, a.Key)
	}
	for _, msg := range messages {
		msg.Ack()
	}
	return len(parts), nil
}

// leave takes what belongs to the finished sweep away; the broker may be gone by now.
func (s *submission) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if st, err := s.js.Stream(ctx, workStream); err == nil {
		st.Purge(ctx, jetstream.WithPurgeSubject(s.subject()))
	}
	s.js.DeleteConsumer(ctx, rowsStream, "c-"+s.name)
	if kv, err := s.js.KeyValue(ctx, sweepsKV); err == nil {
		kv.Purge(ctx, s.name)
	}
}
