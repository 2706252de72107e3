package statusz

import (
	"fmt"
	"sync"
	"testing"
)

func TestCallers(t *testing.T) {
	var c Callers
	for range 3 {
		c.Count("kubectl/v1 (linux)", "most-recent")
	}
	c.Count("kubectl/v1 (darwin)", "representation")
	c.Count("Bearer s3cr3t-T0ken._~+/x==", "selector")
	s := Status{Callers: c.Status()}
	s.Sort()
	want := []Caller{{UserAgent: "kubectl/v1", Lists: 4, Reason: "most-recent"}, {UserAgent: "Bearer", Lists: 1, Reason: "selector"}}
	if fmt.Sprint(s.Callers) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", s.Callers, want)
	}
}

// However many names there are, memory is bounded, and who sends much is there with about the
// right count. At the same time somebody reads.
func TestCallersAreBounded(t *testing.T) {
	var c Callers
	const each, others = 500, 2000
	var all sync.WaitGroup
	all.Go(func() {
		for range each {
			c.Count("often/1", "most-recent")
		}
	})
	all.Go(func() {
		for i := range others {
			c.Count(fmt.Sprintf("seldom-%d/1", i), "selector")
		}
	})
	all.Go(func() {
		for range 100 {
			c.Status()
		}
	})
	all.Wait()
	status := c.Status()
	if len(status) > maxCallers || len(c.names) > maxCallerNames {
		t.Errorf("%d callers, %d names are kept", len(status), len(c.names))
	}
	sum, often := int64(0), Caller{}
	for _, s := range status {
		sum += s.Lists
		if s.UserAgent == "often/1" {
			often = s
		}
	}
	if sum != each+others {
		t.Errorf("%d lists are counted, of %d", sum, each+others)
	}
	if often.Lists < each || often.Lists-often.Excess > each || often.Excess > sum/maxCallers {
		t.Errorf("the one who sent %d: %+v", each, often)
	}
}
