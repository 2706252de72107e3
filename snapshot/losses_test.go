package snapshot

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestLossesAreCounted where they happen, and once: neither the watches that were resumed nor the
// loads that failed.
func TestLossesAreCounted(t *testing.T) {
	gone := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":410}}` + "\n"
	const broken = `{"type":`
	for _, tt := range []struct {
		name string
		// told is what the watches tell, one after the other; then they are quiet.
		told [][]string
		// down: after the first loss the upstream answers nothing for so many requests.
		down int
		// pages: the upstream has no streaming lists.
		pages bool
		want  FeedStats
	}{
		{name: "nothing", want: FeedStats{Loads: 1}},
		{name: "a watch that breaks", told: [][]string{{broken}, nil}, want: FeedStats{Loads: 1, Resumes: 1}},
		{name: "a watch that ends", told: [][]string{nil, nil}, want: FeedStats{Loads: 1}},
		{name: "expired", told: [][]string{{gone}}, want: FeedStats{Loads: 2, Losses: map[reason.Reason]uint64{reason.Expired: 1}}},
		{name: "expired, page by page", told: [][]string{{gone}}, pages: true, want: FeedStats{Loads: 2, Losses: map[reason.Reason]uint64{reason.Expired: 1}}},
		{name: "an outage after it", told: [][]string{{gone}}, down: 4, want: FeedStats{Loads: 2, Losses: map[reason.Reason]uint64{reason.Expired: 1}}},
		{name: "a contradiction", told: [][]string{{inEvent("ADDED", strings.Replace(itemB, `"7"`, `"12"`, 1))}}, want: FeedStats{Loads: 2, Losses: map[reason.Reason]uint64{reason.Contradiction: 1}}},
		{name: "went back", told: [][]string{{bookmark(4, "")}}, want: FeedStats{Loads: 2, Losses: map[reason.Reason]uint64{reason.WentBack: 1}}},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			u := &upstream{revision: 7, changes: true}
			if tt.pages {
				u = &upstream{revision: 9}
			}
			u.watch = func(uint64) []string {
				if n := u.watches; n <= len(tt.told) {
					return tt.told[n-1]
				}
				return []string{bookmark(9, "")}
			}
			c := collectionsOf(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				u.mu.Lock()
				down := u.probes > 0 && tt.down > 0 // after the first state was loaded, and a probe answered
				if down {
					tt.down--
				}
				u.mu.Unlock()
				switch {
				case down:
					return nil, errors.New("connection refused")
				case tt.pages && kindOf(r) == "load":
					return answered(r, http.StatusUnprocessableEntity, "{}"), nil
				}
				return u.RoundTrip(r)
			}))
			c.Use(configMaps)
			time.Sleep(40 * time.Second)
			synctest.Wait()
			all := c.Stats()
			if len(all) != 1 {
				t.Fatalf("%d collections", len(all))
			}
			got := all[0].Feed
			if got.Resumes < tt.want.Resumes {
				t.Errorf("%d resumes, want %d or more", got.Resumes, tt.want.Resumes)
			}
			got.Resumes = tt.want.Resumes // a watch that ends at once is in doubt sometimes
			expect.Same(t, tt.want, got)
		})
	}
}

// TestLossesFromOutside: a collection that is given up for a reason loses its state, once, and what
// its feed still says of it is not counted; one that nobody asks for loses nothing. The counts
// outlive the collection.
func TestLossesFromOutside(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*Collections)
		want map[reason.Reason]uint64
	}{
		{"the upstream changed", func(c *Collections) { c.Invalidate(apiServers(time.Second)) }, map[reason.Reason]uint64{reason.Upstream: 1}},
		{"the schema changed", func(c *Collections) {
			c.Invalidate(Invalidation{Cause: Definition, Scope: OfResource(configMaps.GroupResource()), Until: For(time.Second)})
		}, map[reason.Reason]uint64{reason.Schema: 1}},
		{"it moved", func(c *Collections) {
			c.Invalidate(Invalidation{Cause: Catalog, Scope: OfVersion(configMaps.GroupVersion()), Until: For(time.Second)})
		}, map[reason.Reason]uint64{reason.Moved: 1}},
		{"rebuilt twice", func(c *Collections) { c.Invalidate(stored(Until{})); c.Invalidate(stored(Until{})) }, map[reason.Reason]uint64{reason.Upstream: 1}},
		{"a mismatch", func(c *Collections) { c.restart(c.list()[0], 0) }, map[reason.Reason]uint64{reason.Mismatch: 1}},
		{"idle", func(c *Collections) { c.endIdle(time.Now().Add(time.Hour)) }, nil},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			c := collectionsOf(t, quiet(), func(c *Config) { c.Idle = 30 * time.Minute })
			expectUse(t, "at first", c, configMaps, reason.None)
			tt.end(c)
			time.Sleep(3 * time.Second)
			expectUse(t, "again", c, configMaps, reason.None)
			want := FeedStats{Loads: 2, Losses: tt.want}
			got := c.Stats()[0].Feed
			got.Resumes = 0
			expect.Same(t, want, got)
		})
	}
}

// TestCollectionThatIsOverOpensNothing: its feed may not know yet.
func TestCollectionThatIsOverOpensNothing(t *testing.T) {
	now := time.Now()
	life := &stateLife{counts: &feedCounts{}}
	life.drop(reason.Upstream, now)
	life.loaded()
	life.lost(reason.Contradiction, now)
	expect.Same(t, FeedStats{}, life.counts.stats())
}

func TestCountsAreBounded(t *testing.T) {
	c := collectionsOf(t, quiet())
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range 5 * maxCollections {
		r := configMaps
		r.Group = fmt.Sprint(i)
		c.countsLocked(r)
		if len(c.counts) > 2*maxCollections {
			t.Fatalf("%d are kept", len(c.counts))
		}
	}
}

// TestLossOf: every error after which a state is lost, or loaded anew, has a cause.
func TestLossOf(t *testing.T) {
	for want, err := range map[reason.Reason]error{
		reason.Expired:       &wire.AnswerError{Code: http.StatusGone},
		reason.NotFound:      fmt.Errorf("asking: %w", &wire.AnswerError{Code: http.StatusNotFound}),
		reason.NotPermitted:  &wire.AnswerError{Code: http.StatusForbidden},
		reason.Contradiction: wire.Inconsistent("that"),
		reason.WentBack:      anotherPastError{9, 4},
		reason.FirstObject:   errObject,
		reason.Form:          fmt.Errorf("%w: no", wire.ErrForm),
		reason.Memory:        errFull,
		reason.Other:         io.EOF,
	} {
		if got := lossOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
