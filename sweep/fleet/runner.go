package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// RunnerOptions say how a process computes points.
type RunnerOptions struct {
	Version      string // of the program
	Slots        int    // points at a time, >= 1
	Cache        string // folder of input files
	ExitWhenIdle time.Duration
	Notice       func(format string, args ...any)
}

// runner computes points for any sweep of its figures.
type runner struct {
	opt     RunnerOptions
	js      jetstream.JetStream
	figures string
	cache   cache
	last    atomic.Int64 // unix ns of the end of the latest parcel
	busy    atomic.Int64 // slots that work

	mu     sync.Mutex
	sweeps map[string]*joined // by sweep name and revision of its document
}

// joined is a sweep that the runner works for.
type joined struct {
	shop  *sweep.Shop
	paths map[useOfPath]string
}

// Join computes points until ctx ends or there has been nothing to do for the time of
// the options; both end with nil. Lost connections mend themselves. An error says that
// the broker refused this process, or that the cache cannot be written.
func Join(ctx context.Context, l *Link, opt RunnerOptions) error {
	fig, err := figures(opt.Version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(opt.Cache, 0o755); err != nil {
		return fmt.Errorf("%w: --cache: %w", ErrInput, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	nc, err := l.connect("dynosweep join", func(err error) { stop(fmt.Errorf("the server refuses this process: %w", err)) })
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	r := &runner{opt: opt, js: js, figures: fig, cache: cache{dir: opt.Cache}, sweeps: map[string]*joined{}}
	r.last.Store(time.Now().UnixNano())
	var slots sync.WaitGroup
	for range opt.Slots {
		slots.Go(func() { r.work(ctx, stop) })
	}
	slots.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// work is one slot.
func (r *runner) work(ctx context.Context, stop context.CancelCauseFunc) {
	for ctx.Err() == nil {
		msg, err := r.next(ctx)
		switch {
		case ctx.Err() != nil:
			if msg != nil {
				msg.Nak()
			}
			return
		case err == nil:
			r.busy.Add(1)
			r.parcel(ctx, msg)
			r.last.Store(time.Now().UnixNano())
			r.busy.Add(-1)
		default:
			pause(ctx, 300*time.Millisecond)
		}
		idle := time.Duration(time.Now().UnixNano() - r.last.Load())
		if r.opt.ExitWhenIdle > 0 && r.busy.Load() == 0 && idle > r.opt.ExitWhenIdle {
			stop(context.Canceled)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

var errNothing = errors.New("nothing to do")

// next takes one parcel.
func (r *runner) next(ctx context.Context) (jetstream.Msg, error) {
	ask, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := r.js.Consumer(ask, workStream, "w-"+r.figures)
	if err != nil {
		return nil, err
	}
	batch, err := c.Fetch(1, jetstream.FetchMaxWait(2*time.Second))
	if err != nil {
		return nil, err
	}
	for msg := range batch.Messages() {
		return msg, nil
	}
	return nil, errors.Join(errNothing, batch.Error())
}

// parcel computes the points of a message, brings their rows to the broker, and only
// then lets the message go.
func (r *runner) parcel(ctx context.Context, msg jetstream.Msg) {
	alive, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for alive.Err() == nil {
			msg.InProgress()
			pause(alive, time.Second)
		}
	}()
	p, err := parseParcel(msg.Data())
	if err != nil {
		r.opt.Notice("a parcel does not read: %v", err)
		msg.TermWithReason(err.Error())
		return
	}
	name := lastToken(msg.Subject())
	if err := r.compute(ctx, name, p); err != nil {
		msg.NakWithDelay(time.Second)
		if ctx.Err() == nil {
			r.opt.Notice("sweep %s: %v", name, err)
			pause(ctx, time.Second)
		}
		return
	}
	msg.DoubleAck(ctx)
}

func lastToken(subject string) string {
	for i := len(subject) - 1; i >= 0; i-- {
		if subject[i] == '.' {
			return subject[i+1:]
		}
	}
	return subject
}

// compute runs the points of a parcel and publishes their rows.
func (r *runner) compute(ctx context.Context, name string, p *parcel) error {
	j, err := r.sweep(ctx, name)
	if err != nil {
		return err
	}
	var parts [][]byte
	size := 0
	flush := func() error {
		if len(parts) == 0 {
			return nil
		}
		packed := packRows(parts)
		send, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		_, err := r.js.Publish(send, "dsw.rows."+name, packed, jetstream.WithRetryAttempts(20))
		parts, size = nil, 0
		return err
	}
	for i := range p.Points {
		part, err := j.run(ctx, &p.Points[i])
		if err != nil {
			return err
		}
		if size+len(part) > maxRows {
			if err := flush(); err != nil {
				return err
			}
		}
		parts, size = append(parts, part), size+len(part)
	}
	return flush()
}

func (j *joined) run(ctx context.Context, o *order) ([]byte, error) {
	p, err := o.point()
	if err != nil {
		return nil, err
	}
	local, err := p.Run.WithPaths(func(path string, use scenario.PathUse) (string, error) {
		if to, ok := j.paths[useOfPath{path, use}]; ok {
			return to, nil
		}
		return "", fmt.Errorf("%s is not an input of this sweep", path)
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := j.shop.Make(ctx, p, &local, &out); err != nil {
		return nil, err
	}
	if size := len(packRows([][]byte{out.Bytes()})); size > maxMessage-4096 {
		err = j.shop.MakeFailed(p, fmt.Sprintf("its rows have %d KiB, more than a message of the fleet: run the sweep again without --on and with --retry-failed", size>>10), &out)
	}
	return out.Bytes(), err
}

// sweep reads what a sweep's points have in common, and its input files, once.
func (r *runner) sweep(ctx context.Context, name string) (*joined, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kv, err := r.js.KeyValue(ctx, sweepsKV)
	if err != nil {
		return nil, err
	}
	entry, err := kv.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	key := string(entry.Value())
	if j := r.sweeps[key]; j != nil {
		return j, nil
	}
	d, err := parseDocument(entry.Value())
	if err != nil {
		return nil, fmt.Errorf("its document does not read: %w", err)
	}
	j := &joined{paths: map[useOfPath]string{}}
	if j.shop, err = sweep.NewShop(d.recipe(), &sweep.Inputs{}); err != nil {
		return nil, err
	}
	if len(d.Inputs) > 0 {
		store, err := r.js.ObjectStore(ctx, inputStore)
		if err != nil {
			return nil, err
		}
		for i := range d.Inputs {
			in := &d.Inputs[i]
			at, err := r.cache.place(ctx, in, func(ctx context.Context, f *inputFile, to io.Writer) error {
				return download(ctx, store, f, to)
			})
			if err != nil {
				return nil, err
			}
			j.paths[useOfPath{in.Path, in.Use}] = at
		}
	}
	clear(r.sweeps) // one sweep at a time is usual: traces of earlier ones go
	r.sweeps[key] = j
	return j, nil
}

func download(ctx context.Context, store jetstream.ObjectStore, f *inputFile, to io.Writer) error {
	from, err := store.Get(ctx, f.SHA256)
	if err != nil {
		return err
	}
	defer from.Close()
	n, err := io.Copy(to, io.LimitReader(from, f.Bytes+1))
	if err == nil && n != f.Bytes {
		err = fmt.Errorf("%d bytes came, want %d", n, f.Bytes)
	}
	return err
}
