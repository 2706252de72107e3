package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// settleTime is the time after which memory is read, once watches are open.
const settleTime = 5 * time.Second

// watches measures events for many watches, and the memory of a watch without events.
func watches(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
	forwarding, err := b.startSide(ctx, "listproxy, forwarded", "--eager", "pods")
	if err != nil {
		return err
	}
	serving, err := b.startSide(ctx, "listproxy, `--watches`", "--eager", "pods", "--watches")
	if err != nil {
		return err
	}
	for _, at := range []side{forwarding, serving} {
		if _, err := b.warmUp(ctx, at, fromMemory("", podsWith+ask.AnyVersion, protobufPlain)[0]); err != nil {
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
	var eventRows, idleRows []*result
	for _, at := range sides {
		event, watch, err := b.measureWatches(ctx, at)
		if err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
		eventRows, idleRows = append(eventRows, event), append(idleRows, watch)
		b.log("%s: %d events", at.name, event.answers)
	}
	eventTable.add(eventRows...)
	idleTable.add(idleRows...)
	b.report(eventTable)
	b.report(idleTable)
	return nil
}

// measureWatches has a crowd watch the same pods at a side, and returns the row of an event and that of an idle watch.
func (b *bench) measureWatches(ctx context.Context, at side) (event, watch *result, err error) {
	crowd := &watchers{}
	watchCtx, stop := context.WithCancel(ctx)
	defer crowd.running.Wait()
	defer stop()
	watch, err = b.measureIdleWatches(ctx, watchCtx, at, crowd)
	if err != nil {
		return nil, nil, err
	}
	event, err = b.measureEvents(ctx, at, crowd)
	return event, watch, err
}

// measureIdleWatches opens the crowd's watches, which last until watchCtx ends, and measures the memory that one takes.
func (b *bench) measureIdleWatches(ctx, watchCtx context.Context, at side, crowd *watchers) (*result, error) {
	list, err := b.kube.CoreV1().Pods(controlplane.TeamA).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	q := request{accept: protobufPlain.accept(), path: "/api/v1/namespaces/" + controlplane.TeamA +
		"/pods?allowWatchBookmarks=true&resourceVersion=" + list.ResourceVersion + "&timeoutSeconds=3000&watch=true"}
	kubeBefore, proxyBefore, err := b.residentMemory(at)
	if err != nil {
		return nil, err
	}
	for range b.settings.crowd {
		if err := crowd.watch(watchCtx, b, at, q); err != nil {
			return nil, err
		}
	}
	clock.Sleep(ctx, settleTime)
	kubeAfter, proxyAfter, err := b.residentMemory(at)
	if err != nil {
		return nil, err
	}
	grown := kubeAfter - kubeBefore + proxyAfter - proxyBefore
	return &result{request: "a watch", side: at.name, memory: grown / int64(b.settings.crowd)}, nil
}

// measureEvents changes pods and waits until each of the crowd was told of each change.
func (b *bench) measureEvents(ctx context.Context, at side, crowd *watchers) (*result, error) {
	pods, err := b.readPods(ctx, controlplane.TeamA, changingPods)
	if err != nil {
		return nil, err
	}
	event := &result{request: "an event", side: at.name}
	changes := changesPerSecond * b.settings.seconds
	want := int64(changes) * int64(b.settings.crowd)
	err = b.measureCPU(at, notIdle, event, func() error {
		if _, err := b.changePods(ctx, pods, changesPerSecond, changes); err != nil {
			return err
		}
		return poll.Try(ctx, patience, pollInterval, "events", func() error {
			if n := crowd.events.Load(); n < want {
				return errors.Join(fmt.Errorf("%d of %d", n, want), crowd.err())
			}
			return nil
		})
	})
	crowd.mu.Lock()
	defer crowd.mu.Unlock()
	event.times = crowd.delays
	event.answers = len(crowd.delays)
	event.hits = event.answers * crowd.hits / b.settings.crowd
	return event, err
}

// watchers are clients with one watch each.
type watchers struct {
	running sync.WaitGroup
	events  atomic.Int64 // stamped ones
	hits    int          // watches from memory; written by watch alone

	mu      sync.Mutex
	delays  []time.Duration // of events, from their stamps
	lastErr error
}

// err returns the error with which a watch has ended, if one has.
func (w *watchers) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastErr
}

// watch opens a watch over its own connection, and reads it until ctx ends.
func (w *watchers) watch(ctx context.Context, b *bench, at side, q request) error {
	cfg := b.config(at, controlplane.Admin)
	connection, err := newConnection(cfg, false)
	if err != nil {
		return err
	}
	resp, err := q.open(ctx, connection, cfg)
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
		stream := events.NewReader(resp.Body, resp.Header.Get("Content-Type"))
		for {
			frame, err := stream.Frame()
			if err != nil {
				if ctx.Err() == nil {
					w.mu.Lock()
					w.lastErr = fmt.Errorf("a watch ended: %w", err)
					w.mu.Unlock()
				}
				return
			}
			if stamp, ok := findStamp(frame); ok {
				delay := time.Since(stamp)
				w.mu.Lock()
				w.delays = append(w.delays, delay)
				w.mu.Unlock()
				w.events.Add(1)
			}
		}
	})
	return nil
}

// stampMark begins the annotation with the time of a change.
const stampMark = "at-nanoseconds-"

// stamp returns the value of this annotation.
func stamp(at time.Time) string { return stampMark + strconv.FormatInt(at.UnixNano(), 10) + "." }

// findStamp returns the time in an event.
func findStamp(frame []byte) (time.Time, bool) {
	_, rest, ok := bytes.Cut(frame, []byte(stampMark))
	if !ok {
		return time.Time{}, false
	}
	digits, _, ok := bytes.Cut(rest, []byte("."))
	nanoseconds, err := strconv.ParseInt(string(digits), 10, 64)
	return time.Unix(0, nanoseconds), ok && err == nil
}
