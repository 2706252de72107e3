package pace

import (
	"testing"
	"time"
)

// TestCosts: what kinds of lists cost is told apart, forgotten after a time, and bounded.
func TestCosts(t *testing.T) {
	const unknown = leastCost
	now := time.Now()
	var c Costs
	whole, page := Kind{objects: 10}, Kind{objects: 10, limit: 3}
	c.add(whole, 80*time.Millisecond, now)
	c.add(whole, 160*time.Millisecond, now)
	c.add(page, 2*time.Millisecond, now)
	if got := c.Now(whole, 0, now); got != 90*time.Millisecond {
		t.Errorf("whole: %v", got)
	}
	if got := c.Now(page, 0, now.Add(believed*2*time.Millisecond-1)); got != 2*time.Millisecond {
		t.Errorf("a page: %v", got)
	}
	if got := c.Now(page, 0, now.Add(believed*2*time.Millisecond)); got != unknown {
		t.Errorf("what was measured long ago is believed: %v", got)
	}
	c.add(whole, time.Hour, now)
	if got := c.Now(whole, 0, now.Add(costKept)); got != unknown {
		t.Errorf("what was measured too long ago is believed: %v", got)
	}
	c.add(whole, time.Second, now.Add(costKept))
	if got := c.Now(whole, 0, now.Add(costKept)); got != time.Second {
		t.Errorf("after a time it begins anew: %v", got)
	}
	for i := range 2 * maxKinds {
		c.add(Kind{objects: i}, time.Second, now)
	}
	if len(c.of) > maxKinds {
		t.Errorf("%d kinds", len(c.of))
	}
	if c.add(page, 2, now.Add(2*costKept)); len(c.of) != 1 {
		t.Errorf("%d kinds, though all but one were measured long ago", len(c.of))
	}
}

// TestCostBesideOthers: a list takes as long as was measured beside as many others. Where nothing
// was measured, twice as many make it twice as long.
func TestCostBesideOthers(t *testing.T) {
	const ms = time.Millisecond
	kind := Kind{objects: 10}
	for name, tt := range map[string]struct {
		measured map[int64]time.Duration // beside how many others
		bytes    int64
		beside   int64
		want     time.Duration
	}{
		"alone":                              {measured: map[int64]time.Duration{0: 20 * ms}, want: 20 * ms},
		"one other":                          {measured: map[int64]time.Duration{0: 20 * ms}, beside: 1, want: 40 * ms},
		"two or three":                       {measured: map[int64]time.Duration{0: 20 * ms}, beside: 3, want: 80 * ms},
		"a thousand":                         {measured: map[int64]time.Duration{0: 20 * ms}, beside: 1000, want: 20 * 1024 * ms},
		"as many as were measured":           {measured: map[int64]time.Duration{0: 20 * ms, 4: 30 * ms}, beside: 7, want: 30 * ms},
		"twice as many as were measured":     {measured: map[int64]time.Duration{0: 20 * ms, 4: 30 * ms}, beside: 8, want: 60 * ms},
		"fewer than were measured":           {measured: map[int64]time.Duration{4: 30 * ms}, want: ms},
		"a small list that was not measured": {bytes: 1000, want: ms},
		"a large one":                        {bytes: 1_000_000, want: 10 * ms},
		"a large one, and three others":      {bytes: 1_000_000, beside: 3, want: 40 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			var c Costs
			now := time.Now()
			for beside, took := range tt.measured {
				is := kind
				is.beside = magnitude(beside)
				c.add(is, took, now)
			}
			for range tt.beside {
				c.Begin(kind)
			}
			if got := c.Now(kind, tt.bytes, now); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestCostIsOfTheCompany: what a list took counts for as many others as there were at its begin or
// its end, whichever were more.
func TestCostIsOfTheCompany(t *testing.T) {
	var c Costs
	kind := Kind{objects: 10}
	first, second, third := c.Begin(kind), c.Begin(kind), c.Begin(kind)
	first(300 * time.Millisecond)
	second(0) // not answered
	third(400 * time.Millisecond)
	is := kind
	is.beside = magnitude(2)
	if got := c.of[is]; len(c.of) != 1 || got == nil || got.value != 312500*time.Microsecond {
		t.Errorf("learned %v", c.of)
	}
	if n := c.underWay.Load(); n != 0 {
		t.Errorf("%d are under way", n)
	}
}
