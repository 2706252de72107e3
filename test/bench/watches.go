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

// settleFor is how long processes are left alone before their memory is read.
const settleFor = 5 * time.Second

// watches measures events for many watches, and what a watch takes that is told nothing.
func watches(ctx context.Context, b *bench) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	sides := []side{{name: straight}}
	for _, with := range [][]string{{"listproxy, forwarded"}, {"listproxy, `--watches`", "--watches"}} {
		proxied, err := b.through(ctx, with[0], append([]string{"--eager", "pods"}, with[1:]...)...)
		if err != nil {
			return err
		}
		if _, err := b.learn(ctx, proxied, in("", podsPath+"resourceVersion=0", true, protobuf)[0]); err != nil {
			return err
		}
		sides = append(sides, proxied)
	}
	told := &table{caption: fmt.Sprintf("%d clients, each on a connection of its own, watch pods of which %d change a second, for %d s. An answer is an "+
		"event; its time is from before its change is written into etcd.", b.settings.crowd, b.settings.changes, b.settings.seconds)}
	idle := &table{caption: "What one of these watches takes of the memory of both processes before it is told anything."}
	var tells, idles []*result
	for _, at := range sides {
		tell, one, err := b.fanOut(ctx, at)
		if err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
		tells, idles = append(tells, tell), append(idles, one)
		b.log("%s: %d events", at.name, tell.answers)
	}
	told.add(tells...)
	idle.add(idles...)
	b.report(told)
	b.report(idle)
	return nil
}

// fanOut has many clients hear of the same changes at a side.
func (b *bench) fanOut(ctx context.Context, at side) (tell, one *result, err error) {
	pods, err := b.some(ctx, controlplane.TeamA, 10)
	if err != nil {
		return nil, nil, err
	}
	now, err := b.kube.CoreV1().Pods(controlplane.TeamA).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, nil, err
	}
	watching := request{accept: protobuf.accept(), path: "/api/v1/namespaces/" + controlplane.TeamA +
		"/pods?allowWatchBookmarks=true&resourceVersion=" + now.ResourceVersion + "&timeoutSeconds=3000&watch=true"}
	kube, proxy, err := b.memory(at)
	if err != nil {
		return nil, nil, err
	}
	opened := &audience{}
	life, end := context.WithCancel(ctx)
	defer opened.all.Wait()
	defer end()
	for range b.settings.crowd {
		if err := opened.join(life, b, at, watching); err != nil {
			return nil, nil, err
		}
	}
	clock.Sleep(ctx, settleFor)
	kubeThen, proxyThen, err := b.memory(at)
	if err != nil {
		return nil, nil, err
	}
	one = &result{asked: "a watch", of: at.name, memory: (kubeThen - kube + proxyThen - proxy) / int64(b.settings.crowd)}

	tell = &result{asked: "an event", of: at.name}
	want := int64(b.settings.changes) * int64(b.settings.seconds) * int64(b.settings.crowd)
	err = b.cost(at, nil, tell, func() error {
		if _, err := b.change(ctx, pods, b.settings.changes, b.settings.changes*b.settings.seconds); err != nil {
			return err
		}
		return poll.Try(ctx, patience, lookEvery, "events", func() error {
			if n := opened.events.Load(); n < want {
				return errors.Join(fmt.Errorf("%d of %d", n, want), opened.ended())
			}
			return nil
		})
	})
	opened.mu.Lock()
	defer opened.mu.Unlock()
	tell.times, tell.answers = opened.delays, len(opened.delays)
	tell.hits = tell.answers * opened.hits / b.settings.crowd
	return tell, one, err
}

// audience has many watches.
type audience struct {
	all    sync.WaitGroup
	events atomic.Int64

	mu     sync.Mutex
	hits   int
	delays []time.Duration
	failed error
}

// ended is why a watch has ended, if one has.
func (a *audience) ended() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// join opens a watch over a connection of its own, and hears it until ctx ends.
func (a *audience) join(ctx context.Context, b *bench, at side, q request) error {
	cfg := b.config(at, controlplane.Admin)
	over, err := newConnection(cfg, false)
	if err != nil {
		return err
	}
	resp, err := q.open(ctx, over, cfg)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	if ask.FromMemory(resp.Header) {
		a.hits++
	}
	a.all.Go(func() {
		defer over.CloseIdleConnections()
		defer resp.Body.Close()
		in := events.NewReader(resp.Body, resp.Header.Get("Content-Type"))
		for {
			frame, err := in.Frame()
			written, ok := stamped(frame)
			took := time.Since(written)
			a.mu.Lock()
			switch {
			case err != nil && ctx.Err() == nil:
				a.failed = fmt.Errorf("a watch ended: %w", err)
			case err == nil && ok:
				a.delays = append(a.delays, took)
				a.events.Add(1)
			}
			a.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return nil
}

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
