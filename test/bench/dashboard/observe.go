package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	podsPerNode = 30
	scrapeEvery = 2 * time.Second
)

// observe runs everything for as long as s says, and returns what was scraped and how many changes
// were made.
func observe(ctx context.Context, s settings) (_ []sample, changes int64, err error) {
	binary, err := harness.BuildPlainProxy(ctx)
	if err != nil {
		return nil, 0, err
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Log: func(line string) { say("%s", line) }})
	if err != nil {
		return nil, 0, err
	}
	defer cp.Stop()
	// The patterns of pods are made by the API and take the longest; the rest are copies.
	maker := workload.Pods{Nodes: s.pods/podsPerNode + 1}
	if err := workload.Fill(ctx, cp, maker, s.pods, func(n int) { say("%d pods", n) }); err != nil {
		return nil, 0, err
	}
	proxy, err := harness.StartProxy(ctx, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Binary: binary,
		Args: []string{"--eager", "pods", "--log-level", "info", "--upstream-settle", "10s"},
	})
	if err != nil {
		return nil, 0, fmt.Errorf("start listproxy: %w", err)
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	l, err := newLoad(cp, proxy, s)
	if err != nil {
		return nil, 0, err
	}
	before, err := l.listed(ctx)
	if err != nil {
		return nil, 0, err
	}

	running, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	group, running := errgroup.WithContext(running)
	l.begin(running, group)
	if s.restart {
		group.Go(func() error { return restart(running, cp, s.duration*3/5) })
	}
	var samples []sample
	group.Go(func() (err error) {
		samples, err = scrape(running, proxy.AdminURL()+"/metrics")
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if len(samples) == 0 {
		return nil, 0, errors.New("nothing was scraped")
	}
	tell(samples[len(samples)-1], before, l.changed.Load())
	return samples, l.changed.Load(), nil
}

// restart stops kube-apiserver after a while, and starts it again.
func restart(ctx context.Context, cp *controlplane.ControlPlane, after time.Duration) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(after):
	}
	if err := cp.StopAPIServer(); err != nil {
		return err
	}
	if err := cp.StartAPIServer(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	say("kube-apiserver was restarted")
	return nil
}

// tell prints what was stored at the end, for docs/operations.md.
func tell(last sample, listBytes int, changes int64) {
	objects := last.sum("listproxy_collection_objects", labels{"resource": "pods", "representation": "json"})
	stored := last.sum("listproxy_collection_size_bytes", labels{"resource": "pods", "representation": "json"})
	fmt.Printf("pods as json: %.0f objects, their list has %d bytes (%.0f each), %d changes made, %.0f bytes stored\n",
		objects, listBytes, float64(listBytes)/max(1, objects), changes, stored)
	fmt.Printf("all: %.0f bytes stored, %.0f of heap, %.0f of memory (RSS)\n", last.sum("listproxy_stored_bytes", nil),
		last.sum("go_memstats_heap_alloc_bytes", nil), last.sum("process_resident_memory_bytes", nil))
}
