package upstreams

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/faults/load"
)

// seen is what was seen in one part of a test.
type seen struct {
	load.Counts
	longest
	lost int
}

// longest is for how long there was no answer in a part, of each sort of request that is asked all
// the time. The part's first and last moment count as answers.
type longest map[string]time.Duration

// outages are the sorts of requests to listproxy that went without an answer for longer than limit,
// and than an undisturbed API server did beyond that.
func (l longest) outages(limit time.Duration) (sorts []string) {
	for sort, gap := range l {
		if sort != sortDirect && gap > limit+l[sortDirect] {
			sorts = append(sorts, sort)
		}
	}
	slices.Sort(sorts)
	return sorts
}

// gaps measures them. Safe for concurrent use.
type gaps struct {
	mu      sync.Mutex
	longest longest
	last    map[string]time.Time // since when there was no answer
}

func newGaps() *gaps { return &gaps{longest: longest{}, last: map[string]time.Time{}} }

// expect notes that these sorts of requests are asked all the time from now on.
func (g *gaps) expect(sorts ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, sort := range sorts {
		g.last[sort] = time.Now()
	}
}

// begin begins another part of a test, and returns what was seen in the one before.
func (g *gaps) begin() longest {
	g.mu.Lock()
	defer g.mu.Unlock()
	for sort := range g.last {
		g.answered(sort)
	}
	was := maps.Clone(g.longest)
	clear(g.longest)
	return was
}

// heard notes an answer, or that there was none.
func (g *gaps) heard(sort string, err error) {
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered(sort)
}

// answered closes the gap of a sort of requests. The caller holds g.mu.
func (g *gaps) answered(sort string) {
	now := time.Now()
	if last, ok := g.last[sort]; ok {
		g.longest[sort] = max(g.longest[sort], now.Sub(last))
	}
	g.last[sort] = now
}

// TestOutages: that nobody was answered is seen wherever in a part it was, and also if it was all
// of it.
func TestOutages(t *testing.T) {
	const limit = 10 * time.Second
	gone := errors.New("connection refused")
	for name, tt := range map[string]struct {
		answers map[time.Duration]error // after how long; nil: there was one
		direct  time.Duration           // for how long an undisturbed API server does not answer, from the beginning
		want    []string                // outages of a part of 20 s
	}{
		"none":             {map[time.Duration]error{5 * time.Second: nil, 12 * time.Second: nil}, time.Second, nil},
		"at the beginning": {map[time.Duration]error{12 * time.Second: nil}, time.Second, []string{sortList}},
		"in the middle":    {map[time.Duration]error{time.Second: nil, 5 * time.Second: gone, 13 * time.Second: nil}, time.Second, []string{sortList}},
		"at the end":       {map[time.Duration]error{time.Second: nil, 8 * time.Second: nil, 15 * time.Second: gone}, time.Second, []string{sortList}},
		"all the time":     {map[time.Duration]error{time.Second: gone}, time.Second, []string{sortList}},
		"of the machine":   {map[time.Duration]error{12 * time.Second: nil}, 5 * time.Second, nil},
		"and longer":       {map[time.Duration]error{17 * time.Second: nil}, 5 * time.Second, []string{sortList}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGaps()
				g.expect(sortList, sortDirect)
				time.Sleep(time.Hour) // of no part
				g.begin()
				for second := range 20 {
					time.Sleep(time.Second)
					if time.Duration(second+1)*time.Second >= tt.direct {
						g.heard(sortDirect, nil)
					}
					if err, now := tt.answers[time.Duration(second+1)*time.Second]; now {
						g.heard(sortList, err)
					}
				}
				if diff := cmp.Diff(tt.want, g.begin().outages(limit)); diff != "" {
					t.Errorf("outages (-want +got):\n%s", diff)
				}
			})
		})
	}
}
