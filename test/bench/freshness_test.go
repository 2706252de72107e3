package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// retryEvery is how long a client waits before it asks again.
	retryEvery = 50 * time.Millisecond
	// retryFor ends a try that never comes from memory.
	retryFor = 2 * time.Minute
)

// BenchmarkFreshness measures how soon listproxy answers from memory at a revision that config
// maps, which nothing changes, have reached only because something else was written. Each
// iteration is a try: something else is written, a revision is learnt, and after a pause the
// client asks for it, and asks again until the answer comes from memory.
func BenchmarkFreshness(b *testing.B) {
	cp := harness.RunControlPlane(b, controlplane.Options{})
	expect.NoError(b, workload.FillConfigMaps(b.Context(), cp, filled, 100, 5))
	proxy := startProxy(b, cp)
	admin := ask.MustNew(b, cp.RESTConfig(controlplane.Admin), 0)
	// The client's own rights are reviewed before anything is measured.
	user := ask.MustNew(b, proxy.RESTConfig(cp.RESTConfig(controlplane.Admin)), 0)
	if _, err := user.Do(b.Context(), http.MethodGet, configMaps+"?"+ask.AnyVersion, nil); err != nil {
		b.Fatal(err)
	}

	for _, pause := range []time.Duration{0, time.Second, 2 * time.Second} {
		b.Run(fmt.Sprintf("continuation/after=%v", pause), func(b *testing.B) {
			tries(b, user, admin, pause, func(uint64) (string, error) {
				page, err := user.Do(b.Context(), http.MethodGet, configMaps+"?limit=10", nil)
				next := page.Meta().Continue
				if err == nil && (page.FromMemory() || next == "") {
					err = errors.New("the first page of the newest list was not kube-apiserver's, or the only one")
				}
				return ask.NextPage(10, next), err
			})
		})
	}
	for match, query := range map[string]func(uint64) string{"Exact": ask.Exactly, "NotOlderThan": ask.NotOlderThan} {
		b.Run(match, func(b *testing.B) {
			tries(b, user, admin, 0, func(elsewhere uint64) (string, error) { return query(elsewhere), nil })
		})
	}
}

// tries repeats: write elsewhere, learn what to ask for, pause, ask until it comes from memory.
// The first-answer is the first one's latency, wherever it came from; the until-hit is the time
// from when the revision was learnt to the end of the first answer from memory.
func tries(b *testing.B, user, admin *ask.Client, pause time.Duration, learn func(elsewhere uint64) (query string, err error)) {
	b.Helper()
	var first, until sample
	atOnce, asked := 0, 0
	for b.Loop() {
		elsewhere, err := writeElsewhere(b.Context(), admin)
		expect.NoError(b, err)
		query, err := learn(elsewhere)
		expect.NoError(b, err)
		learnt := time.Now()
		poll.Pause(b.Context(), pause)
		firstAnswer, questions, err := untilHit(b.Context(), user, query)
		expect.NoError(b, err)
		first, until = append(first, firstAnswer), append(until, time.Since(learnt))
		asked += questions
		if questions == 1 {
			atOnce++
		}
	}
	b.ReportMetric(0, "ns/op") // the pause is in it
	b.ReportMetric(100*float64(atOnce)/float64(len(first)), "%-hit-at-once")
	b.ReportMetric(float64(asked)/float64(len(first)), "questions/op")
	first.report(b, "first-answer")
	until.report(b, "until-hit")
}

// untilHit asks until the answer comes from memory, and returns how long the first answer took
// and how many there were.
func untilHit(ctx context.Context, user *ask.Client, query string) (first time.Duration, questions int, err error) {
	for begun := time.Now(); time.Since(begun) < retryFor; poll.Pause(ctx, retryEvery) {
		asked := time.Now()
		a, err := user.Do(ctx, http.MethodGet, configMaps+"?"+query, nil)
		if err != nil && a.Code != http.StatusGatewayTimeout { // where kube-apiserver's own cache has not come that far
			return 0, 0, err
		}
		questions++
		if questions == 1 {
			first = time.Since(asked)
		}
		if a.FromMemory() {
			return first, questions, nil
		}
	}
	return 0, 0, fmt.Errorf("nothing from memory within %v", retryFor)
}

// startProxy builds listproxy as it is delivered, without the race detector, and runs it in front
// of a control plane until the benchmark ends.
func startProxy(b *testing.B, cp *controlplane.ControlPlane) *harness.Proxy {
	b.Helper()
	binary, err := harness.BuildPlainProxy(b.Context())
	expect.NoError(b, err)
	return harness.RunProxy(b, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Binary: binary, Args: []string{"--eager", "configmaps"},
	})
}
