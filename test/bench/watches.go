package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// settleTime is the time between the opening of watches and the reading of their memory.
const settleTime = 5 * time.Second

// runWatches measures events for many watches, and the memory of a watch without events.
func runWatches(ctx context.Context, b *bench) error {
	forwarding, err := b.startSide(ctx, "listproxy, forwarded", "--eager", "pods")
	if err != nil {
		return err
	}
	serving, err := b.startSide(ctx, "listproxy, `--watches`", "--eager", "pods", "--watches")
	if err != nil {
		return err
	}
	for _, target := range []side{forwarding, serving} {
		if err := b.warmUpPods(ctx, target, protobufPlain); err != nil {
			return err
		}
	}
	sides, err := b.addLimit(ctx, []side{direct, forwarding, serving})
	if err != nil {
		return err
	}
	eventTable := &table{caption: fmt.Sprintf("%d clients, each on a connection of its own, watch pods of which %d change a second, for %d s. "+
		"An answer is an event; its time is from before its change is written into etcd.",
		b.settings.crowd, changesPerSecond, b.settings.seconds)}
	idleTable := &table{caption: "What one of these watches takes of the memory of both processes before it is told anything."}
	var eventRows, idleRows []*row
	for _, target := range sides {
		eventRow, idleRow, err := b.measureWatches(ctx, target)
		if err != nil {
			return fmt.Errorf("%s: %w", target.name, err)
		}
		eventRows, idleRows = append(eventRows, eventRow), append(idleRows, idleRow)
		b.log("%s: %d events", target.name, eventRow.answers)
	}
	eventTable.add(eventRows...)
	idleTable.add(idleRows...)
	b.report(eventTable)
	b.report(idleTable)
	return nil
}

// measureWatches has a crowd watch the same pods at a side, and returns the row of an event and that of an idle watch.
func (b *bench) measureWatches(ctx context.Context, target side) (eventRow, idleRow *row, err error) {
	clients := &watchers{}
	watchCtx, stop := context.WithCancel(ctx)
	defer clients.running.Wait()
	defer stop()
	idleRow, err = b.measureIdleWatches(watchCtx, target, clients)
	if err != nil {
		return nil, nil, err
	}
	eventRow, err = b.measureEvents(ctx, target, clients)
	return eventRow, idleRow, err
}

// measureIdleWatches opens the watches of clients, which last until ctx ends, and returns the row of the memory that one takes.
func (b *bench) measureIdleWatches(ctx context.Context, target side, clients *watchers) (*row, error) {
	list, err := b.kube.CoreV1().Pods(controlplane.TeamA).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	path := "/api/v1/namespaces/" + controlplane.TeamA + "/pods?" + watchFrom(list.ResourceVersion)
	kubeBefore, proxyBefore, err := b.residentMemory(target)
	if err != nil {
		return nil, err
	}
	for range b.settings.crowd {
		if err := clients.watch(ctx, b, target, path); err != nil {
			return nil, err
		}
	}
	clock.Sleep(ctx, settleTime)
	kubeAfter, proxyAfter, err := b.residentMemory(target)
	if err != nil {
		return nil, err
	}
	growth := (kubeAfter - kubeBefore) + (proxyAfter - proxyBefore)
	return &row{request: "a watch", side: target.name, memory: growth / int64(b.settings.crowd)}, nil
}

// watchFrom returns the query of a watch that begins after a revision.
func watchFrom(revision string) string {
	return "allowWatchBookmarks=true&resourceVersion=" + revision + "&timeoutSeconds=3000&watch=true"
}

// measureEvents changes pods, waits until each client has got an event for each change, and returns the row of an event.
func (b *bench) measureEvents(ctx context.Context, target side, clients *watchers) (*row, error) {
	pods, err := b.readPods(ctx, controlplane.TeamA, changingPods)
	if err != nil {
		return nil, err
	}
	r := &row{request: "an event", side: target.name}
	changes := changesPerSecond * b.settings.seconds
	want := changes * b.settings.crowd
	err = b.measureCPU(target, noIdle, r, func() error {
		if _, err := b.changePods(ctx, pods, changesPerSecond, changes); err != nil {
			return err
		}
		return poll.Try(ctx, patience, pollInterval, "events", func() error {
			delays, err := clients.received()
			if len(delays) < want {
				return errors.Join(fmt.Errorf("%d of %d", len(delays), want), err)
			}
			return nil
		})
	})
	r.times, _ = clients.received()
	r.answers = len(r.times)
	r.hits = r.answers * clients.hits / b.settings.crowd // in proportion to the watches that are served from memory
	return r, err
}

// watchers are clients with one watch each.
type watchers struct {
	running sync.WaitGroup
	hits    int // the number of watches that are served from memory; only watch writes it

	mu      sync.Mutex
	delays  []time.Duration // of events with a stamp: the time since the change
	lastErr error           // with which a watch ended before its context; may be nil
}

// received returns the delays of all events with a stamp so far, and an error if a watch has ended too early.
func (w *watchers) received() (delays []time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.delays, w.lastErr
}

// watch opens a watch over its own connection, and has it read until ctx ends.
func (w *watchers) watch(ctx context.Context, b *bench, target side, path string) error {
	cfg := b.config(target, controlplane.Admin)
	connection, err := newConnection(cfg, http2)
	if err != nil {
		return err
	}
	resp, err := request{accept: protobufPlain.accept(), path: path}.open(ctx, connection, cfg)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	if ask.FromMemory(resp.Header) {
		w.hits++
	}
	w.running.Go(func() {
		defer connection.CloseIdleConnections()
		defer resp.Body.Close()
		err := w.readEvents(events.NewReader(resp.Body, resp.Header.Get("Content-Type")))
		if ctx.Err() == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lastErr = fmt.Errorf("a watch ended: %w", err)
		}
	})
	return nil
}

// readEvents adds the delays of events until the stream ends, and returns the error with which it ends.
func (w *watchers) readEvents(stream *events.Reader) error {
	for {
		frame, err := stream.Frame()
		if err != nil {
			return err
		}
		if stamp, ok := findStamp(frame); ok {
			delay := time.Since(stamp)
			w.mu.Lock()
			w.delays = append(w.delays, delay)
			w.mu.Unlock()
		}
	}
}

// A stamp is the time of a change, in an annotation of the changed object: stampBegin, nanoseconds, stampEnd.
const (
	stampBegin = "at-nanoseconds-"
	stampEnd   = "."
)

// formatStamp returns the stamp of a time.
func formatStamp(t time.Time) string {
	return stampBegin + strconv.FormatInt(t.UnixNano(), 10) + stampEnd
}

// findStamp returns the time in the stamp of an event. ok reports whether the event has a stamp.
func findStamp(event []byte) (t time.Time, ok bool) {
	_, stamp, found := bytes.Cut(event, []byte(stampBegin))
	if !found {
		return time.Time{}, false
	}
	digits, _, _ := bytes.Cut(stamp, []byte(stampEnd))
	nanoseconds, err := strconv.ParseInt(string(digits), 10, 64)
	return time.Unix(0, nanoseconds), err == nil
}
