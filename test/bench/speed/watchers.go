package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// watchOrder is one for the watchers: a process that has watches, and keeps them from one order to
// the next.
type watchOrder struct {
	// Open has one watch begun for each path, so many on a connection, and returns when all have been
	// told all that there is at first.
	Open          []string
	Server        server
	PerConnection int
	// AtOnce is how many are being begun at a time; 0: all.
	AtOnce int
	// Close ends all.
	Close bool
	// Reset forgets the events so far, and what they took.
	Reset bool
	// Await returns when so many events have been told since Reset.
	Await int64
	// Mix is a load of many sorts, beside the watches.
	Mix *mix
}

// watchOutcome is what came of it.
type watchOutcome struct {
	Error   string
	Hits    int             // watches from memory
	Others  map[string]int  // the Cache-Status of the others
	Events  int64           // since Reset
	Bytes   int64           // since Reset
	Refused int64           // how often watches came again since the last Close
	Times   []time.Duration // until each watch had been told all that there is at first, sorted
	Elapsed time.Duration
	// Median and High (99%) are how long events took from before their change was sent.
	Median, High time.Duration
	Mixed        mixed
}

// refusedFor is how long a client waits that was told 429: its Retry-After.
const refusedFor = time.Second

// stampMark stands before the time in an annotation of what is changed.
const stampMark = "at-nanoseconds-"

// stamp returns the value of such an annotation.
func stamp(at time.Time) string { return stampMark + strconv.FormatInt(at.UnixNano(), 10) + "." }

// stamped finds the time in an event.
func stamped(frame []byte) (time.Time, bool) {
	_, rest, ok := bytes.Cut(frame, []byte(stampMark))
	if !ok {
		return time.Time{}, false
	}
	digits, _, ok := bytes.Cut(rest, []byte("."))
	nanoseconds, err := strconv.ParseInt(string(digits), 10, 64)
	return time.Unix(0, nanoseconds), ok && err == nil
}

// watchers are the process's watches.
type watchers struct {
	life   context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
	events atomic.Int64
	bytes  atomic.Int64
	// refused is how often a watch was refused or ended before all was told that there is at first, and
	// came again.
	refused atomic.Int64
	ending  atomic.Bool

	mu     sync.Mutex
	delays []time.Duration
	failed error
}

// runWatchers is their role.
func runWatchers(ctx context.Context, in io.Reader, out io.Writer) error {
	w := &watchers{}
	w.life, w.cancel = context.WithCancel(ctx)
	return obey(ctx, in, out, func(ctx context.Context, o watchOrder) watchOutcome {
		begun := time.Now()
		done, err := w.carryOut(ctx, o)
		if err != nil {
			done.Error = err.Error()
		}
		done.Elapsed = time.Since(begun)
		return done
	})
}

func (w *watchers) carryOut(ctx context.Context, o watchOrder) (done watchOutcome, err error) {
	if o.Close {
		w.ending.Store(true)
		w.cancel()
		w.all.Wait()
		*w = watchers{}
		w.life, w.cancel = context.WithCancel(ctx)
	}
	if o.Reset {
		w.mu.Lock()
		w.delays = nil
		w.mu.Unlock()
		w.events.Store(0)
		w.bytes.Store(0)
	}
	if len(o.Open) > 0 {
		if done, err = w.open(o); err != nil {
			return done, err
		}
	}
	if o.Mix != nil {
		if done.Mixed, err = o.Mix.run(ctx, o.Server); err != nil {
			return done, err
		}
	}
	if o.Await > 0 {
		err = poll.Try(ctx, warmFor, 10*time.Millisecond, "events", func() error {
			if told := w.events.Load(); told < o.Await {
				return fmt.Errorf("%d of %d", told, o.Await)
			}
			return nil
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.delays)
	done.Events, done.Bytes, done.Refused = w.events.Load(), w.bytes.Load(), w.refused.Load()
	done.Median, done.High = quantile(w.delays, 0.5), quantile(w.delays, 0.99)
	return done, errors.Join(err, w.failed)
}

// open begins watches, and waits until they are under way.
func (w *watchers) open(o watchOrder) (done watchOutcome, err error) {
	var (
		opening sync.WaitGroup
		mu      sync.Mutex
		client  *http.Client
	)
	done.Others = map[string]int{}
	places := make(chan struct{}, cmp.Or(o.AtOnce, len(o.Open)))
	for i, path := range o.Open {
		if i%max(1, o.PerConnection) == 0 {
			if client, err = newHTTPClient(o.Server, false); err != nil {
				return done, err
			}
		}
		client := client
		opening.Add(1)
		places <- struct{}{}
		w.all.Go(func() {
			begun := time.Now()
			failed := w.follow(client, load{Server: o.Server, Path: path, Accept: acceptProtobuf}, func(status string) {
				mu.Lock()
				defer mu.Unlock()
				done.Times = append(done.Times, time.Since(begun))
				if strings.HasPrefix(status, "listproxy; hit") {
					done.Hits++
				} else {
					done.Others[status]++
				}
				<-places
				opening.Done()
			})
			if failed == nil || w.ending.Load() {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failed = fmt.Errorf("GET %s: %w", path, failed)
		})
	}
	under := make(chan struct{})
	go func() {
		opening.Wait()
		close(under)
	}()
	for {
		select {
		case <-under:
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(done.Times)
			return done, err
		case <-time.After(time.Second):
			w.mu.Lock()
			failed := w.failed
			w.mu.Unlock()
			if failed != nil {
				return watchOutcome{}, failed
			}
		}
	}
}

// mostRefusals is how often a watch comes again.
const mostRefusals = 100

// follow reads a watch to its end, and says when all that there is at first has been told. Until
// then it comes again if it is refused or ended, as informers do.
func (w *watchers) follow(client *http.Client, l load, begun func(status string)) error {
	for refusals := 0; ; refusals++ {
		refused, err := w.read(client, l, begun)
		if !refused || refusals == mostRefusals || !poll.Pause(w.life, refusedFor) {
			return err
		}
		w.refused.Add(1)
	}
}

// read reads a watch to its end. It returns whether that came before all was told that there is at
// first.
func (w *watchers) read(client *http.Client, l load, begun func(status string)) (refused bool, err error) {
	req, err := l.request(w.life)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return true, err // a server that has too much to do closes connections
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode == http.StatusTooManyRequests, errors.New(resp.Status)
	}
	status := resp.Header.Get("Cache-Status")
	initial := strings.Contains(l.Path, "sendInitialEvents")
	if !initial {
		begun(status)
	}
	in := bufio.NewReaderSize(resp.Body, 16<<10)
	var frame []byte
	for {
		if frame, err = nextFrame(in, frame); err != nil {
			return initial, err
		}
		w.bytes.Add(int64(len(frame)))
		if bytes.HasPrefix(frame[4:], []byte("\n\x08BOOKMARK")) {
			if initial && bytes.Contains(frame, []byte("k8s.io/initial-events-end")) {
				initial = false
				begun(status)
			}
			continue
		}
		w.events.Add(1)
		if at, ok := stamped(frame); ok && !initial {
			took := time.Since(at)
			w.mu.Lock()
			w.delays = append(w.delays, took)
			w.mu.Unlock()
		}
	}
}

// nextFrame reads one event of a protobuf watch with the four bytes of its length, into the memory
// of the last one.
func nextFrame(in *bufio.Reader, into []byte) ([]byte, error) {
	head, err := in.Peek(4)
	if err != nil {
		return nil, err
	}
	length := 4 + int(binary.BigEndian.Uint32(head))
	into = slices.Grow(into[:0], length)[:length]
	if _, err = io.ReadFull(in, into); err == nil && bytes.HasPrefix(into[4:], []byte("\n\x05ERROR")) {
		err = fmt.Errorf("refused: %q", into)
	}
	return into, err
}

// order gives the watchers an order.
func order(c *child, o watchOrder) (watchOutcome, error) {
	var done watchOutcome
	if err := c.call(o, &done); err != nil {
		return done, err
	}
	if done.Error != "" {
		return done, errors.New(done.Error)
	}
	return done, nil
}
