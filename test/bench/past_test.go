package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// BenchmarkLoadOfThePast measures what it would cost kube-apiserver and etcd if a feed loaded pods as
// they were two minutes ago, whole or page by page, and replayed what has changed since, beside the
// streaming list of the newest state by which it loads them. Meanwhile pods change.
func BenchmarkLoadOfThePast(b *testing.B) {
	const (
		n         = 3000
		every     = 100 * time.Millisecond // a change of a pod
		ago       = 2 * time.Minute
		page      = 500
		pods      = "/api/v1/pods?"
		resumable = "watch=true&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion="
	)
	cp := harness.RunControlPlane(b, controlplane.Options{})
	expect.NoError(b, workload.Fill(b.Context(), cp, workload.Pods{Nodes: 100}, n, func(int) {}))
	admin, feed := ask.MustNew(b, cp.RESTConfig(controlplane.Admin), 0), ask.MustNew(b, cp.RESTConfig(controlplane.Feed), 0)
	var pids [2]int
	var err error
	pids[0], err = cp.APIServerPID()
	expect.NoError(b, err)
	pids[1], err = cp.EtcdPID()
	expect.NoError(b, err)

	ctx, stop := context.WithCancel(b.Context())
	var newest atomic.Uint64
	var changing sync.WaitGroup
	changing.Go(func() { change(ctx, b, admin, every, &newest) })
	b.Cleanup(func() { stop(); changing.Wait() })
	poll.Pause(ctx, 10*time.Second) // for code paths
	past := newest.Load()
	begun := time.Now()
	used, err := process.Used(func() error { poll.Pause(ctx, ago); return nil }, pids[:]...)
	expect.NoError(b, err)
	var idle [2]float64
	for i := range idle {
		idle[i] = used[i].Seconds() / time.Since(begun).Seconds()
	}

	// replay reads what has changed since the past, and returns how many changes that were.
	replay := func() (changes int, err error) {
		goal := newest.Load()
		resp, err := feed.Open(ctx, http.MethodGet, pods+resumable+strconv.FormatUint(past, 10), nil)
		if err != nil {
			return 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		for in := events.NewReader(resp.Body, ask.JSON); ; changes++ {
			e, err := in.Next()
			switch {
			case err != nil:
				return 0, err
			case e.Type == watch.Error:
				return 0, fmt.Errorf("%s", e.Object)
			case e.Revision >= goal:
				return changes, nil
			}
		}
	}
	for name, once := range map[string]func() (changes int, err error){
		"newest": func() (int, error) {
			resp, err := feed.Open(ctx, http.MethodGet, pods+ask.StreamingList, nil)
			if err != nil {
				return 0, err
			}
			defer func() { _ = resp.Body.Close() }()
			return 0, events.SkipInitial(resp.Body)
		},
		"past": func() (int, error) {
			resp, err := feed.Open(ctx, http.MethodGet, pods+ask.Exactly(past), nil)
			if err != nil {
				return 0, err
			}
			defer func() { _ = resp.Body.Close() }()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				return 0, errors.Join(errors.New(resp.Status), err)
			}
			return replay()
		},
		"past, by pages": func() (int, error) {
			for query := ask.FirstPage(page, ask.Exactly(past)); ; {
				a, err := feed.Do(ctx, http.MethodGet, pods+query, nil)
				if err != nil {
					return 0, err
				}
				l, err := ask.ReadList(ask.JSON, a.Body)
				switch {
				case err != nil:
					return 0, fmt.Errorf("%s: %w", a, err)
				case l.Next == "":
					return replay()
				}
				query = ask.NextPage(page, l.Next)
			}
		},
	} {
		b.Run(name, func(b *testing.B) { costsBoth(b, pids, idle, once) })
	}
}

// change changes pods, one after another, and keeps the newest revision, until ctx ends.
func change(ctx context.Context, b *testing.B, admin *ask.Client, every time.Duration, newest *atomic.Uint64) {
	b.Helper()
	a, err := admin.Do(ctx, http.MethodGet, "/api/v1/pods?limit=500", nil)
	expect.NoError(b, err)
	l, err := ask.ReadList(ask.JSON, a.Body)
	expect.NoError(b, err)
	newest.Store(l.Revision)
	for i := 0; poll.Pause(ctx, every); i++ {
		o := l.Objects[i%len(l.Objects)]
		a, err := admin.Do(ctx, http.MethodPatch, "/api/v1/namespaces/"+o.Namespace+"/pods/"+o.Name, kinds.Touch(strconv.Itoa(i)))
		if ctx.Err() != nil {
			return
		}
		var revision uint64
		if err == nil {
			revision, err = a.Revision()
		}
		if err != nil {
			b.Error(err)
			return
		}
		newest.Store(revision)
	}
}

// costsBoth reports how long each load takes, and what CPU time it takes of the API server and of
// etcd, beyond what they take anyway.
func costsBoth(b *testing.B, pids [2]int, idle [2]float64, once func() (changes int, err error)) {
	b.Helper()
	if _, err := once(); err != nil {
		b.Fatal(err)
	}
	var took sample
	changes := 0
	begun := time.Now()
	used, err := process.Used(func() (err error) {
		for b.Loop() {
			at := time.Now()
			if changes, err = once(); err != nil {
				return err
			}
			took = append(took, time.Since(at))
		}
		return nil
	}, pids[:]...)
	expect.NoError(b, err)
	lasted := time.Since(begun).Seconds()
	b.ReportMetric(0, "ns/op")
	for i, name := range []string{"server", "etcd"} {
		b.ReportMetric(1e3*(used[i].Seconds()-idle[i]*lasted)/float64(len(took)), name+"-CPU-ms/op")
	}
	b.ReportMetric(float64(changes), "changes")
	took.report(b, "took")
}
