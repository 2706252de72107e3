package admin

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/checks"
	"github.com/listproxy/listproxy/telemetry/statusz"
	"github.com/listproxy/listproxy/test/expect"
)

// TestStatusSaysWhatSelfChecksFound: of each collection, and of all together what was ever wrong.
// It stays healthy.
func TestStatusSaysWhatSelfChecksFound(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	wrong := checks.Stats{At: ago(time.Minute), Result: checks.Agrees, Mismatches: 2, Mismatched: ago(time.Hour)}
	stats := func(resource string, found checks.Stats) snapshot.CollectionStats {
		c := collectionStats(resource, 0, reason.None)
		c.Check = found
		return c
	}
	age := func(d time.Duration) *float64 { return new(d.Seconds()) }
	for name, tt := range map[string]struct {
		interval time.Duration
		found    checks.Stats
		want     statusz.SelfCheck
	}{
		"off": {
			0, checks.Stats{}, statusz.SelfCheck{Result: statusz.SelfCheckOff},
		},
		"not yet": {
			time.Minute, checks.Stats{}, statusz.SelfCheck{Result: statusz.SelfCheckNone},
		},
		"agrees": {
			time.Minute,
			checks.Stats{At: ago(time.Second), Result: checks.Agrees},
			statusz.SelfCheck{Result: "agrees", Age: age(time.Second)},
		},
		"inconclusive": {
			time.Minute,
			checks.Stats{At: ago(time.Second), Result: checks.Inconclusive},
			statusz.SelfCheck{Result: "inconclusive", Age: age(time.Second)},
		},
		"mismatch": {
			time.Minute,
			checks.Stats{At: ago(time.Second), Result: checks.Mismatch, Mismatches: 1, Mismatched: ago(time.Second)},
			statusz.SelfCheck{Result: "mismatch", Age: age(time.Second), Mismatches: 1, MismatchAge: age(time.Second)},
		},
		"agrees again": {
			time.Minute, wrong,
			statusz.SelfCheck{Result: "agrees", Age: age(time.Minute), Mismatches: 2, MismatchAge: age(time.Hour)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := newStatusSource(o, metrics.Gatherer())
			source.SelfCheck = tt.interval
			expect.Same(t, tt.want, source.collection(now, stats("pods", tt.found)).SelfCheck)
		})
	}

	source := newStatusSource(o, metrics.Gatherer(), stats("pods", wrong))
	source.SelfCheck = 5 * time.Minute
	gone := snapshot.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Representation: media.Protobuf,
	}
	source.Mismatched = func() map[snapshot.Resource]checks.Stats {
		return map[snapshot.Resource]checks.Stats{
			collectionStats("pods", 0, reason.None).Resource: wrong,
			gone: {At: ago(time.Minute), Result: checks.Mismatch, Mismatches: 1, Mismatched: ago(time.Minute)},
		}
	}
	got := source.Read()
	for i := range got.SelfChecks.Mismatches {
		if m := &got.SelfChecks.Mismatches[i]; m.Age < now.Sub(m.Last).Seconds() {
			t.Errorf("%s was wrong %v s ago", m.Resource, m.Age)
		}
		got.SelfChecks.Mismatches[i].Age = 0
	}
	want := statusz.SelfChecks{Interval: 300, Mismatches: []statusz.Mismatch{
		{Resource: "deployments.apps", Version: "v1", Representation: "protobuf", Mismatches: 1, Last: ago(time.Minute).UTC()},
		{Resource: "pods", Version: "v1", Representation: "json", Mismatches: 2, Last: ago(time.Hour).UTC()},
	}}
	expect.Same(t, want, got.SelfChecks)
	if !got.Healthy {
		t.Errorf("what was wrong is gone, and it is not healthy: %+v", got.Checks)
	}
}
