package admin

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRecentTraffic: what is recent is that of the last five minutes, or all as long as there is no
// more; whenever somebody looks.
func TestRecentTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept samples
		started := time.Now()
		count := int64(0)
		for range 4 * 60 { // an hour, one list a second
			time.Sleep(sampleEvery)
			count += 15
			kept.keep(sample{time.Now(), trafficCounts{answered: count}})
			time.Sleep(7 * time.Second)
			now := trafficCounts{answered: count + 7}
			before := kept.before(time.Now(), started)
			recent := now.since(before.counts, time.Since(before.at))
			lasting, all := recent.Seconds, time.Since(started).Seconds()
			switch {
			case all <= 300 && lasting != all, all > 300 && (lasting < 300 || lasting > 322):
				t.Fatalf("after %v s %v s are recent", all, lasting)
			case all > 300 && math.Abs(float64(recent.Answered)-lasting*15/22) > 15:
				t.Fatalf("after %v s there were %d in %v s", all, recent.Answered, lasting)
			case recent.Share == nil || *recent.Share != 1:
				t.Fatalf("the share is %v", recent.Share)
			}
		}
		if n := len(kept.kept); n > 20 {
			t.Errorf("%d samples are kept", n)
		}
	})
}

// TestQuantiles: they are those of what is new, between the bounds that they lie in.
func TestQuantiles(t *testing.T) {
	before := buckets{[]float64{0.1, 1, 10}, []float64{1000, 1000, 1000}, 1000}
	now := buckets{[]float64{0.1, 1, 10}, []float64{1000, 1090, 1100}, 1100}
	got := now.since(before).latency()
	if got.Requests != 100 || got.Median < 0.1 || got.Median > 1 || got.P99 < 1 || got.P99 > 10 {
		t.Errorf("latency is %+v", got)
	}
	if diff := cmp.Diff(buckets{}.latency(), before.since(before).latency()); diff != "" {
		t.Errorf("of nothing:\n%s", diff)
	}
	beyond := buckets{[]float64{0.1, 1}, []float64{0, 0}, 5}
	if got := beyond.latency(); got.P99 != 1 {
		t.Errorf("beyond the last bound: %+v", got)
	}
}
