package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	configMaps = "/api/v1/configmaps"
	filled     = "filled" // the namespace that has them
)

// BenchmarkProbe measures what a probe of config maps (package snapshot, source.probe) costs
// kube-apiserver in time and CPU, beside what else could be asked to learn its revision: the first
// page of a list, a whole list, and the short watch that follows a probe when somebody waits.
func BenchmarkProbe(b *testing.B) {
	for _, n := range []int{100, 20_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			cp := harness.RunControlPlane(b, controlplane.Options{})
			expect.NoError(b, workload.FillConfigMaps(b.Context(), cp, filled, n, 5))
			admin, feed := ask.MustNew(b, cp.RESTConfig(controlplane.Admin), 0), ask.MustNew(b, cp.RESTConfig(controlplane.Feed), 0)
			pid, err := cp.APIServerPID()
			expect.NoError(b, err)
			// What config maps are at, and a revision beyond it.
			first, err := feed.Do(b.Context(), http.MethodGet, configMaps+"?limit=1", nil)
			expect.NoError(b, err)
			last := first.Meta().ResourceVersion
			if _, err := writeElsewhere(b.Context(), admin); err != nil {
				b.Fatal(err)
			}
			idle := idleLoad(b, pid)
			measure := func(name string, many, atOnce int, once func() (int, error)) {
				b.Run(name, func(b *testing.B) { costs(b, pid, idle, many, atOnce, once) })
			}
			list := func(target string) func() (int, error) {
				return func() (int, error) {
					a, err := feed.Do(b.Context(), http.MethodGet, target, nil)
					return len(a.Body), err
				}
			}
			// What is cheap is done more often: it is to be more than what kube-apiserver does anyway.
			measure("probe", 50, 1, list("/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3D~listproxy-probe"))
			measure("limit=1", 50, 1, list(configMaps+"?limit=1"))
			measure("everything", max(1, 5_000/n), 1, list(configMaps))
			measure("watch", 100, 100, func() (int, error) { return bookmark(b, feed, last) })
		})
	}
}

// idleLoad is the part of a CPU that the API server uses while nobody asks it anything.
func idleLoad(b *testing.B, pid int) float64 {
	b.Helper()
	begun := time.Now()
	used, err := process.Used(func() error {
		poll.Pause(b.Context(), 10*time.Second)
		return nil
	}, pid)
	expect.NoError(b, err)
	return used[0].Seconds() / time.Since(begun).Seconds()
}

// costs sends one kind of request, in each iteration so many and so many of them at once, and
// reports how long one takes and what CPU time it takes of the API server, beyond what that takes
// anyway.
func costs(b *testing.B, pid int, idle float64, many, atOnce int, once func() (size int, err error)) {
	b.Helper()
	if _, err := once(); err != nil { // connections and code paths
		b.Fatal(err)
	}
	var mu sync.Mutex
	var took sample
	size := 0
	begun := time.Now()
	used, err := process.Used(func() (failed error) {
		for b.Loop() {
			var all sync.WaitGroup
			for range atOnce {
				all.Go(func() {
					for range many / atOnce {
						at := time.Now()
						n, err := once()
						mu.Lock()
						took, size, failed = append(took, time.Since(at)), n, errors.Join(failed, err)
						mu.Unlock()
					}
				})
			}
			all.Wait()
			if failed != nil {
				break
			}
		}
		return failed
	}, pid)
	expect.NoError(b, err)
	own := used[0].Seconds() - idle*time.Since(begun).Seconds()
	b.ReportMetric(0, "ns/op") // an iteration is no operation here
	b.ReportMetric(1e6*own/float64(len(took)), "server-CPU-µs/op")
	b.ReportMetric(float64(size), "body-B")
	b.ReportMetric(100*idle, "idle-CPU-%")
	took.report(b, "took")
}

// bookmark opens a watch of three seconds from a revision and reads up to its first bookmark, as
// the feed does after a probe when somebody waits.
func bookmark(b *testing.B, c *ask.Client, from string) (int, error) {
	b.Helper()
	resp, err := c.Open(b.Context(), http.MethodGet,
		configMaps+"?watch=true&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion="+from, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(`{"type":"BOOKMARK"`)) {
			return len(lines.Bytes()), nil
		}
	}
	return 0, errors.Join(errors.New("the watch ended without a bookmark"), lines.Err())
}
