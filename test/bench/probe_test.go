package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const configMaps = "/api/v1/configmaps"

// BenchmarkProbe measures what a probe of config maps (package snapshot, source.probe) costs
// kube-apiserver in time and CPU, beside what else could be asked to learn its revision: the first
// page of a list, a whole list, and the short watch that follows a probe when somebody waits.
func BenchmarkProbe(b *testing.B) {
	for _, n := range []int{100, 20_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			cp := startControlPlane(b)
			fill(b, cp, n)
			admin, feed := newClient(b, cp.RESTConfig(controlplane.Admin)), newClient(b, cp.RESTConfig(controlplane.Feed))
			pid, err := cp.APIServerPID()
			if err != nil {
				b.Fatal(err)
			}
			// What config maps are at, and a revision beyond it.
			last, err := get(b.Context(), feed, configMaps, url.Values{"limit": {"1"}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := writeElsewhere(b.Context(), admin); err != nil {
				b.Fatal(err)
			}
			idle := idleLoad(b, pid)
			measure := func(name string, many, atOnce int, once func() (answer, error)) {
				b.Run(name, func(b *testing.B) { costs(b, pid, idle, many, atOnce, once) })
			}
			list := func(path string, query url.Values) func() (answer, error) {
				return func() (answer, error) { return get(b.Context(), feed, path, query) }
			}
			// CPU time is counted in ticks of 10 ms, so what is cheap is done more often.
			measure("probe", 50, 1, list("/api/v1/namespaces/default/configmaps", url.Values{"fieldSelector": {"metadata.name=~listproxy-probe"}}))
			measure("limit=1", 50, 1, list(configMaps, url.Values{"limit": {"1"}}))
			measure("everything", max(1, 5_000/n), 1, list(configMaps, url.Values{}))
			measure("watch", 100, 100, func() (answer, error) { return bookmark(b, feed, last.revision) })
		})
	}
}

// idleLoad is the part of a CPU that the API server uses while nobody asks it anything.
func idleLoad(b *testing.B, pid int) float64 {
	b.Helper()
	const last = 10 * time.Second
	before, err := cpuTime(pid)
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	poll.Pause(b.Context(), last)
	after, err := cpuTime(pid)
	if err != nil {
		b.Fatal(err)
	}
	return (after - before).Seconds() / time.Since(begun).Seconds()
}

// costs sends one kind of request, in each iteration so many and so many of them at once, and
// reports how long one takes and what CPU time it takes of the API server, beyond what that takes
// anyway.
func costs(b *testing.B, pid int, idle float64, many, atOnce int, once func() (answer, error)) {
	b.Helper()
	if _, err := once(); err != nil { // connections and code paths
		b.Fatal(err)
	}
	before, err := cpuTime(pid)
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	var mu sync.Mutex
	var took sample
	var failed error
	size := 0
	for b.Loop() {
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				for range many / atOnce {
					at := time.Now()
					a, err := once()
					mu.Lock()
					took, size, failed = append(took, time.Since(at)), a.size, errors.Join(failed, err)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if failed != nil {
			b.Fatal(failed)
		}
	}
	elapsed := time.Since(begun)
	after, err := cpuTime(pid)
	if err != nil {
		b.Fatal(err)
	}
	used := (after - before).Seconds() - idle*elapsed.Seconds()
	b.ReportMetric(0, "ns/op") // an iteration is no operation here
	b.ReportMetric(1e6*used/float64(len(took)), "server-CPU-µs/op")
	b.ReportMetric(float64(size), "body-B")
	b.ReportMetric(100*idle, "idle-CPU-%")
	took.report(b, "took")
}

// bookmark opens a watch of three seconds from a revision and reads up to its first bookmark, as
// the feed does after a probe when somebody waits.
func bookmark(b *testing.B, c *ask.Client, from uint64) (answer, error) {
	b.Helper()
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {"3"},
		"resourceVersion": {strconv.FormatUint(from, 10)},
	}
	resp, err := c.Open(b.Context(), http.MethodGet, configMaps+"?"+query.Encode(), nil)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(`{"type":"BOOKMARK"`)) {
			return answer{size: len(lines.Bytes())}, nil
		}
	}
	return answer{}, errors.Join(errors.New("the watch ended without a bookmark"), lines.Err())
}
