package pace

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// TestCosts: what kinds of lists cost is told apart, forgotten after a time, and bounded.
func TestCosts(t *testing.T) {
	const unknown = leastCost
	now := time.Now()
	var c Costs
	alone := func(kind Kind, took time.Duration, now time.Time) {
		c.underWay++
		c.end(kind, true, now, now, took)
	}
	all, page := Kind{objects: 10}, Kind{objects: 10, limit: 3}
	alone(all, 80*ms, now)
	alone(page, 2*ms, now.Add(2*ms))
	alone(page, 2*ms, now.Add(4*ms))
	alone(all, 160*ms, now.Add(164*ms))
	if got, _ := c.Now(all, leastCost, now); got != 120*ms {
		t.Errorf("all: %v", got)
	}
	now = now.Add(4 * ms)
	if got, _ := c.Now(page, leastCost, now.Add(believed*2*ms-1)); got != 2*ms {
		t.Errorf("a page: %v", got)
	}
	if got, _ := c.Now(page, leastCost, now.Add(believed*2*ms)); got != unknown {
		t.Errorf("what was measured long ago is believed: %v", got)
	}
	now = now.Add(2 * time.Hour)
	alone(all, time.Hour, now)
	alone(all, time.Hour, now)
	if got, _ := c.Now(all, leastCost, now.Add(costKept)); got != unknown {
		t.Errorf("what was measured too long ago is believed: %v", got)
	}
	now = now.Add(costKept)
	alone(all, time.Second, now)
	if got, _ := c.Now(all, leastCost, now); got != time.Second {
		t.Errorf("after a time it begins anew: %v", got)
	}
	for i := range 2 * maxKinds {
		alone(Kind{objects: i}, time.Second, now)
	}
	if len(c.of) > maxKinds {
		t.Errorf("%d kinds", len(c.of))
	}
	if alone(page, 2*ms, now.Add(2*costKept)); len(c.of) != 1 {
		t.Errorf("%d kinds, though all but one were measured long ago", len(c.of))
	}
}

// TestOneSlowListIsBelievedBriefly: a list that took much longer than the one before it is believed
// for as long as that one was: it may have met a busy API server. The next one is believed again.
func TestOneSlowListIsBelievedBriefly(t *testing.T) {
	now := time.Now()
	var c Costs
	kind := Kind{objects: 10}
	alone := func(took time.Duration) {
		c.underWay++
		c.end(kind, true, now, now, took)
	}
	alone(3 * ms)
	alone(3 * ms)
	now = now.Add(time.Minute)
	alone(3 * time.Second)
	if got, _ := c.Now(kind, leastCost, now); got != 3*time.Second {
		t.Errorf("at once: %v", got)
	}
	now = now.Add(believed * 3 * ms)
	if got, _ := c.Now(kind, leastCost, now); got != leastCost {
		t.Errorf("after the time for which the list before it was believed: %v", got)
	}
	alone(3 * time.Second) // it has really become slow
	if got, _ := c.Now(kind, leastCost, now.Add(costKept-1)); got != 3*time.Second {
		t.Errorf("the next that was slow: %v", got)
	}
}

// TestWhoDoesNotReadIsNotCounted: lists whose clients do not read make nobody else wait.
func TestWhoDoesNotReadIsNotCounted(t *testing.T) {
	var c Costs
	kind := Kind{objects: 10}
	for range 5 {
		c.Begin(kind)
	}
	unread := c.Begin(kind)
	if got, _ := c.Now(kind, leastCost, time.Now()); got != 7*leastCost {
		t.Errorf("%v", got)
	}
	unread.Aside(func() {
		if got, _ := c.Now(kind, leastCost, time.Now()); got != 6*leastCost {
			t.Errorf("while its client does not read: %v", got)
		}
	})
	unread.End(time.Second)
	if got, _ := c.Now(kind, leastCost, time.Now()); got != 6*leastCost {
		t.Errorf("after it: %v", got)
	}
}

// TestCostOfOneOfMany: those that are forwarded already are answered before, as fast as the
// upstream was seen to answer one after the other, or as their bytes say.
func TestCostOfOneOfMany(t *testing.T) {
	kind := Kind{objects: 10}
	// list is one that was forwarded at a moment, and ended later.
	type list struct{ begun, ended, took time.Duration }
	oneByOne := func(each time.Duration) (lists []list) {
		for i := range many + 1 {
			at := time.Duration(i) * each
			lists = append(lists, list{0, at, max(each, at)})
		}
		return lists
	}
	for name, tt := range map[string]struct {
		lists  []list // in the order of their ends
		guess  time.Duration
		beside int
		want   time.Duration
	}{
		"alone":                              {lists: []list{{0, 20 * ms, 20 * ms}}, want: 20 * ms},
		"a few others, as many as can be":    {lists: []list{{0, 20 * ms, 20 * ms}}, beside: 19, want: 20 * ms},
		"more":                               {lists: []list{{0, 20 * ms, 20 * ms}}, beside: 39, want: 40 * ms},
		"more large ones":                    {lists: []list{{0, 20 * ms, 20 * ms}}, guess: 5 * ms, beside: 39, want: 200 * ms},
		"many were answered":                 {lists: oneByOne(3 * ms), beside: 999, want: 3000 * ms},
		"some were answered":                 {lists: oneByOne(3 * ms)[:usual], beside: 999, want: 1000 * ms},
		"they end in bursts":                 {lists: append(oneByOne(3*ms), oneByOne(3 * ms)[64]), beside: 999, want: 2953125 * time.Microsecond},
		"one after the other":                {lists: []list{{0, 20 * ms, 20 * ms}, {30 * ms, 50 * ms, 20 * ms}}, beside: 99, want: 100 * ms},
		"a slow reader":                      {lists: append(oneByOne(4*ms), list{0, time.Second, 4 * ms}), beside: 99, want: 400 * ms},
		"how long it took is not known":      {lists: []list{{0, 20 * ms, 0}, {0, 40 * ms, 0}}, want: ms},
		"a small list that was not measured": {want: ms},
		"a large one":                        {guess: 10 * ms, want: 10 * ms},
		"a large one, and three others":      {guess: 10 * ms, beside: 3, want: 40 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			var c Costs
			start := time.Now()
			for _, l := range tt.lists {
				c.underWay++
				c.end(kind, true, start.Add(l.begun), start.Add(l.ended), l.took)
			}
			for range tt.beside {
				c.Begin(kind)
			}
			if got, _ := c.Now(kind, max(leastCost, tt.guess), start.Add(50*ms)); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestProbesWaitBehindLists: those that are forwarded delay a probe as well, by half as much as a small
// list, and by little where they are large.
func TestProbesWaitBehindLists(t *testing.T) {
	var c Costs
	kind := Kind{objects: 10}
	if _, probe := c.Now(kind, leastCost, time.Now()); probe != 0 {
		t.Errorf("alone: %v", probe)
	}
	for range 100 {
		c.Begin(kind)
	}
	for guess, want := range map[time.Duration]time.Duration{leastCost: 50 * ms, 10 * leastCost: 50 * ms} {
		if _, probe := c.Now(kind, guess, time.Now()); probe != want {
			t.Errorf("beside 100 lists of %v each: %v, want %v", guess, probe, want)
		}
	}
	for each, want := range map[time.Duration]time.Duration{3 * ms: 150 * ms, 300 * ms: mostSlowed * 50 * ms} {
		c.of = map[Kind]*cost{kind: {each: measured{average: average[time.Duration]{value: each, n: usual}, until: time.Now().Add(time.Hour)}}}
		if _, probe := c.Now(kind, leastCost, time.Now()); probe != want {
			t.Errorf("beside 100 lists of 1 ms that take %v each: %v, want %v", each, probe, want)
		}
	}
}

// TestCostIsOfOneThatWasAlone: what a list took that was not alone from its begin to its end says
// nothing of one that is.
func TestCostIsOfOneThatWasAlone(t *testing.T) {
	var c Costs
	kind := Kind{objects: 10}
	first, second := c.Begin(kind), c.Begin(kind)
	first.End(300 * ms)
	second.End(0) // not answered
	if got, _ := c.Now(kind, leastCost, time.Now()); got != leastCost {
		t.Errorf("alone %v", got)
	}
	c.Begin(kind).End(200 * ms)
	if got, _ := c.Now(kind, leastCost, time.Now()); got != 200*ms {
		t.Errorf("alone %v", got)
	}
}
